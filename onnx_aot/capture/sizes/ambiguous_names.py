"""Refuses dimension names that the ONNX model would read as a number or an expression."""

from __future__ import annotations

import re
from collections.abc import Iterable

from onnx_aot.capture.sizes.dimension_requests import RequestedDim, plain_names, same_expression
from onnx_aot.errors import DynamicShapeError

__all__ = ["refuse_ambiguous_names"]

# Words, optionally joined by single spaces, dots, hyphens or colons; not a number.
NAME = re.compile(r"(?!\d+$)\w+(?:[ .:-]\w+)*")
WORDS = frozenset({"and", "else", "if", "not", "or"})


def refuse_ambiguous_names(requested: Iterable[RequestedDim]) -> None:
    """Checks that no name looks like a number or an expression, which stand for sizes themselves.

    ``batch``, ``batch size``, ``seq-len`` and ``1d`` are names; ``n + 1`` and ``3`` are not. But
    ``past + seq`` is accepted as an expression if ``past`` and ``seq`` are dimensions of the
    inputs.

    Raises:
        DynamicShapeError: A name looks like a number or an expression.
    """
    requested = tuple(requested)
    names = sorted(plain_names(requested))
    for dim in requested:
        name = dim.name
        if (
            name is None
            or name == dim.place
            or (NAME.fullmatch(name) and WORDS.isdisjoint(name.split(" ")))
            or (not name.isdigit() and same_expression(name, name, names))
        ):
            continue
        raise DynamicShapeError(
            f"dynamic_shapes calls {dim.place} {name!r}, which the ONNX model would have for a "
            "number or an expression. A name is made of letters, digits and underscores, with "
            "single spaces, dots or hyphens between. For a multiple or sum of another dimension "
            "pass torch.export.Dim, as in {0: 2*n} with n = Dim('n')",
            code="OA204",
        )
