"""``ops``: the supported operators, with their files and opsets."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnx_aot.cli.console import EXIT_FAILED, AsJson, errors_as_messages, print_json
from onnx_aot.errors import PACKAGE, InvalidOptionError
from onnx_aot.inspection.text import align_columns
from onnx_aot.torch_compat import overload_name, schema_of

if TYPE_CHECKING:
    from onnx_aot.ops.operator_table import Entry

__all__ = ["ops"]

_ABOVE = Path(PACKAGE).parent


def ops(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="aten.roll, aten::roll.default or a part of a name; all operators by default.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether an operator is supported. Exits with 1 if it is not."""
    from onnx_aot.ops.operator_table import entries

    table = entries()
    if name is None:
        _print_families(table, as_json)
        return
    wanted = name.replace("::", ".").removeprefix("torch.ops.")
    found = [_row_of_entry(entry) for entry in table if _is_named(entry.name, wanted)]
    known = {row["name"] for row in found}
    with errors_as_messages():
        found += [
            _row_of_target(target) for target in _of_torch(wanted) if str(target) not in known
        ]
        if not found:
            found = [_row_of_entry(entry) for entry in table if wanted in entry.name]
        if not found:
            raise InvalidOptionError(
                f"neither onnx_aot nor PyTorch has an operator {name!r}. Names are like "
                "aten.roll.default. If another package defines it, import that package. To "
                "translate it, see onnx-aot explain OA401",
                code="OA014",
            )
    if as_json:
        print_json(found)
    else:
        rows = [(r["name"], r["how"], r["where"], r["remark"]) for r in found]
        typer.echo("\n".join(align_columns(rows)))
    if not any(row["supported"] for row in found):
        raise typer.Exit(EXIT_FAILED)


def _is_named(name: str, wanted: str) -> bool:
    """True if the name matches: in full, as an overload, or without its namespace."""
    return wanted in (name, name.rpartition(".")[0]) or name.split(".")[1:2] == [wanted]


def _print_families(table: list[Entry], as_json: bool) -> None:
    counts = collections.Counter(entry.family for entry in table)
    if as_json:
        print_json([_row_of_entry(entry) for entry in table])
        return
    typer.echo("\n".join(align_columns([(family, counts[family]) for family in sorted(counts)])))
    operators = len({entry.name for entry in table})
    typer.echo(f"{operators} operators; onnx-aot ops NAME shows the file of one")


def _row_of_entry(entry: Entry) -> dict[str, Any]:
    kind = "complex numbers; " if entry.is_complex else ""
    return {
        "name": entry.name,
        "supported": True,
        "how": f"translated, opsets {entry.since} to {entry.until}",
        "where": f"{entry.path.relative_to(_ABOVE).as_posix()}:{entry.line}",
        "remark": f"{kind}{entry.limits}".removesuffix("; "),
    }


def _of_torch(wanted: str) -> list[Any]:
    """Operators of PyTorch with that name, in the table or not.

    Overloads that write to a given output are left out: no capture has them.
    """
    import torch

    from onnx_aot.ops.registry import overloads

    parts = wanted.split(".")
    if len(parts) == 1:
        parts = ["aten", *parts]
    try:
        packet = getattr(getattr(torch.ops, parts[0]), parts[1])
        found = overloads(packet)
    except AttributeError:
        return []
    if len(parts) > 2:
        return [target for target in found if overload_name(target) == parts[2]]
    return [target for target in found if not overload_name(target).endswith("out")]


def _row_of_target(target: Any) -> dict[str, Any]:
    """An operator that is not in the table."""
    from onnx_aot.ops.registry import NOT_TRANSLATED
    from onnx_aot.torch_compat import decompositions, find_python_kernel

    row = {"name": str(target), "supported": False, "where": "", "remark": ""}
    if target in NOT_TRANSLATED:
        return {**row, "how": "not translated", "remark": NOT_TRANSLATED[target]}
    if schema_of(target).is_mutable:
        remark = "replaced by the operator that returns the written values"
        return {**row, "supported": True, "how": "made functional", "remark": remark}
    if decompositions(target):
        remark = "supported if its parts are"
        return {**row, "supported": True, "how": "expanded with PyTorch's rules", "remark": remark}
    if find_python_kernel(target) is not None:
        remark = "supported if its Python function can be traced"
        return {**row, "supported": True, "how": "expanded by its function", "remark": remark}
    remark = "see onnx-aot explain OA401"
    return {**row, "how": "not translated", "remark": remark}
