"""The requested dynamic dimensions in one uniform form, and checks against the example."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.export import Dim

from onnx_aot.errors import DynamicShapeError
from onnx_aot.pytrees.paths import leaves_of, mirror_containers
from onnx_aot.torch_compat import SIZE_TERM

__all__ = [
    "DynamicShapes",
    "RequestedDim",
    "evaluate",
    "find_static",
    "is_unlimited",
    "plain_names",
    "refuse_contradictions",
    "same_expression",
]


@dataclasses.dataclass(frozen=True)
class RequestedDim:
    """One dimension, or one number among the inputs, that was requested as dynamic.

    Attributes:
        leaf: Index of the leaf in the flattened inputs.
        path: The leaf as the user would write it, such as ``inputs[0]['x']``.
        axis: Its dimension, not negative; None for a number.
        name: The user's name for it, or None. A derived ``Dim`` such as ``2*n`` has its root's.
        derived: Whether it is a derived ``Dim``.
        may_be_static: Whether the user left the decision to the capture (``Dim.AUTO``).
        given: What the user wrote.
    """

    leaf: int
    path: str
    axis: int | None
    name: str | None
    derived: bool
    may_be_static: bool
    given: Any = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        if not self.name or self.name == self.place:
            return self.place
        shown = self.given.__name__ if self.derived else repr(self.name)
        return f"{self.place} ({shown})"

    @property
    def place(self) -> str:
        """The dimension in words, such as ``x, axis 0``."""
        return self.path if self.axis is None else f"{self.path}, axis {self.axis}"

    @property
    def size(self) -> str:
        """The size as Python, such as ``x.shape[0]``."""
        return self.path if self.axis is None else f"{self.path}.shape[{self.axis}]"

    @property
    def limits(self) -> tuple[int, float]:
        """Smallest and largest size that the user's ``Dim`` or hint allows.

        Raises:
            DynamicShapeError: A derived ``Dim`` would be negative.
        """
        try:
            limits: list[Any] = [getattr(self.given, name, None) for name in ("min", "max")]
        except AssertionError as error:  # ``n - 1`` where ``n`` may be 0
            raise DynamicShapeError(
                f"dynamic_shapes, {self.place}: {error}", code="OA202"
            ) from error
        smallest, largest = limits
        return int(smallest or 0), math.inf if is_unlimited(largest) else int(largest)

    def root_at(self, size: int) -> int | None:
        """The number ``n`` for which the dimension ``2*n`` has a size; None if it never has."""
        if not self.derived:
            return size
        offset = self.given.fn(0)
        root, rest = divmod(size - offset, self.given.fn(1) - offset)
        return root if rest == 0 and self.given.root.min <= root <= self.given.root.max else None

    def size_at(self, root: int) -> int:
        """The size of the dimension ``2*n`` for a number ``n``."""
        return int(self.given.fn(root)) if self.derived else root


@dataclasses.dataclass(frozen=True)
class DynamicShapes:
    """The request in the form that ``torch.export`` takes, and dimension by dimension.

    Attributes:
        values: The example inputs by name; ``spec`` has their structure.
        dimensions: The specification for ``torch.export`` per leaf: ``{axis: dimension}``, a hint
            for a number, or None.
        requested: The dimensions and numbers requested as dynamic.
        floats: Indices of leaves that are Python floats and become inputs of the model.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dimensions: tuple[Any, ...] = ()
    requested: tuple[RequestedDim, ...] = ()
    floats: tuple[int, ...] = ()

    @property
    def spec(self) -> dict[str, Any] | None:
        """The specification by parameter name, nested like the inputs; None if all is static."""
        if not any(self.dimensions):
            return None
        remaining = iter(self.dimensions)
        return {name: mirror_containers(value, remaining) for name, value in self.values.items()}

    def at(self, source: str) -> RequestedDim | None:
        """Returns the dimension that torch calls, for example, ``L['x'].size()[0]``."""
        match = SIZE_TERM.fullmatch(source)
        if match is None:
            return None
        axis = None if match[3] is None else int(match[3])
        path = match[1] + match[2]
        for dim in self.requested:
            # strict captures refer to leaves by number
            if dim.axis == axis and path in (dim.path, f"flat_args[{dim.leaf}]"):
                return dim
        return None

    def replace(self, others: Mapping[RequestedDim, Any]) -> DynamicShapes:
        """Returns the request with other hints for some dimensions."""
        dimensions = list(self.dimensions)
        requested = list(self.requested)
        for dim, hint in others.items():
            if dim.axis is None:
                dimensions[dim.leaf] = None if hint is Dim.STATIC else hint
            else:
                dimensions[dim.leaf] = {**dimensions[dim.leaf], dim.axis: hint}
            requested[requested.index(dim)] = dataclasses.replace(dim, may_be_static=True)
        return dataclasses.replace(self, dimensions=tuple(dimensions), requested=tuple(requested))


def find_static(dim: RequestedDim, size: int, requested: DynamicShapes) -> list[str]:
    """The dimensions of other inputs that have a size and were not requested: ``y, axis 0``."""
    asked = {(each.leaf, each.axis) for each in requested.requested}
    return [
        f"{leaf.path}, axis {axis}"
        for index, leaf in enumerate(leaves_of(requested.values))
        for axis, found in enumerate(getattr(leaf.value, "shape", ()))
        if index != dim.leaf and (index, axis) not in asked and found == size
    ]


def is_unlimited(largest: Any) -> bool:
    """True if a limit is None or infinite; torch's own infinity cannot be converted to an int."""
    return largest is None or not -1 < largest < 2**62


def refuse_contradictions(sizes: Iterable[tuple[RequestedDim, int | None]]) -> None:
    """Checks the example against the request: a name stands for one size, a ``Dim`` for a range.

    Args:
        sizes: The requested dimensions with their sizes in the example, or None if unknown.

    Raises:
        DynamicShapeError: The example contradicts a name or a ``Dim``.
    """
    known = [(dim, size) for dim, size in sizes if size is not None]
    for dim, size in known:
        smallest, largest = dim.limits
        if not dim.derived and not smallest <= size <= largest:
            upper = "no upper limit" if largest == math.inf else str(largest)
            raise DynamicShapeError(
                f"{dim} is {size} in the example inputs, and dynamic_shapes limits it to "
                f"{smallest} to {upper}. Give an example within these limits, or other limits",
                code="OA203",
            )
    first: dict[str, tuple[RequestedDim, int]] = {}
    for dim, size in known:
        if dim.name is None or dim.derived:
            continue
        other, before = first.setdefault(dim.name, (dim, size))
        if before != size:
            raise DynamicShapeError(
                f"dynamic_shapes gives the name {dim.name!r} to dimensions of different sizes: "
                f"{other.place} is {before}, {dim.place} is {size}. A name stands for one size; "
                "give them two names",
                code="OA203",
            )
    names = {name: size for name, (_, size) in first.items()}
    for dim, size in known:
        _refuse_expression(dim, size, names)


def _refuse_expression(dim: RequestedDim, size: int, names: Mapping[str, int]) -> None:
    """Raises if the example contradicts an expression such as ``2*n``, given as ``Dim`` or name."""
    written = str(getattr(dim.given, "__name__", dim.given)) if dim.given is not None else ""
    expected = evaluate(written, names)
    if expected is not None and expected != size:
        used = ", ".join(f"{name} is {names[name]}" for name in _names_in(written))
        raise DynamicShapeError(
            f"dynamic_shapes says that {dim.place} is {written}; {used} in the example inputs, and "
            f"{dim.place} is {size} instead of {expected:g}",
            code="OA203",
        )
    if dim.derived and expected is None:
        far = 2 * size + 64
        if not any(evaluate(written, {dim.name or "": root}) == size for root in range(far)):
            raise DynamicShapeError(
                f"dynamic_shapes says that {dim.place} is {written}, and it is {size} in the "
                f"example inputs, which no {dim.name} gives",
                code="OA203",
            )


def same_expression(left: str, right: str, names: Sequence[str]) -> bool:
    """True if two sums or products over the names agree when the names stand for odd sizes."""
    sizes = {name: 1009 + 106 * index for index, name in enumerate(sorted(names))}
    found = evaluate(left, sizes)
    return found is not None and found == evaluate(right, sizes)


def plain_names(requested: Iterable[RequestedDim]) -> set[str]:
    """Names of dimensions that stand for a size of their own, not for an expression."""
    return {dim.name for dim in requested if dim.name is not None and dim.name.isidentifier()}


def evaluate(written: str, names: Mapping[str, int]) -> float | None:
    """Value of a sum or product over names; None for other expressions and for a name alone.

    If the sizes in ``names`` are symbolic, so is the value.
    """
    try:
        tree = ast.parse(written, mode="eval").body
    except SyntaxError:  # names need not be Python
        return None
    return None if isinstance(tree, ast.Name) else _value(tree, names)


def _value(node: ast.expr, names: Mapping[str, int]) -> float | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _value(node.left, names), _value(node.right, names)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left * right if isinstance(node.op, ast.Mult) else None


def _names_in(written: str) -> Sequence[str]:
    nodes = ast.walk(ast.parse(written, mode="eval"))
    return sorted({node.id for node in nodes if isinstance(node, ast.Name)})
