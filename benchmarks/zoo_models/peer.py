"""Exports a capture with torch.onnx and compares the latency of both models."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from benchmarks.timing import median

__all__ = ["compare_with_torch", "peer_exports", "seconds_of_both"]

SPEND = 0.3  # seconds


def peer_exports(captured: Any, path: str) -> int:
    """Exports a captured program to ``path`` with torch.onnx; returns its number of nodes."""
    import onnx
    import torch

    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(captured, (), path, dynamo=True)
    return len(onnx.load(path, load_external_data=False).graph.node)


def compare_with_torch(path: str, model: Any, args: Any, kwargs: Any) -> Any:
    """Compares the outputs of a file's model with PyTorch's, by the package's tolerances."""
    import torch
    from torch.utils import _pytree as pytree

    from onnx_aot.inspection.differences import compare_outputs

    names, actual = _run(path, _make_feeds(path, args, kwargs))
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    expected = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return compare_outputs(names, expected, list(map(torch.from_numpy, actual)))


def seconds_of_both(ours: str, peer: str, args: Any, kwargs: Any) -> dict[str, float]:
    """Median seconds of both files, run alternately with one thread."""
    from benchmarks.latency import BOTH, time_samples

    paths = {"ours": ours, "peer": peer}
    feeds = {way: _make_feeds(path, args, kwargs) for way, path in paths.items()}
    found = time_samples(paths, feeds, 1, SPEND)
    return {way: median(found[way, 0] + found[way, 1]) for way in BOTH}


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
