"""Text of users in Markdown."""

from __future__ import annotations

from onnx_aot.reporting.markdown import fenced, table

# --- pieces --------------------------------------------------------------------------------------


def test_text_of_users_does_not_break_the_markdown() -> None:
    assert fenced("```python\nx\n```") == "````\n```python\nx\n```\n````"
    assert table(("a",), [("x | y\nz",)]).splitlines()[2] == "| x \\| y z |"
