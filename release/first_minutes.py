"""Runs the transcript of docs/first-ten-minutes.md with the Python that runs this script.

    python -I release/first_minutes.py            compares what the commands print with the page
    python -I release/first_minutes.py --write    writes it into the page

A ``py`` block begins with the name of the file that it is; in a ``text`` block, lines that begin
with ``$`` are commands. Those of pip are shown only. The commands run in a temporary folder.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "first-ten-minutes.md"
BLOCK = re.compile(r"^```(py|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_ONLY = "python -m pip "


def main() -> None:
    """Compares the page, or writes it; exits with 1 if it differs."""
    before = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        after = run_page(before, Path(folder))
    if "--write" in sys.argv:
        PAGE.write_text(after, encoding="utf-8")
    elif after != before:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "page", "now", n=1)
        sys.exit("\n".join(lines))


def run_page(page: str, folder: Path) -> str:
    """Returns the page with what its commands print in this folder."""

    def run_block(block: re.Match[str]) -> str:
        kind, text = block.groups()
        if kind == "py":
            name = text.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(text, encoding="utf-8")
            return block[0]
        commands = [line for line in text.splitlines() if line.startswith("$ ")]
        shown = "".join(f"{line}\n{_run(line[2:], folder)}" for line in commands)
        return f"```{kind}\n{shown}```"

    return BLOCK.sub(run_block, page)


def _run(command: str, folder: Path) -> str:
    """Returns what a command prints, without names of folders and tracebacks."""
    if command.startswith(SHOWN_ONLY):
        return ""
    scripts = os.path.dirname(sys.executable)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    # torch's error, and the lines of both, come before the last one
    printed = re.sub(r"(?s)^Traceback.*\n(?=onnx_aot\.errors)", "...\n", done.stdout)
    printed = printed.replace(f"{os.path.realpath(folder)}{os.sep}", "")
    return printed.replace(f"{folder}{os.sep}", "")


if __name__ == "__main__":
    main()
