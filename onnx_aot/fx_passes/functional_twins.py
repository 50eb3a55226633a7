"""Finds what in-place operators write, and the functional twins that return these values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import FunctionalizationError
from onnx_aot.fx_passes.nested_graphs import operands
from onnx_aot.metadata.keys import WRITTEN
from onnx_aot.torch_compat import OpOverload, aten, overload_name, schema_of

__all__ = [
    "CHANGES_SHAPE_ONLY",
    "STATISTICS",
    "fill_diagonal",
    "functional_twin",
    "instance_norm_statistics",
    "returned_argument",
    "written_nodes",
]


# In-place operators that write no elements and only change the shape of the tensor object.
CHANGES_SHAPE_ONLY = frozenset(
    {
        aten.as_strided_.default,
        aten.detach_.default,
        aten.squeeze_.default,
        aten.squeeze_.dim,
        aten.squeeze_.dims,
        aten.swapaxes_.default,
        aten.swapdims_.default,
        aten.t_.default,
        aten.transpose_.default,
        aten.unsqueeze_.default,
    }
)

# Composite operators that write running statistics although their schema does not say so, with the
# positions of the statistics and of the flag that makes them written.
STATISTICS = {
    aten.batch_norm.default: ((3, 4), 5),
    aten.instance_norm.default: ((3, 4), 5),
}

# Twins whose name does not follow from the in-place operator's.
IRREGULAR = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.bernoulli_.Tensor: aten.bernoulli.Tensor,
    aten.normal_.default: aten.normal_functional.default,
    aten.batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten.transpose_.default: aten.transpose.int,
}


def written_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The FX nodes whose tensors a call writes, in the order of its arguments."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        positions: Any = node.kwargs.get(WRITTEN, ())
        operands_given = operands(node) if positions else None
        return [operands_given[position] for position in positions] if operands_given else []
    if node.target in STATISTICS:
        positions, flag = STATISTICS[node.target]
        found = [node.args[p] for p in positions] if node.args[flag] else []
        return [n for n in found if isinstance(n, torch.fx.Node)]
    schema = schema_of(node.target)
    if not schema.is_mutable:
        return []
    written: list[torch.fx.Node] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = node.args[position] if position < len(node.args) else None
        value = node.kwargs.get(argument.name, given)
        items = value if isinstance(value, (list, tuple)) else [value]
        written += [item for item in items if isinstance(item, torch.fx.Node)]
    return written


# Operators that return their argument itself if they drop nothing, which their schema and the fake
# tensors of torch 2.13 do not say, with the positions of the probability and of the training flag.
_DROPOUTS = {
    aten.alpha_dropout.default: (1, 2),
    aten.dropout.default: (1, 2),
    aten.feature_alpha_dropout.default: (1, 2),
    aten.feature_dropout.default: (1, 2),
}


def returned_argument(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that a call returns, as a dropout does in evaluation; None for other calls."""
    positions = _DROPOUTS.get(node.target)
    if positions is None:
        return None
    probability, training = (node.args[position] for position in positions)
    source = node.args[0]
    drops_nothing = training is False or probability == 0
    return source if drops_nothing and isinstance(source, torch.fx.Node) else None


def functional_twin(target: Any) -> OpOverload:
    """Returns ``aten.add.Tensor`` for ``aten.add_.Tensor``, and also for ``aten.add.out``.

    ``aten.__or__.Tensor`` is the twin of ``aten.__ior__.Tensor``.

    Raises:
        FunctionalizationError: The operator has no functional form with the same arguments.
    """
    if target in IRREGULAR:
        twin: OpOverload = IRREGULAR[target]
        return twin
    name = target.overloadpacket.__name__
    namespace = getattr(torch.ops, target.namespace)
    overload = overload_name(target)
    if name.endswith("_") and not name.endswith("__"):
        packet = getattr(namespace, name[:-1], None)
        if packet is not None and overload in packet.overloads():
            return getattr(packet, overload)  # type: ignore[no-any-return]
    if name.startswith("__i") and name.endswith("__"):  # x |= y
        packet = getattr(namespace, f"__{name[3:]}", None)
        if packet is not None and overload in packet.overloads():
            return getattr(packet, overload)  # type: ignore[no-any-return]
    wanted = [
        argument.name
        for argument in schema_of(target).arguments
        if not (argument.is_out if hasattr(argument, "is_out") else argument.name == "out")
    ]
    if len(wanted) < len(schema_of(target).arguments):
        for candidate in target.overloadpacket.overloads():
            twin = getattr(target.overloadpacket, candidate)
            names = [argument.name for argument in schema_of(twin).arguments]
            if not schema_of(twin).is_mutable and names[: len(wanted)] == wanted:
                return twin
    raise FunctionalizationError(
        f"{target} writes to its arguments and has no functional form: {schema_of(target)}"
    )


def instance_norm_statistics(
    call: Callable[..., torch.fx.Node], node: torch.fx.Node, args: tuple[Any, ...]
) -> list[torch.fx.Node]:
    """Emits the running mean and variance after ``instance_norm`` in training.

    Torch normalizes ``[batch * channels]`` instances with the statistics repeated per sample, and
    keeps the batch mean of the statistics updated per sample; the variance is unbiased.

    Args:
        call: ``call(target, args, kwargs, like)`` adds a node shaped like a captured node.
        node: The captured call.
        args: Its arguments with current values.
    """
    value, _, _, mean, variance, _, momentum = args[:7]
    recorded = node.args[0].meta["val"]  # type: ignore[union-attr]
    spatial = list(range(2, recorded.dim()))
    both = call(aten.var_mean.correction, (value, spatial), {"correction": 1}, None)
    per_instance = recorded.mean(spatial)
    both.meta["val"] = (per_instance, per_instance)
    updated = []
    for index, running in ((1, mean), (0, variance)):
        current = call(operator.getitem, (both, index), {}, None)
        current.meta["val"] = per_instance
        captured: Any = node.args[3 if index else 4]
        batch_mean = call(aten.mean.dim, (current, [0]), {}, captured)
        updated.append(call(aten.lerp.Scalar, (running, batch_mean, momentum), {}, captured))
    return updated


def fill_diagonal(
    call: Callable[..., torch.fx.Node],
    target: torch.fx.Node,
    matrix: torch.fx.Node,
    fill: Any,
    wrap: bool = False,
) -> torch.fx.Node:
    """Emits ``fill_diagonal_`` of a matrix, which has no functional twin.

    Args:
        call: ``call(target, args, kwargs, like)`` adds a node shaped like a captured node.
        target: The captured node of the matrix.
        matrix: The node with its current elements.
        fill: The number.
        wrap: Whether the diagonal starts again below the square part of a tall matrix.

    Raises:
        FunctionalizationError: More than two dimensions, or a wrapped diagonal of a tall matrix.
    """
    recorded = target.meta["val"]
    if recorded.dim() != 2 or wrap:
        raise FunctionalizationError(
            f"aten.fill_diagonal_ of {recorded.dim()} dimensions with wrap={wrap} cannot be "
            "expressed; two dimensions without wrap can"
        )
    diagonal = call(aten.diagonal.default, (matrix,), {}, None)
    diagonal.meta["val"] = recorded.diagonal()
    filled = call(aten.fill.Scalar, (diagonal, fill), {}, diagonal)
    return call(aten.diagonal_scatter.default, (matrix, filled), {}, target)
