"""Python floats among the inputs that were asked to be inputs of the model.

``torch.export`` makes constants of floats. While the model is traced they are tensors of no
dimension, and the model gets ``.item()`` of them: a float of which the capture knows no value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.capture.inputs import Inputs
from onnx_aot.torch_compat import pytree

__all__ = ["floats_as_tensors", "with_floats"]


def floats_as_tensors(inputs: Inputs, floats: Sequence[int]) -> Inputs:
    """The inputs with tensors of double in place of some leaves: Python floats are doubles."""
    if not floats:
        return inputs
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    for index in floats:
        leaves[index] = torch.tensor(leaves[index], dtype=torch.float64)
    return Inputs(*pytree.tree_unflatten(leaves, structure))


def with_floats(
    forward: Callable[..., Any], inputs: Inputs, floats: Sequence[int]
) -> Callable[..., Any]:
    """``forward`` that takes tensors where it gets floats.

    Args:
        forward: What gets the floats.
        inputs: Example inputs, which say where the floats are.
        floats: Which leaves they are.
    """
    paths = [path for path, _ in pytree.tree_flatten_with_path((inputs.args, inputs.kwargs))[0]]
    wanted = [paths[index] for index in floats]

    def from_tensor(path: Any, leaf: Any) -> Any:
        return leaf.item() if path in wanted else leaf

    @functools.wraps(forward)
    def taking_tensors(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_with_path(from_tensor, (args, kwargs))
        return forward(*args, **kwargs)

    taking_tensors.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return taking_tensors
