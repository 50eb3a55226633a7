"""Measures the time until a model that cannot be exported is refused.

    python -m benchmarks.refusals [NAME ...]

Each model has six transformer layers, and its reason to fail at the end. The peer is
``torch.export.export`` with the same dynamic dimensions, in the same process, run alternately with
``onnx_aot.export``, which also finds the line, the reason and the fix.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.run import Benchmark, Settings, run
from benchmarks.tables import facts, number, table
from benchmarks.timing import alternate, geomean, median

FACTOR = 3.0
"""Limit for the ratio: torch's own answer, and at most two more captures."""


def _branch(y: Tensor) -> Tensor:
    return y * 2 if y.sum() > 0 else y


def _fix_batch(y: Tensor) -> Tensor:
    return y + torch.ones(4, 1, 1)


def _fail(y: Tensor) -> Tensor:
    raise ValueError(f"on purpose, at rank {y.dim()}")


REASONS: dict[str, Callable[[Tensor], Tensor]] = {
    "branch on data": _branch,
    "fixed batch": _fix_batch,
    "error of the model": _fail,
}


class Encoder(nn.Module):
    """Six transformer layers, and a last step that no export can take."""

    def __init__(self, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """The steps in order; ``x`` is a float tensor ``[batch, length, 64]``."""
        return self.last(self.layers(x))


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Times both refusals, in seconds."""
    import onnx_aot

    model, x = Encoder(REASONS[name]).eval(), torch.randn(4, 10, 64)
    shapes = ({0: Dim("batch"), 1: Dim("length")},)
    said: list[str] = []

    def ours() -> None:
        try:
            onnx_aot.export(model, (x,), dynamic_shapes=shapes)
        except onnx_aot.errors.OnnxExporterError as error:
            said.append(type(error).__name__)

    def plain() -> None:
        with contextlib.suppress(Exception):
            torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    logging.disable(logging.ERROR)  # torch logs the graph of a failed capture
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ways = {"plain": plain, "ours": ours}
        times, _ = alternate(ways, dict.fromkeys(ways, 10.0), settings.limit)
    seconds = {way: round(median(t.wall for t in runs), 3) for way, runs in times.items()}
    return {"seconds": seconds, "error": said[-1]}


def ratio(row: dict[str, Any]) -> float:
    """Ratio of our time to that of torch.export."""
    return float(row["seconds"]["ours"] / row["seconds"]["plain"])


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the mean and the largest of the ratios."""
    if not rows:
        return {}
    ratios = [ratio(row) for row in rows]
    return {
        f"time to a refusal / torch.export, geometric mean of {len(rows)} models": round(
            geomean(ratios), 3
        ),
        f"time to a refusal / torch.export, largest (limit {FACTOR:g})": round(max(ratios), 3),
    }


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            row["error"],
            *(row["seconds"][w] for w in ("plain", "ours")),
            number(ratio(row)),
        ]
        for row in rows
    ]
    head = ["Reason", "Error", "torch.export, s", "onnx_aot, s", "Ratio"]
    return "\n\n".join((facts(summary), table(head, body)))


BENCHMARK = Benchmark(
    "refusals", lambda: list(REASONS), ("error of the model",), measure, summarize
)

if __name__ == "__main__":
    main()
