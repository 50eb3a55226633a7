"""A sweep in a few lines of Markdown, as a comment on a pull request."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from onnx_aot.sweep.difference import Difference
from onnx_aot.sweep.results import Result
from onnx_aot.sweep.rows import RIGHT, STATUSES, as_text, first_line

__all__ = ["count_by_option", "summarize"]

SHOWN = 50  # rows that are not right
LONGEST = 200  # characters of a reason


def count_by_option(results: Sequence[Result]) -> dict[tuple[str, str], dict[str, int]]:
    """Number of rows by status for each value of an option that has several."""
    values: dict[str, dict[str, collections.Counter[str]]] = {}
    for result in results:
        for option, value in result.options.items():
            counts = values.setdefault(option, {}).setdefault(as_text(value), collections.Counter())
            counts[result.status] += 1
    return {
        (option, value): dict(counts)
        for option, found in values.items()
        if len(found) > 1
        for value, counts in found.items()
    }


def summarize(results: Sequence[Result], difference: Difference | None = None) -> str:
    """Returns counts, the rows that are not right, and what changed."""
    counts = collections.Counter(result.status for result in results)
    statuses = [status for status in STATUSES if counts[status]]
    lines = [f"**{counts[RIGHT]} of {len(results)} rows are right.**", ""]
    lines += [f"| | {' | '.join(statuses)} |", f"| --- |{' ---: |' * len(statuses)}"]
    lines.append(f"| all | {' | '.join(str(counts[status]) for status in statuses)} |")
    for (option, value), found in count_by_option(results).items():
        cells = " | ".join(str(found.get(status, 0)) for status in statuses)
        lines.append(f"| {option} {value} | {cells} |")
    wrong = [result for result in results if result.status != RIGHT]
    if wrong:
        lines += ["", "<details><summary>Rows that are not right</summary>", ""]
        lines += [f"- `{r.name}`: {r.status}, {_reason(r)}" for r in wrong[:SHOWN]]
        if len(wrong) > SHOWN:
            lines.append(f"- and {len(wrong) - SHOWN} more")
        lines += ["", "</details>"]
    if difference is not None and difference.compared:
        lines += ["", "## Since the sweep before", "", difference.to_markdown()]
    return "\n".join(lines) + "\n"


def _reason(result: Result) -> str:
    text = first_line(result.reason).replace("<", "&lt;")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
