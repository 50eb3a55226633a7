"""Measures the time until a model that cannot be exported is refused.

    python -m benchmarks.refusals [NAME ...]

Most models have six transformer layers, and their reason to fail at the end; the others ask many
questions about their data, or many times for a size. The peer is
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

ALLOWANCE = 5.0
"""Seconds in addition."""


def _branch(y: Tensor) -> Tensor:
    return y * 2 if y.sum() > 0 else y.long()


def _fix_batch(y: Tensor) -> Tensor:
    return y + torch.ones(4, 1, 1)


def _fail(y: Tensor) -> Tensor:
    raise ValueError(f"on purpose, at rank {y.dim()}")


class Encoder(nn.Module):
    """Transformer layers, and a last step that no export can take."""

    def __init__(self, last: Callable[[Tensor], Tensor], layers: int = 6) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """The steps in order; ``x`` is a float tensor ``[batch, length, 64]``."""
        return self.last(self.layers(x))


class Questions(nn.Module):
    """Two hundred sizes that depend on data, and a branch for each of them."""

    def forward(self, x: Tensor) -> Tensor:
        """Branches on counts; ``x`` is a float tensor ``[batch, length, 64]``."""
        total = x.sum()
        for i in range(200):
            n = int((x > i / 100).sum().item())
            total = total + torch.zeros(n).sum()
            if n > 3:
                total = total + 1
        return total


class Resampler(nn.Module):
    """Eight convolutions down and up, whose length is compared with a number in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(64, 64, 3, 2, 1) for _ in range(8))
        self.up = nn.ModuleList(nn.ConvTranspose1d(64, 64, 4, 2, 1) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        """Accepts one length only; ``x`` is a float tensor ``[batch, length, 64]``."""
        x = x.transpose(1, 2)
        skipped = []
        for layer in self.down:
            skipped.append(x)
            x = layer(x)
        for layer in self.up:
            x, other = layer(x), skipped.pop()
            x = x[..., : other.shape[-1]] + other[..., : x.shape[-1]]
        if x.shape[-1] != LENGTH:
            raise ValueError(f"length {x.shape[-1]}")
        return x


LENGTH = 10

MODELS: dict[str, Callable[[], nn.Module]] = {
    "branch on data": lambda: Encoder(_branch),
    "fixed batch": lambda: Encoder(_fix_batch),
    "error of the model": lambda: Encoder(_fail),
    "branch on data, 40 layers": lambda: Encoder(_branch, 40),
    "fixed batch, 40 layers": lambda: Encoder(_fix_batch, 40),
    "error of the model, 40 layers": lambda: Encoder(_fail, 40),
    "200 branches on data": Questions,
    "one length after 16 strides": Resampler,
}


def main() -> None:
    """Runs the command line of this benchmark."""
    run(BENCHMARK)


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Times both refusals, in seconds."""
    import onnx_aot

    model, x = MODELS[name]().eval(), torch.randn(4, LENGTH, 64)
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


def bound_ratio(row: dict[str, Any]) -> float:
    """Ratio of our time to the bound."""
    seconds = row["seconds"]
    return float(seconds["ours"] / (FACTOR * seconds["plain"] + ALLOWANCE))


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the mean and the largest of the ratios."""
    if not rows:
        return {}
    ratios = [ratio(row) for row in rows]
    return {
        f"time to a refusal / torch.export, geometric mean of {len(rows)} models": round(
            geomean(ratios), 3
        ),
        f"time to a refusal / ({FACTOR:g} x torch.export + {ALLOWANCE:g} s), largest": round(
            max(map(bound_ratio, rows)), 3
        ),
    }


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    body = [
        [
            row["name"],
            row["error"],
            *(row["seconds"][w] for w in ("plain", "ours")),
            number(ratio(row)),
            number(bound_ratio(row)),
        ]
        for row in rows
    ]
    head = ["Model", "Error", "torch.export, s", "onnx_aot, s", "Ratio", "Of the bound"]
    return "\n\n".join((facts(summary), table(head, body)))


BENCHMARK = Benchmark("refusals", lambda: list(MODELS), ("error of the model",), measure, summarize)

if __name__ == "__main__":
    main()
