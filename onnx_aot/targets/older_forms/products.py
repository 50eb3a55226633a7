"""Older form of Einsum, which opset 12 introduced: products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_aot.errors import MissingInOpset
from onnx_aot.targets.emitter import Emitter
from onnx_aot.targets.older_forms.rows import NoOlderFormError, Row

__all__ = ["ROWS"]

EINSUM_SINCE = 12


def _einsum(e: Emitter, node: ir.Node) -> Sequence[ir.Value]:
    """Multiplies operands from left to right, each time by MatMul with shared axes in front."""
    equation = node.attributes["equation"].as_string().replace(" ", "")
    terms, _, output = equation.partition("->")
    operands = terms.split(",")
    if "..." in output + terms:
        operands, output = _name_ellipses(node, operands, output)
    if any(len(set(letters)) < len(letters) for letters in operands):
        problem = f"Einsum {equation!r} reads a diagonal, which only Einsum of opset 12 does"
        raise NoOlderFormError(MissingInOpset("Einsum", problem, EINSUM_SINCE))
    values = list(node.inputs)
    letters, value = operands[0], values[0]
    for place in range(1, len(operands)):
        later = set("".join(operands[place + 1 :])) | set(output)
        letters, value = _multiply(e, letters, value, operands[place], values[place], later)
    letters, value = _sum_out(e, letters, value, set(output))
    return [_order(e, letters, value, output)]


def _name_ellipses(node: ir.Node, operands: Sequence[str], output: str) -> tuple[list[str], str]:
    """Names the axes of ellipses by capitals, aligned at the last one."""
    spare = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    most, named = 0, []
    for letters, value in zip(operands, node.inputs, strict=True):
        if "..." not in letters:
            named.append(letters)
            continue
        if value is None or value.shape is None:
            problem = "Einsum with an ellipsis of unknown rank is an operator of opset 12"
            raise NoOlderFormError(MissingInOpset("Einsum", problem, EINSUM_SINCE))
        count = len(value.shape) - len(letters) + 3
        most = max(most, count)
        named.append(letters.replace("...", "".join(spare[26 - count :])))
    return named, output.replace("...", "".join(spare[26 - most :]))


def _sum_out(
    e: Emitter, letters: str, value: ir.Value | None, kept: set[str]
) -> tuple[str, ir.Value | None]:
    """Sums over the axes of letters that are not kept."""
    axes = [place for place, letter in enumerate(letters) if letter not in kept]
    if not axes:
        return letters, value
    summed = e.op("ReduceSum", [value, e.ints(axes)], {"keepdims": 0})
    return "".join(letter for letter in letters if letter in kept), summed


def _multiply(
    e: Emitter,
    left: str,
    one: ir.Value | None,
    right: str,
    two: ir.Value | None,
    later: set[str],
) -> tuple[str, ir.Value]:
    """Multiplies two operands and sums over the letters that nothing needs later.

    Axes of letters that both have and that stay are in front, as batches; of the others, those of
    one operand are merged, and so are those that are summed.
    """
    left, one = _sum_out(e, left, one, later | set(right))
    right, two = _sum_out(e, right, two, later | set(left))
    assert one is not None
    assert two is not None
    shared = [letter for letter in left if letter in right]
    batch = "".join(letter for letter in shared if letter in later)
    summed = "".join(letter for letter in shared if letter not in later)
    rows = "".join(letter for letter in left if letter not in right)
    columns = "".join(letter for letter in right if letter not in left)
    sizes_first, first = _in_groups(e, left, one, (batch, rows, summed))
    sizes_second, second = _in_groups(e, right, two, (batch, summed, columns))
    front = sizes_first[0]
    if any(letter.isupper() for letter in batch):  # axes of an ellipsis are broadcast
        front = e.Max(front, sizes_second[0])
    shape = e.Concat(front, sizes_first[1], sizes_second[2], axis=0)
    return batch + rows + columns, e.Reshape(e.MatMul(first, second), shape, allowzero=1)


def _in_groups(
    e: Emitter, letters: str, value: ir.Value, groups: tuple[str, str, str]
) -> tuple[list[ir.Value], ir.Value]:
    """Orders axes by groups, and merges those of the second and of the third into one each.

    Returns:
        The sizes in each group, as vectors, and the value.
    """
    ordered = _order(e, letters, value, "".join(groups))
    sizes, parts, start = e.Shape(ordered), [], 0
    for group in groups:
        end = start + len(group)
        parts.append(e.Slice(sizes, [start], [end], [0]))
        start = end
    merged = [e.ReduceProd(e.Concat(e.ints([1]), part, axis=0), keepdims=1) for part in parts[1:]]
    return parts, e.Reshape(ordered, e.Concat(parts[0], *merged, axis=0), allowzero=1)


def _order(e: Emitter, letters: str, value: ir.Value | None, wanted: str) -> ir.Value:
    """Orders axes as wanted."""
    if letters == wanted:
        return e.Identity(value)
    turned: ir.Value = e.Transpose(value, perm=[letters.index(letter) for letter in wanted])
    return turned


ROWS = (Row("Einsum", EINSUM_SINCE, _einsum),)
