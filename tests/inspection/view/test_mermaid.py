"""Flowcharts: levels, labels and values with many readers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from docs.blocks import run_block
from onnx_aot import ONNXProgram
from onnx_aot.errors import InvalidOptionError
from tests.inspection.view import models

STATEMENT = re.compile(
    r"""\s*(?:flowchart\ TD|end|subgraph\ n\d+\["[^"]*"\]|n\d+\(\["[^"]*"\]\)|n\d+\["[^"]*"\]
    |n\d+\ -->\|"[^"]*"\|\ n\d+)""",
    re.VERBOSE,
)


def test_modules_are_boxes() -> None:
    assert models.net().to_mermaid() == (
        "flowchart TD\n"
        '    n1(["x"])\n'
        '    n2["Exp"]\n'
        '    n3["first<br/>Block"]\n'
        '    n8["second<br/>Block"]\n'
        '    n13["Tanh"]\n'
        '    n14(["tanh"])\n'
        '    n1 -->|"float32[rows, 4]"| n2\n'
        '    n2 -->|"float32[rows, 4]"| n3\n'
        '    n3 -->|"float32[rows, 4]"| n8\n'
        '    n8 -->|"float32[rows, 4]"| n13\n'
        '    n13 -->|"float32[rows, 4]"| n14\n'
    )


def test_deeper_they_are_subgraphs() -> None:
    text = models.net().to_mermaid(depth=2)
    assert '    subgraph n3["first Block"]\n        n4["Gemm<br/>up"]\n' in text
    assert text.count("subgraph") == text.count("    end\n") == 2
    assert '    n2 -->|"float32[rows, 4]"| n7' in text
    assert models.net().to_mermaid(depth=9) == text


def test_bodies_are_a_level_too() -> None:
    assert "subgraph" not in models.branch().to_mermaid()
    assert models.branch().to_mermaid(depth=3).count("subgraph") == 3


def test_names_cannot_end_a_label() -> None:
    text = models.named().to_mermaid(depth=3)
    assert all(STATEMENT.fullmatch(line) for line in text.splitlines())
    assert text.isascii()
    assert "#60;/script#62;" in text


def test_parts_of_many_children_are_no_level() -> None:
    text = models.chain(300).to_mermaid()
    assert text.count('["Relu"]') == 300
    assert text.count("-->") == 301


def test_a_value_that_goes_to_many_boxes_has_one_line() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [3])
    nodes = [ir.node("Relu", [x]) for _ in range(8)]
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph([x], outputs, nodes=nodes, opset_imports={"": 20}, name="fan")
    text = ONNXProgram(ir.Model(graph, ir_version=10)).to_mermaid()
    assert text.count("n1 -->") == 1
    assert "float32[3], and to 7 more" in text


@pytest.mark.parametrize("depth", [0, -1, True, 1.5, "1"])
def test_depths_that_are_none(depth: object) -> None:
    with pytest.raises(InvalidOptionError, match="depth="):
        models.chain(1).to_mermaid(depth)  # type: ignore[arg-type]


def test_the_chart_on_the_page_is_what_its_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[3] / "docs" / "view.md"
    blocks = re.findall(r"^```(python|mermaid)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "view"}
    printed = "".join(
        run_block("view.md", code, names) for kind, code in blocks if kind == "python"
    )
    assert [code for kind, code in blocks if kind == "mermaid"] == [printed]
