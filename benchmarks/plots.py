"""Draws plots of the results into docs/plots.

matplotlib (the extra ``bench``) draws them. Every file contains a digest of its content, so that an
outdated plot is detected without drawing it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from benchmarks.results import BENCHMARKS, ROOT, read_json

__all__ = ["FOLDER", "Plot", "make_plots", "write_plots"]

FOLDER = ROOT / "docs" / "plots"


@dataclasses.dataclass(frozen=True)
class Plot:
    """The content of a plot.

    Attributes:
        title: Text above the plot.
        y_label: Label of the values.
        series: Points by label.
        x_label: Label of the first coordinates.
        by_name: First coordinates are names, in order of first occurrence.
        log: Axes of numbers are logarithmic.
        bound: Value at which a line is drawn, or None.
    """

    title: str
    y_label: str
    series: dict[str, list[tuple[Any, float]]]
    x_label: str = ""
    by_name: bool = False
    log: bool = False
    bound: float | None = 1.0

    @property
    def digest(self) -> str:
        """Hash of the content."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def make_plots() -> dict[Path, Plot]:
    """Returns the plot of every benchmark that has results and draws one, by file."""
    shown = {}
    for name in BENCHMARKS:
        results = read_json(name)
        if results is not None:
            script = importlib.import_module(f"benchmarks.{name}")
            if not hasattr(script, "plot"):
                continue
            shown[FOLDER / f"{name}.svg"] = script.plot(results["rows"])
    return shown


def write_plots() -> None:
    """Draws the plots whose content has changed."""
    FOLDER.mkdir(exist_ok=True)
    for path, plot in make_plots().items():
        if not path.exists() or plot.digest not in path.read_text(encoding="utf-8"):
            _draw(plot, path)


def _draw(plot: Plot, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": plot.digest, "font.size": 8})
    names = list(dict.fromkeys(x for points in plot.series.values() for x, _ in points))
    size = (7, 1 + 0.16 * len(names)) if plot.by_name else (6, 4)
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    for label, points in plot.series.items():
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if plot.by_name:
            axes.plot(ys, [names.index(x) for x in xs], "o", markersize=4, label=label)
        else:
            axes.plot(xs, ys, "o-", markersize=4, label=label)
    if plot.by_name:
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-1, len(names))
        axes.set_xlabel(plot.y_label)
        axes.set_xscale("log" if plot.log else "linear")
    else:
        axes.set(xlabel=plot.x_label, ylabel=plot.y_label)
        if plot.log:
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(sorted(set(names)), [f"{x:g}" for x in sorted(set(names))])
            axes.minorticks_off()
    if plot.bound is not None:
        (axes.axvline if plot.by_name else axes.axhline)(plot.bound, color="gray", linewidth=0.8)
    axes.set_title(plot.title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None, "Description": plot.digest})
    pyplot.close(figure)
