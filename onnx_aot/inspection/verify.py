"""Runs an exported program beside the model that it came from."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnx_aot.errors import VerificationError
from onnx_aot.inspection.differences import OutputDifference, compare_outputs
from onnx_aot.torch_compat import pytree

__all__ = ["format_differences", "verify_against"]


def verify_against(
    program: Any,
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[OutputDifference]:
    """Compares the program in ONNX Runtime with the model in eager mode on the same inputs.

    The model's buffers and the inputs are as before afterwards.

    Args:
        program: An ``ONNXProgram``.
        model: What it was exported from.
        args: Positional inputs.
        kwargs: Keyword inputs.

    Returns:
        One entry per output that the model returns.

    Raises:
        VerificationError: The numbers of outputs differ.
    """
    ours_args, ours_kwargs = _copied(args, kwargs)
    theirs_args, theirs_kwargs = _copied(args, kwargs)
    with _buffers_kept(model), torch.no_grad():
        returned = model(*theirs_args, **theirs_kwargs)
    expected = [
        leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
        for leaf in pytree.tree_leaves(returned)
        if leaf is not None
    ]
    actual = program(*ours_args, **ours_kwargs)
    names = [str(value.name) for value in program.model.graph.outputs]
    if len(actual) < len(expected):
        raise VerificationError(
            f"the model returns {len(expected)} values, the ONNX model {len(actual)}"
        )
    count = len(expected)  # what comes after is mutated state
    return compare_outputs(names[:count], expected, actual[:count])


def format_differences(differences: Sequence[OutputDifference]) -> str:
    """A line per output."""
    return "\n".join(
        f"{'ok  ' if d.within else 'FAIL'} {d.name}: max abs {d.max_absolute:.3g}, "
        f"max rel {d.max_relative:.3g}, PyTorch {d.expected}, ONNX {d.actual}"
        for d in differences
    )


def _copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    def duplicate(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf)

    return pytree.tree_map(duplicate, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


@contextlib.contextmanager
def _buffers_kept(model: Any) -> Iterator[None]:
    if not isinstance(model, torch.nn.Module):
        yield
        return
    saved = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in saved:
                buffer.copy_(before)
