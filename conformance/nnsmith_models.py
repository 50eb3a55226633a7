"""Exports models that nnsmith generates, with static and dynamic sizes; compares with PyTorch.

    python -m conformance.nnsmith_models --models 2000 --jobs 4
    python -m conformance.nnsmith_models --output conformance/results/nnsmith_models.json
    python -m conformance.nnsmith_models --first 517 --models 1

nnsmith is a generator of random models for testing compilers of neural networks. It chooses
operators, types and sizes that satisfy its own description of each operator, by means of a solver.
A number always stands for the same model. With ``--output``, a later run goes on after the models
that the file counts.

nnsmith is installed with ``python -m pip install --no-deps -r conformance/nnsmith.txt``: without
its dependencies, which are older than those of this package.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from conformance.judging import judge_export
from conformance.parts import ARTIFACTS, WARM, Work, run_cases

__all__ = ["Chunk", "Counted", "Generated", "draw", "judge", "judge_chunk"]

CHUNK = 20  # models that one process draws
JUDGE = "conformance.nnsmith_models:judge_chunk"

VARIANTS = ("static", "dynamic")

EXPLAINED = ("explained", "reported")
"""Outcomes of ``judge_export`` for results that differ, and are no failures."""

LISTED = 10
"""Number of differences with each of these outcomes that the file lists."""

METHODS = ("symbolic-cinit", "symbolic")
"""nnsmith's ways to choose sizes: random ones for the inputs, or all by the solver."""

SECONDS = 30
"""Time for the generation of one model, which ends with the operators found until then."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Models that one process draws, one after the other: ``count`` from number ``first`` on."""

    first: int
    count: int


Judged = dict[str, tuple[str, str]]
"""Outcome and description by variant; under ``drawn``, why there is no model."""


class Generated(torch.nn.Module):
    """Computes the instructions of a generated model one after the other.

    nnsmith's own module also records numbers for its search, which is not part of the model.
    """

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.layers = net.mlist
        self.inputs = list(net.input_map)
        self.outputs = list(net.output_map)
        self.steps: list[tuple[Callable[..., Any], list[str], list[str]]] = [
            (function, list(args), list(results)) for function, args, results, _ in net.instructions
        ]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Takes the tensors called ``inputs`` and returns those called ``outputs``."""
        values: dict[str, torch.Tensor] = dict(zip(self.inputs, inputs, strict=True))
        for function, args, results in self.steps:
            found = function(*(values[name] for name in args))
            found = found if isinstance(found, (list, tuple)) else [found]
            values.update(zip(results, found, strict=True))
        return tuple(values[name] for name in self.outputs)


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a model is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--models", type=int, default=40, help="number of models")
    add("--first", type=int, default=0, help="number of the first model")
    add("--jobs", type=int, default=1, help="processes")
    add("--limit", type=float, default=300.0, help="seconds for one model")
    add("--output", type=Path, help="JSON file for the counts; a later run goes on with it")
    arguments = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "0"  # in the rows: nnsmith chooses from sets
    _list_operators()  # fails here, and not in a row, if nnsmith is missing
    counted = Counted.read(arguments.output)
    numbers = range(arguments.first, arguments.first + arguments.models)
    chunks = {f"models from {chunk.first}": chunk for chunk in counted.unfinished(numbers)}
    counted.report = True
    work = Work(JUDGE, "models of nnsmith", WARM, arguments.limit)
    asked = {name: dataclasses.asdict(chunk) for name, chunk in chunks.items()}
    for name, results in run_cases(asked, work, arguments.jobs, ARTIFACTS / "nnsmith"):
        counted.add(chunks[name], results)
    sys.stdout.write(json.dumps(counted.found, indent=2) + "\n")
    sys.exit(bool(counted.found["failures"]))


class Counted:
    """Counts of all models so far, in the form of the JSON file.

    Attributes:
        found: Contents of the file. ``chunks`` lists the numbers of the first models of all chunks
            that are counted.
        report: Whether failures and progress are printed.
    """

    def __init__(self, output: Path | None = None) -> None:
        self.output = output
        self.report = False
        self.found: dict[str, Any] = {
            "torch": torch.__version__,
            "nnsmith": metadata.version("nnsmith"),
            "models": 0,
            "not generated": {},
            **{variant: {} for variant in VARIANTS},
            "refused": {},
            **{outcome: [] for outcome in EXPLAINED},
            "failures": [],
            "chunks": [],
        }

    @classmethod
    def read(cls, output: Path | None) -> Counted:
        """Reads the counts of earlier runs, if there is a file."""
        counted = cls(output)
        if output is not None and output.exists():
            counted.found.update(json.loads(output.read_text()))
        return counted

    def unfinished(self, numbers: range) -> list[Chunk]:
        """Lists the chunks of these models that are not counted yet."""
        return [
            Chunk(first, min(CHUNK, numbers.stop - first))
            for first in numbers[::CHUNK]
            if first not in self.found["chunks"]
        ]

    def add(self, chunk: Chunk, results: Sequence[Any]) -> None:
        """Adds the outcomes of a chunk; one with an ``outcome`` is of a process that has ended."""
        for number, judged in enumerate(results, chunk.first):
            if "outcome" in judged:
                self.found["models"] += 1
                self.found["failures"].append(f"{number}: {judged['outcome']}: {judged['reason']}")
            elif "drawn" in judged:
                _count(self.found["not generated"], judged["drawn"][1])
            else:
                self.found["models"] += 1
                for variant, (outcome, text) in judged.items():
                    self._add_variant(f"{number}, {variant}", variant, outcome, text)
        self.found["chunks"].append(chunk.first)
        if self.report:
            counts = ", ".join(f"{variant} {self.found[variant]}" for variant in VARIANTS)
            sys.stderr.write(f"{self.found['models']} models, {counts}\n")
        if self.output is not None:
            beside = self.output.with_suffix(".part")
            beside.write_text(json.dumps(self.found, indent=2) + "\n")
            beside.replace(self.output)

    def _add_variant(self, name: str, variant: str, outcome: str, text: str) -> None:
        _count(self.found[variant], outcome)
        if outcome == "refused":
            _count(self.found["refused"], text)
        elif outcome in EXPLAINED and len(self.found[outcome]) < LISTED:
            self.found[outcome].append(f"{name}: {text}")
        elif outcome == "wrong":
            self.found["failures"].append(f"{name}: {text}")
            if self.report:
                sys.stderr.write(f"{name}: {text}\n")


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


# --- models --------------------------------------------------------------------------------------


def draw(number: int) -> tuple[Generated, tuple[torch.Tensor, ...]]:
    """Draws a model and its inputs; the same for the same number and PYTHONHASHSEED.

    Raises:
        Exception: Whatever nnsmith raises if it finds no model.
    """
    import z3
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize.torch import TorchModelCPU

    operators = _list_operators()
    z3.z3._main_ctx = None  # a new context: the solutions of the last one depend on earlier models
    chosen = random.Random(number)
    options: dict[str, Any] = {
        "method": chosen.choice(METHODS),
        "max_nodes": chosen.randint(3, 16),
        "max_elem_per_tensor": 2**13,
        "timeout_ms": 1000 * SECONDS,
    }
    if chosen.random() < 0.5:  # without those that are undefined for some numbers
        operators = [operator for operator in operators if not operator.limit_domain]
    generated = model_gen(opset=operators, seed=number, **options)
    torch.manual_seed(number)
    net: Any = TorchModelCPU.from_gir(generated.make_concrete()).native_model
    inputs = tuple(_draw_tensor(like.shape, like.dtype.torch()) for like in net.input_map.values())
    return Generated(net).eval(), inputs


def _draw_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    numbers = 3 * torch.randn(list(shape))
    return numbers > 0 if dtype == torch.bool else numbers.to(dtype)


@functools.cache
def _list_operators() -> list[Any]:
    """Lists nnsmith's operators with the types that they accept in this release of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from nnsmith.materialize.torch import TorchModelCPU
            from nnsmith.narrow_spec import infer_topset_from_scratch
            from nnsmith.util import set_seed
        except ImportError as error:
            raise SystemExit(
                f"nnsmith cannot be imported ({error}); run: python -m pip install --no-deps -r "
                "conformance/nnsmith.txt"
            ) from error
        TorchModelCPU.add_seed_setter()
        set_seed(0)
        accepted: Mapping[str, Any] = infer_topset_from_scratch(TorchModelCPU, None)
    found = []
    for operator in TorchModelCPU.operators():
        if operator.name() in accepted:
            types = accepted[operator.name()]
            operator.in_dtypes = sorted(types.in_dtypes, key=str)
            operator.out_dtypes = sorted(types.out_dtypes, key=str)
            found.append(operator)
    return found


def judge(number: int) -> Judged:
    """Draws a model, exports it with static and with dynamic sizes, and compares both."""
    try:
        model, inputs = draw(number)
        with torch.no_grad():
            results = model(*(tensor.clone() for tensor in inputs))
    except Exception as error:
        return {"drawn": ("failed", type(error).__name__)}
    if not results:
        return {"drawn": ("failed", "no result")}
    auto = torch.export.Dim.AUTO
    dynamic = {"inputs": tuple(dict.fromkeys(range(x.dim()), auto) for x in inputs)}
    shapes = {"static": None, "dynamic": dynamic}
    return {
        variant: judge_export(
            model, inputs, {}, {"args": inputs, "dynamic_shapes": shapes[variant]}
        )
        for variant in VARIANTS
    }


def judge_chunk(chunk: Mapping[str, int], first: int) -> Iterator[Any]:
    """Judges the models of a chunk; see ``parts.Work``."""
    yield chunk["count"]
    for index in range(first, chunk["count"]):
        yield judge(chunk["first"] + index)


if __name__ == "__main__":
    main()
