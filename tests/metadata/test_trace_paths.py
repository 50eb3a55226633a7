"""Paths of files in stack traces, in the form in which Python imports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_aot.metadata.trace_paths import relativize_trace


def test_stack_traces_as_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2]
    monkeypatch.setattr("sys.path", [str(folder), str(folder / "tests" / "translate"), "/"])
    lines = [f'File "{folder}/{name}", line 3, in f' for name in ("a.py", "tests/translate/b.py")]
    lines += ['File "/elsewhere/lib/c.py", line 4', 'File "<stdin>", line 5']
    lines += ['File "<eval_with_key>.17", line 6']
    named = relativize_trace("\n".join(lines), {})
    expected = ("a.py", "b.py", "c.py", "<stdin>", "<eval_with_key>")
    assert tuple(line.split('"')[1] for line in named.splitlines()) == expected
