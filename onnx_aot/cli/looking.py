"""``inspect`` and ``view``: the contents of an ONNX file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnx_aot.cli.console import AsJson, errors_as_messages, escape_for_stream, print_json
from onnx_aot.inspection.text import align_columns, size_text

if TYPE_CHECKING:
    from onnx_aot.inspection.statistics import Contents, Module
    from onnx_aot.program.program import ONNXProgram

__all__ = ["inspect", "view"]

Model = Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.")]
DEEPEST = 3


def inspect(
    path: Model,
    tree: Annotated[bool, typer.Option("--tree", help="Show nodes and weights by module.")] = False,
    depth: Annotated[int, typer.Option(help="Depth of the tree.")] = DEEPEST,
    as_json: AsJson = False,
) -> None:
    """Show a model's inputs, outputs, operators, sizes and modules, without reading weights."""
    from onnx_aot.inspection.statistics import count_contents, module_tree

    with errors_as_messages():
        program = _load_program(path)
    found = count_contents(program.model)
    modules = module_tree(program.model)
    if as_json:
        print_json(_as_json(program, found, modules))
        return
    parts = [_format_overview(path, found), _format_interface(program), _format_dimensions(program)]
    parts.append(_format_modules(modules, depth) if tree else _format_operators(found))
    typer.echo(escape_for_stream("\n\n".join(filter(None, parts))))


def view(
    path: Model,
    output: Annotated[str, typer.Option("--output", "-o", help="The HTML file to write.")],
) -> None:
    """Write an HTML page that shows the graph by module and needs no network."""
    with errors_as_messages():
        written = _load_program(path).view(output)
    typer.echo(f"saved to {written}")


def _load_program(path: str) -> ONNXProgram:
    from onnx_aot.program.program import ONNXProgram

    return ONNXProgram.load(path)


def _format_overview(path: str, found: Contents) -> str:
    opsets = ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets.items()
    )
    rows = [
        ("File", f"{path}, {size_text(os.path.getsize(path))}"),
        ("Made by", found.producer or "unknown"),
        ("Opsets", f"{opsets}; IR version {found.ir_version}"),
        ("Nodes", f"{found.nodes:,}"),
        (
            "Tensors",
            f"{found.weights:,} with {found.elements:,} elements, {size_text(found.bytes)}",
        ),
    ]
    if found.dtypes:
        rows.append(("", ", ".join(f"{name} {size_text(n)}" for name, n in found.dtypes.items())))
    if found.functions:
        rows.append(("Functions", ", ".join(found.functions)))
    return "\n".join(align_columns(rows))


def _format_interface(program: ONNXProgram) -> str:
    lines = [f"  {value}" for value in program.inputs]
    return "\n".join(["Inputs", *lines, "Outputs", *(f"  {value}" for value in program.outputs)])


def _format_dimensions(program: ONNXProgram) -> str:
    written = _written_dimensions(program)
    ranges = [
        f"{name}: {limits.get('min', 0)} to {limits.get('max', 'any size')}"
        for name, limits in written.get("dimensions", {}).items()
    ]
    lines = [*ranges, *written.get("relations", ()), *written.get("conditions", ())]
    return "\n".join(["Dimensions", *(f"  {line}" for line in lines)]) if lines else ""


def _written_dimensions(program: ONNXProgram) -> dict[str, Any]:
    from onnx_aot.metadata.keys import DIMENSIONS

    found: dict[str, Any] = json.loads(program.model.graph.metadata_props.get(DIMENSIONS, "{}"))
    return found


def _format_operators(found: Contents) -> str:
    lines = [f"  {line}" for line in align_columns(list(found.operators.items()))]
    return "\n".join(["Operators", *lines]) if lines else ""


def _format_modules(root: Module, depth: int) -> str:
    rows, hidden = [("Module", "Class", "Nodes", "Elements")], 0
    for level, module in root.walk():
        if level > depth:
            hidden += 1
            continue
        name = f"{'  ' * level}{module.name or '(the model)'}"
        rows.append(
            (name, module.kind.rpartition(".")[2], str(module.nodes), f"{module.elements:,}")
        )
    text = "\n".join(align_columns(rows))
    return f"{text}\n{hidden} modules lie deeper: --depth {depth + 1}" if hidden else text


def _as_json(program: ONNXProgram, found: Contents, modules: Module) -> dict[str, Any]:
    return {
        **dataclasses.asdict(found),
        "inputs": [_describe_value(value) for value in program.inputs],
        "outputs": [_describe_value(value) for value in program.outputs],
        "dimensions": _written_dimensions(program),
        "modules": dataclasses.asdict(modules),
        "metadata": dict(program.model.metadata_props),
    }


def _describe_value(value: Any) -> dict[str, Any]:
    dtype = None if value.dtype is None else str(value.dtype).removeprefix("torch.")
    shape = None if value.shape is None else list(value.shape)
    return {"name": value.name, "dtype": dtype, "shape": shape, "role": value.role}
