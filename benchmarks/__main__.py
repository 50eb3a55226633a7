"""Runs all benchmarks, each in a process of its own: ``python -m benchmarks``.

Arguments go to every script: ``--quick`` takes minutes and writes nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from benchmarks.results import BENCHMARKS


def main() -> None:
    """Runs the benchmarks in order, and stops at the first that fails."""
    with tempfile.TemporaryDirectory() as files:  # later benchmarks reuse the exported models
        for name in BENCHMARKS:
            module = ("-m", f"benchmarks.{name}", "--files", files)
            subprocess.run([sys.executable, *module, *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
