"""Fills docs/architecture.md with the result of each stage for the model on that page.

The page's Python block defines and exports the model. It is run here once per stage, and each block
below a line ``<!-- name: generated -->`` is filled in.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
import tempfile
import textwrap
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import onnx_ir as ir
import torch
import torch.fx

import onnx_aot
from docs.blocks import run_block
from onnx_aot import fx_passes

__all__ = ["make_architecture_page"]

PAGE = Path(__file__).with_name("architecture.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^(<!-- (\w+): generated -->\n\n```text\n).*?^(```)$", re.MULTILINE | re.DOTALL)
FILE = "tagger.py"
WIDTH = 98
REPEATED = ("pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes")
"""Metadata keys that repeat parts of the namespace."""


def make_architecture_page() -> str:
    """Returns the page with the current results of the stages."""
    page = PAGE.read_text(encoding="utf-8")
    code = BLOCK.search(page)
    assert code is not None, f"{PAGE} has no Python block"
    parts = _make_parts(code[1])
    written = set()

    def fill(part: re.Match[str]) -> str:
        written.add(part[2])
        return part[1] + "".join(f"{line}\n" for line in parts[part[2]]) + part[3]

    text = PART.sub(fill, page)
    assert written == set(parts), f"{PAGE} has parts {written}, not {set(parts)}"
    return text


def _make_parts(code: str) -> dict[str, list[str]]:
    """Returns the lines of each generated part of the page, by name."""
    graphs, translated = _captured_graphs(code)
    captured, *_, rewritten = (list(map(_fx_line, _list_calls(graph))) for graph in graphs)
    nodes = _onnx_lines(translated)
    optimized = _onnx_lines(_export(code, target=None))
    program = _export(code)
    legalized = _onnx_lines(program)
    batch_norm = next(node for node in program.model.graph if node.op_type == "Gemm")
    return {
        "captured": captured,
        "sizes": _dimension_lines(program.model.graph),
        "functionalized": _diff_lines(captured, rewritten),
        "translated": nodes,
        "optimized": _diff_lines(nodes, optimized),
        "legalized": _diff_lines(optimized, legalized),
        "metadata": _wrap_lines(_metadata_lines(batch_norm)),
        "saved": _describe_saved(program),
    }


# --- running the stages --------------------------------------------------------------------------


def _export(code: str, **options: Any) -> onnx_aot.ONNXProgram:
    """Runs the page's block with additional options of ``export``."""
    module = types.ModuleType("tagger")
    export = onnx_aot.export

    def export_with_options(*args: Any, **kwargs: Any) -> onnx_aot.ONNXProgram:
        return export(*args, **{**kwargs, **options})

    torch.manual_seed(0)
    sys.modules[module.__name__] = module  # the export looks up the class here
    try:
        with mock.patch.object(onnx_aot, "export", export_with_options):
            run_block(FILE, code, vars(module))
    finally:
        del sys.modules[module.__name__]
    program = vars(module)["program"]
    assert isinstance(program, onnx_aot.ONNXProgram)
    return program


def _captured_graphs(code: str) -> tuple[list[torch.fx.Graph], onnx_aot.ONNXProgram]:
    """Returns the captured graph, that after each FX pass, and the program before optimization."""
    seen: list[torch.fx.Graph] = []

    def watch(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        copy = torch.fx.Graph()
        copy.graph_copy(program.graph, {})
        seen.append(copy)
        return program

    passes = [watch]
    for fx_pass in fx_passes.FX_PASSES:
        passes += [fx_pass, watch]
    with mock.patch.object(fx_passes, "FX_PASSES", tuple(passes)):
        program = _export(code, optimize=False, target=None)
    return seen, program


# --- writing them down ---------------------------------------------------------------------------


def _list_calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _fx_line(node: torch.fx.Node) -> str:
    value = node.meta.get("val")
    kind = ""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(map(str, value.shape))
        kind = f": {str(value.dtype).removeprefix('torch.')}[{sizes}]"
    elif value is not None:
        kind = f": {type(value).__name__}"
    given = [*map(str, node.args), *(f"{name}={arg}" for name, arg in node.kwargs.items())]
    return _shorten(f"{node.name}{kind} = {node.target}({', '.join(given)})")


def _onnx_lines(program: onnx_aot.ONNXProgram) -> list[str]:
    return [_shorten(_onnx_line(node)) for node in program.model.graph]


def _onnx_line(node: ir.Node) -> str:
    given = [
        *("" if value is None else _format_input(value) for value in node.inputs),
        *(f"{name}={attribute.value}" for name, attribute in node.attributes.items()),
    ]
    made = ", ".join(_format_output(value) for value in node.outputs)
    return f"{made} = {node.op_type}({', '.join(given)})"


def _format_input(value: ir.Value) -> str:
    """Returns the name of a value, or the numbers of a constant that a translation made."""
    tensor = value.const_value
    if tensor is not None and tensor.dtype == ir.DataType.INT64 and tensor.size < 4:
        return str(tensor.numpy().tolist())
    return str(value.name)


def _format_output(value: ir.Value) -> str:
    assert value.dtype is not None
    assert value.shape is not None
    sizes = ", ".join(str(getattr(size, "value", size)) for size in value.shape)
    return f"{value.name}: {value.dtype.numpy()}[{sizes}]"


def _metadata_lines(node: ir.Node) -> Iterator[str]:
    for key, text in node.metadata_props.items():
        if key in REPEATED:
            continue
        first, *rest = text.splitlines()
        yield f"{key}: {first}"
        yield from (f"    {line}" for line in rest)


def _dimension_lines(graph: ir.Graph) -> list[str]:
    sizes = json.loads(graph.metadata_props["pkg.onnx_aot.dimensions"])
    return [f"{key}: {json.dumps(entry)}" for key, entry in sizes.items() if entry]


def _describe_saved(program: onnx_aot.ONNXProgram) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tagger.onnx")
        program.save(path)
        files = [file.name for file in Path(folder).iterdir()]
    model = program.model
    described = f"IR version {model.ir_version}, opset {model.opset_imports['']}"
    inputs = ", ".join(map(str, program.inputs))
    outputs = ", ".join(map(str, program.outputs))
    return [*files, described, f"{inputs} -> {outputs}"]


def _diff_lines(before: list[str], after: list[str]) -> list[str]:
    """Returns removed lines, marked ``-``, and added lines, marked ``+``, in order."""
    return [line for line in difflib.ndiff(before, after) if line[0] in "+-"]


def _shorten(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."


def _wrap_lines(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="    ")]
