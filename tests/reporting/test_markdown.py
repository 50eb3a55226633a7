"""User-provided text in Markdown."""

from __future__ import annotations

from onnx_aot.reporting.markdown import fence_code, format_table

# --- pieces --------------------------------------------------------------------------------------


def test_text_of_users_does_not_break_the_markdown() -> None:
    assert fence_code("```python\nx\n```") == "````\n```python\nx\n```\n````"
    assert format_table(("a",), [("x | y\nz",)]).splitlines()[2] == "| x \\| y z |"
