"""Makes Python floats inputs of the ONNX model, where the user asks for it.

``torch.export`` turns floats into constants. So while the model is traced they are 0-d tensors, and
the model gets their ``.item()``: a float whose value the capture does not know.
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
    """Replaces some leaves by float64 tensors, since Python floats are doubles."""
    if not floats:
        return inputs
    leaves, structure = pytree.tree_flatten((inputs.args, inputs.kwargs))
    for index in floats:
        leaves[index] = torch.tensor(leaves[index], dtype=torch.float64)
    return Inputs(*pytree.tree_unflatten(leaves, structure))


def with_floats(
    forward: Callable[..., Any], inputs: Inputs, floats: Sequence[int]
) -> Callable[..., Any]:
    """Wraps ``forward`` so that it takes tensors in place of floats.

    Args:
        forward: The function that gets the floats.
        inputs: Example inputs, which show where the floats are.
        floats: Indices of the leaves that are floats.
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
