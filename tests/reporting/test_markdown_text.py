"""Names in a report cannot become HTML, whatever they contain."""

from __future__ import annotations

import re

import pytest
import torch

import onnx_aot
from onnx_aot.reporting.markdown_text import escape_html, format_table, quote_code

NAMES = [
    "<script>alert(1)</script>",
    "a`<img src=x onerror=alert(1)>",
    "`<b>` <i>",
    "\\<script>",
    "\\`<b>\\`",
    "``<b>`",
    "<!-- a",
    "a\n\n<div>",
    "a|<b>|`c",
]


def has_html(text: str) -> bool:
    """Renders spans of code and escapes as CommonMark does, and looks for tags in the rest."""
    while text:
        if escaped := re.match(r"\\[!-/:-@\[-`{-~]", text):
            text = text[escaped.end() :]
        elif fence := re.match(r"`+", text):
            closing = re.search(rf"(?<!`){fence[0]}(?!`)", text[fence.end() :])
            text = text[fence.end() + (closing.end() if closing else 0) :]
        elif re.match(r"<[A-Za-z/!?]", text):
            return True
        else:
            text = text[1:]
    return False


@pytest.mark.parametrize("name", NAMES)
def test_no_html(name: str) -> None:
    for text in (escape_html(name), escape_html(f"see {name}, `x < y` and {name}")):
        assert not has_html(text), text
    assert not has_html(quote_code(name)), quote_code(name)
    for row in format_table(("a", "b"), [(quote_code(name), name)]).splitlines():
        for cell in re.split(r"(?<!\\)\|", row):
            assert not has_html(cell), cell


def test_usual_text_stays() -> None:
    assert escape_html("`f(x) -> Tensor<int>` if x < 3 and y <= 4") == (
        "`f(x) -> Tensor<int>` if x < 3 and y <= 4"
    )
    assert escape_html("in <lambda>") == "in \\<lambda>"
    assert quote_code("weight") == "`weight`"
    assert quote_code("a`b") == "`` a`b ``"


@pytest.mark.parametrize("name", NAMES)
def test_a_report_of_hostile_names(name: str) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    Net.__name__ = Net.__qualname__ = name
    program = onnx_aot.export(Net(), (torch.ones(2),), input_names=[name], output_names=["y"])
    report = program.report
    assert report is not None
    text = re.sub(r"^(```+)[a-z]*\n.*?^\1$", "", report.to_markdown(), flags=re.S | re.M)
    assert "| input" in text
    assert not any(has_html(cell) for cell in re.split(r"\n|(?<!\\)\|", text))
