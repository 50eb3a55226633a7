"""Judges cases of PyTorch's database, each in a row of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.other_releases import Release
from conformance.outcome import Result, judge
from conformance.parts import WARM, Work, run_cases
from conformance.samples import Case, samples_of

__all__ = ["Settings", "judge_case", "judge_cases"]

STATUS = {
    "not_captured": "right",  # not counted
    "pass": "right",
    "unsupported_operator": "refused",
    "opset_error": "refused",
    "conversion_error": "refused",
}
"""Status of a row by the outcome of a sample; of all others ``wrong``."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of every case.

    Attributes:
        exporter: One of ``exporters.EXPORTERS``.
        samples: Largest number of samples of each case.
        limit: Seconds for one sample.
        opsets: Each sample is judged at each of these; None is the exporter's default.
        release: The release of ONNX Runtime that runs the models; None is the installed one.
    """

    exporter: str = "onnx_aot"
    samples: int = 3
    limit: float = 60.0
    opsets: tuple[int | None, ...] = (None,)
    release: Release | None = None


def judge_cases(
    cases: Sequence[Case],
    settings: Settings,
    jobs: int,
    folder: str | Path | None = None,
    again: bool = False,
) -> Iterator[tuple[Case, list[Result]]]:
    """Judges the samples of all cases; yields each case with its results.

    There is a result for each sample at each opset, with the opset changing fastest. For
    ``folder`` and ``again`` see ``parts.run_cases``.
    """
    named = {f"{case.name} {case.dtype} {case.group}": case for case in cases}
    chosen = dataclasses.asdict(settings)
    asked = {name: {**chosen, **dataclasses.asdict(case)} for name, case in named.items()}
    work = Work(
        f"{__name__}:{judge_case.__name__}",
        "conformance",
        ("torch.testing._internal.common_methods_invocations", *WARM),
        settings.limit,
        columns=("dtype", "group"),
    )
    for name, results in run_cases(asked, work, jobs, folder, again):
        fields = ({k: v for k, v in one.items() if k != "status"} for one in results)
        yield named[name], [Result(**found) for found in fields]


def judge_case(settings: Mapping[str, Any], first: int) -> Iterator[Any]:
    """Judges the samples of a case; see ``parts.Work``."""
    case = Case(settings["name"], settings["dtype"], settings["group"])
    release = Release(**settings["release"]) if settings["release"] else None
    try:
        samples = samples_of(case, settings["samples"])
    except Exception as error:
        yield 1
        reason = f"no samples: {type(error).__name__}: {error}"
        yield dataclasses.asdict(Result("not_captured", reason[:200]))
        return
    judged = [(sample, opset) for sample in samples for opset in settings["opsets"]]
    yield len(judged)
    for sample, opset in judged[first:]:
        result = judge(case, sample, settings["exporter"], opset, release)
        yield dataclasses.asdict(result) | {"status": STATUS.get(result.outcome, "wrong")}
