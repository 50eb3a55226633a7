"""Mutates captured graphs of the zoo: each is exported right or refused, never silently wrong.

    python -m conformance.mutated_graphs --trials 2000 --jobs 2
    python -m conformance.mutated_graphs --output conformance/results/mutated_graphs.json

A graph that ``torch.export`` captures, with static or dynamic sizes, gets another operator of the
same signature at a random node, or another number among its arguments. If PyTorch runs and captures
the mutated graph, it is exported, and ``verify`` compares it at the sizes of the example and at
others. ``compare`` tells a wrong value from rounding that a later operator makes visible. With
``--output``, a run adds the graphs of further captures to those that the JSON file counts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import functools
import itertools
import json
import math
import os
import random
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.judging import judge_export
from conformance.parts import ARTIFACTS, ROOT
from onnx_aot import sweep

PER_GRAPH = 10
"""Mutated graphs that one capture is used for."""

PER_RUN = 100_000
"""Seeds of captures for each seed of a run."""

SECONDS = 600.0
"""A capture with its mutated graphs that takes longer is ended, and counts as a failure."""

LAST = 200.0
"""Seconds after which a capture gets no further mutation, so that a slow one counts too."""

ONCE = 60
"""Seconds after which the first run of a mutated graph is ended."""

TRIES = 200
"""Mutations that may be invalid in a row; then a capture is given up."""

NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 8)
FLOATS = (-1.0, 0.0, 1e-5, 0.5, 1.0, 2.0, 100.0)

# How names begin of operators whose results are undefined, sparse, or packed for one machine.
LEFT_OUT = ("empty", "new_empty", "resize", "to_sparse", "to_mkldnn", "mkldnn", "fbgemm", "cudnn")

PRELOAD = ("benchmarks.zoo_models.preload",)


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if an export was silently wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="mutated graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="captures at the same time")
    parser.add_argument("--row", action="append", help="row of the zoo; may be repeated")
    parser.add_argument("--output", type=Path, help="JSON file; a later run adds to it")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.output and options.output.exists():
        found = json.loads(options.output.read_text())
    done = found.get("calls", {}).get(str(options.seed), 0)
    calls = list(choose_calls(options.trials, options.seed, options.row, done))
    swept = sweep.run(_make_plan(calls), ARTIFACTS / "mutated_graphs", jobs=options.jobs)
    found = merge_results([*([found] if found else []), *map(result_of, swept.results)])
    for text in found["failures"]:
        sys.stderr.write(f"{text}\n")
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.exit(bool(found["failures"]))


def choose_calls(
    trials: int, seed: int, rows: Sequence[str] | None = None, done: int = 0
) -> Iterator[tuple[str, int, int]]:
    """Yields arguments of ``mutate_row``: rows of the zoo in random order, until ``trials``.

    The first ``done`` calls are left out.
    """
    from benchmarks.zoo_models import ZOO

    order = list(rows or ZOO)
    random.Random(seed).shuffle(order)
    for index, row in enumerate(itertools.cycle(order)):
        if index < done:
            continue
        if trials <= 0:
            return
        yield row, seed * PER_RUN + index, min(PER_GRAPH, trials)
        trials -= PER_GRAPH


def merge_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds the outcomes of calls of ``mutate_row``; ``calls`` has their number by seed."""
    outcomes, calls, refused = (collections.Counter[str]() for _ in range(3))
    for result in results:
        outcomes.update(result["outcomes"])
        calls.update(result["calls"])
        refused.update(result["refused"])
    return {
        "calls": dict(sorted(calls.items())),
        "trials": sum(count for name, count in outcomes.items() if name != "invalid"),
        "outcomes": dict(sorted(outcomes.items())),
        "refused": dict(refused.most_common(40)),
        "explained": [text for result in results for text in result["explained"]],
        "failures": [text for result in results for text in result["failures"]],
    }


def _make_plan(calls: Iterable[tuple[str, int, int]]) -> sweep.Plan:
    rows = [
        sweep.Row(
            f"{row}, seed {seed}",
            task="conformance.mutated_graphs:measure_row",
            settings={"row": row, "seed": seed, "trials": trials},
            model=row,
            limits=sweep.Limits(seconds=SECONDS),
        )
        for row, seed, trials in calls
    ]
    return sweep.Plan(tuple(rows), PRELOAD, folder=str(ROOT), name="mutated graphs")


def measure_row(settings: Mapping[str, Any], progress: sweep.Progress) -> dict[str, Any]:
    """Mutates a row of the zoo in its own process; ``found`` is what ``mutate_row`` returns."""
    found = mutate_row(settings["row"], settings["seed"], settings["trials"])
    return {"status": "wrong" if found["failures"] else "right", "found": found}


def result_of(result: sweep.Result) -> dict[str, Any]:
    """The result of a call of ``mutate_row`` for ``merge_results``; a crash is a failure."""
    lost = [f"{result.name}: {result.reason}"]
    ended = {"outcomes": {"ended": 1}, "refused": [], "explained": [], "failures": lost}
    seed = int(result.name.rpartition(" ")[2])
    return {"calls": {str(seed // PER_RUN): 1}, **(result.metrics.get("found") or ended)}


def mutate_row(row: str, seed: int, trials: int) -> dict[str, Any]:
    """Captures a row of the zoo and mutates its graph.

    Returns:
        ``outcomes``, numbers of graphs by outcome: right, refused, explained, wrong, invalid.
        ``refused`` has the first lines of errors, ``explained`` and ``failures`` a description each
        of the mutation and the difference.
    """
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    chosen = random.Random(seed)
    result: dict[str, Any] = {"refused": [], "explained": [], "failures": []}
    outcomes: collections.Counter[str] = collections.Counter()
    captured = _capture_row(row, chosen)
    tries = TRIES * trials if captured is not None else 0
    start = time.monotonic()
    while trials and tries and time.monotonic() - start < LAST:
        tries -= 1
        program, args, kwargs, shapes = captured
        # a mutant may write to its state
        module = copy.deepcopy(program.module(check_guards=False))
        done = mutate_graph(module.graph, chosen)
        mutated = done and _capture_mutated(module, args, kwargs, shapes)
        if not mutated:
            outcomes["invalid"] += 1
            continue
        trials -= 1
        outcome, text = judge_export(mutated, args, kwargs)
        outcomes[outcome] += 1
        if outcome == "refused":
            result["refused"].append(text)
        elif outcome != "right":
            kind = "failures" if outcome == "wrong" else "explained"
            result[kind].append(f"{row}, seed {seed}: {done}: {text}")
    return {"outcomes": dict(outcomes), **result}


def _capture_row(row: str, chosen: random.Random) -> Any:
    """Captures a row; returns the program, args, kwargs and dynamic shapes, or None."""
    import torch

    from benchmarks.ways import as_hints
    from benchmarks.zoo_models import ZOO

    case = ZOO[row]
    shapes = as_hints(case.dynamic_shapes) if chosen.random() < 0.6 else None
    for dynamic in dict.fromkeys((json.dumps(shapes, default=str), "null")):
        hints = shapes if dynamic != "null" else None
        try:
            model = case.make()
            args, kwargs = case.sample(0)
            program = torch.export.export(model, args, kwargs, dynamic_shapes=hints, strict=False)
        except Exception:  # rows that plain capture refuses
            continue
        return program, args, kwargs, hints
    return None


def _capture_mutated(module: Any, args: Any, kwargs: Any, shapes: Any) -> Any:
    """Captures a mutated graph; None if PyTorch does not run or capture it, or it says nothing."""
    import torch
    from torch.utils import _pytree as pytree

    module.recompile()
    if not _survives(functools.partial(_run_eagerly, module, args, kwargs)):
        return None
    try:
        values = pytree.tree_leaves(_run_eagerly(module, args, kwargs))
        numbers = [v.double() for v in values if isinstance(v, torch.Tensor) and v.numel()]
        if not any(n.isfinite().any() for n in numbers if not n.is_complex()):
            return None
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception:
        return None


def _run_eagerly(module: Any, args: Any, kwargs: Any) -> Any:
    import torch

    with torch.no_grad():
        return module(*args, **kwargs)


def _survives(function: Callable[[], object]) -> bool:
    """True if a call raises or returns; False if it crashes or hangs, in a copy of this process.

    PyTorch's kernels crash for some arguments that no wrapper of Python checks.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(ONCE)  # ends the process
        with contextlib.suppress(BaseException):
            function()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- mutations -----------------------------------------------------------------------------------


def mutate_graph(graph: Any, chosen: random.Random) -> str:
    """Changes a random node of a graph of ATen operators.

    Returns:
        What was changed, or an empty string if nothing was found to change.
    """
    import torch

    nodes = [n for n in graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    node = chosen.choice(nodes)
    others = find_alike(node)
    if others and chosen.random() < 0.6:
        before, node.target = node.target, chosen.choice(others)
        return f"{node.name}: {before} is {node.target}"
    return _change_number(node, chosen)


def find_alike(node: Any) -> list[Any]:
    """Finds the other operators of ATen that take a node's arguments, without side effects."""
    schema = node.target._schema
    given = {a.name: _type_of(a) for a in schema.arguments if a.name in node.kwargs}
    positional = tuple(map(_type_of, schema.arguments[: len(node.args)]))
    returned = tuple(str(r.type) for r in schema.returns)
    found = _find_accepting(positional, tuple(given.items()), returned)
    return [operator for operator in found if operator is not node.target]


@functools.cache
def _find_accepting(
    positional: tuple[str, ...], named: tuple[tuple[str, str], ...], returned: tuple[str, ...]
) -> list[Any]:
    return [
        operator
        for operator in _list_operators()
        if tuple(str(r.type) for r in operator._schema.returns) == returned
        and _accepts(operator._schema.arguments, positional, dict(named))
    ]


def _accepts(arguments: Any, positional: Sequence[str], named: Mapping[str, str]) -> bool:
    """True if arguments of these types are all that a schema needs."""
    plain = [_type_of(a) for a in arguments if not a.kwarg_only]
    if tuple(plain[: len(positional)]) != tuple(positional):
        return False
    rest = arguments[len(positional) :]
    types = {a.name: _type_of(a) for a in rest}
    needed = {a.name for a in rest if not a.has_default_value()}
    return named.items() <= types.items() and needed <= named.keys()


def _type_of(argument: Any) -> str:
    """Returns a type; ``None`` is among the arguments that PyTorch itself may refuse."""
    return re.sub(r"^Optional\[(.*)\]$", r"\1", str(argument.type))


@functools.cache
def _list_operators() -> list[Any]:
    """Lists the functional operators of ATen whose results are defined and dense."""
    import torch

    found = []
    for name in sorted(_listed_names()):
        packet: Any = getattr(torch.ops.aten, name, None)
        left_out = name.startswith("_") or name.startswith(LEFT_OUT)
        if left_out or not hasattr(packet, "overloads"):
            continue
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        found += [o for o in overloads if not o._schema.is_mutable and not _is_random(o)]
    return found


def _is_random(operator: Any) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in operator.tags


def _listed_names() -> set[str]:
    """Names of the registered operators; ``dir(torch.ops.aten)`` has those that were used."""
    import torch

    names = (name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


def _change_number(node: Any, chosen: random.Random) -> str:
    """Changes a number, or a flag, among a node's arguments, those in lists included."""
    import torch.utils._pytree as pytree

    leaves, spec = pytree.tree_flatten((list(node.args), dict(node.kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (bool, int, float))]
    if not places:
        return ""
    place = chosen.choice(places)
    before = leaves[place]
    if isinstance(before, bool):
        leaves[place] = not before
    elif isinstance(before, int):
        leaves[place] = chosen.choice((*NUMBERS, before + 1, before - 1, 2 * before))
    else:
        leaves[place] = chosen.choice((*FLOATS, -before, 2 * before, math.sqrt(abs(before))))
    if leaves[place] == before:
        return ""
    args, node.kwargs = pytree.tree_unflatten(leaves, spec)
    node.args = tuple(args)
    return f"{node.name}: {node.target} has {leaves[place]!r} instead of {before!r}"


if __name__ == "__main__":
    main()
