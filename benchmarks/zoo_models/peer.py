"""Exports a capture with torch.onnx and compares the latency of both models."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.timing import median

__all__ = ["compare_results", "compare_with_torch", "peer_exports", "seconds_of_both"]

SPEND = 0.3  # seconds


def peer_exports(captured: Any, path: str) -> int:
    """Exports a captured program to ``path`` with torch.onnx; returns its number of nodes."""
    import onnx
    import torch

    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(captured, (), path, dynamo=True)
    return len(onnx.load(path, load_external_data=False).graph.node)


def compare_results(
    names: Sequence[str],
    expected: Sequence[Any],
    actual: Sequence[Any],
    run: Callable[[Any, Any, Any], Sequence[Any]],
    given: tuple[Any, Any, Any],
) -> list[Any]:
    """Compares outputs by the rules of ``verify=True``, in float64 where they differ.

    Args:
        names: Names of the outputs.
        expected: PyTorch's results.
        actual: Results to judge.
        run: Returns PyTorch's results for a model and its inputs.
        given: The model and its inputs, positional and by keyword.
    """
    from onnx_aot.inspection.differences import add_rounding, compare_outputs
    from onnx_aot.inspection.rounding import run_in_double

    found = compare_outputs(names, expected, actual)
    if all(difference.within for difference in found):
        return found
    exact = run_in_double(run, *given) or [None] * len(found)
    return list(map(add_rounding, found, expected, actual, exact))


def compare_with_torch(path: str, model: Any, args: Any, kwargs: Any) -> Any:
    """Compares the outputs of a file's model with PyTorch's, by the rules of ``verify=True``."""
    import torch
    from torch.utils import _pytree as pytree

    def run(model: Any, args: Any, kwargs: Any) -> list[Any]:
        with torch.no_grad():
            leaves = pytree.tree_leaves(model(*args, **kwargs))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    names, arrays = _run(path, _make_feeds(path, args, kwargs))
    actual = list(map(torch.from_numpy, arrays))
    expected = run(model, args, kwargs)
    return compare_results(names, expected, actual, run, (model, args, kwargs))


def seconds_of_both(ours: str, peer: str, args: Any, kwargs: Any) -> dict[str, float]:
    """Median seconds of both files, run alternately with one thread."""
    from benchmarks.latency import time_samples

    paths = {"ours": ours, "peer": peer}
    feeds = {way: _make_feeds(path, args, kwargs) for way, path in paths.items()}
    found = time_samples(paths, feeds, 1, SPEND)
    return {way: median(found[way, 0] + found[way, 1]) for way in paths}


def _create_session(path: str) -> Any:
    from onnx_aot.program.session import create_session

    return create_session(path)


def _run(path: str, feeds: dict[str, Any]) -> tuple[list[str], list[Any]]:
    session = _create_session(path)
    return [output.name for output in session.get_outputs()], session.run(None, feeds)


def _make_feeds(path: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Maps input names to arrays; both exporters order inputs as the pytree leaves of the call."""
    import torch
    from torch.utils import _pytree as pytree

    names = [given.name for given in _create_session(path).get_inputs()]
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return dict(zip(names, tensors, strict=True))
