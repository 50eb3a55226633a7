"""Gives mutated files to the readers: each reads them or refuses them with an error of ours.

    python -m conformance.mutated_files --trials 2000
    python -m conformance.mutated_files --output conformance/results/mutated_files.json

Models, data files, checkpoints and indexes are mutated: bytes that change, go, come or repeat, and
fields of the messages with other values. ``load``, ``inspect``, ``view``, ``verify``, ``compare``
and ``apply_weights`` read them in a child process with limits on memory and time. With
``--output``, a run adds files of other seeds to those that the JSON file counts.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import torch
from typer.testing import CliRunner

import onnx_aot
from onnx_aot.cli.application import application
from onnx_aot.errors import OnnxExporterError

SECONDS, WAITING = 60, 600
"""Seconds of the processor, and in all, after which a file counts as a failure. Other programs may
make the reader of a good file wait for longer than it computes."""

PER_SEED = 50
"""Files that one call of ``read_mutated_files`` mutates."""

MEMORY = 2 * 2**30
"""Bytes that a child may allocate beyond what it begins with."""

X = torch.ones(2, 8)

NUMBERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
TEXTS = (
    "",
    "x",
    "linear",
    "../../secret",
    "/etc/passwd",
    "\0",
    "{",
    "[" * 5000,
    "null",
    "5",
    "[]",
    '{"a": {"min": "x"}}',
    "<script>alert(1)</script>",
    "\U0001f600",
    "a" * 100_000,
    "1" * 5000,
    "__import__('os').abort()",
)


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60, help="mutated files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the files")
    parser.add_argument("--output", type=Path, help="JSON file; a later run adds to it")
    arguments = parser.parse_args()
    results = []
    if arguments.output and arguments.output.exists():
        results.append(json.loads(arguments.output.read_text()))
    parts = choose_parts(arguments.trials, arguments.seed, results)
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(read_mutated_files, *zip(*parts, strict=True)) if parts else ():
            results.append(found)
            if arguments.output:  # a run that is ended early has counts too
                text = json.dumps(merge_results(results), indent=2) + "\n"
                arguments.output.write_text(text)
    found = merge_results(results)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.exit(bool(found["failures"]))


def choose_parts(
    trials: int, seed: int, results: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Returns seeds that no result has, each with a number of files."""
    counted = {known for result in results for known in result["seeds"]}
    parts = [
        (seed * 1000 + part, min(PER_SEED, trials - first))
        for part, first in enumerate(range(0, trials, PER_SEED))
    ]
    return [(number, count) for number, count in parts if number not in counted]


# --- files ---------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """Has control flow, so that tensors lie in bodies too, and weights of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 48)
        self.second = torch.nn.Linear(48, 8)
        self.register_buffer("scale", torch.ones(48).half())

    def forward(self, x: torch.Tensor) -> Any:
        """Takes and returns ``[batch, 8]``."""
        y = self.first(x) * self.scale.float()
        y = torch.cond(y.sum() > 0, lambda t: t.relu(), lambda t: t - torch.ones(48), (y,))
        return self.second(y)


def make_files(folder: Path) -> None:
    """Writes the files that are mutated."""
    torch.manual_seed(0)
    net = Net().eval()
    program = onnx_aot.export(net, (X,), dynamic_shapes=({0: "batch"},))
    program.save(folder / "one.onnx")
    program.save(folder / "two.onnx", external_data=True)
    options: dict[str, Any] = {"external_data": "safetensors", "max_shard_size": 1000}
    program.save(folder / "shards.onnx", **options)
    torch.save(net.state_dict(), folder / "weights.pt")
    onnx_aot.export(torch.nn.Sequential(net), (X,), export_modules_as_functions=True).save(
        folder / "functions.onnx"
    )


def mutate_file(path: Path) -> str:
    """Changes a file, and returns what was changed."""
    ways: list[Callable[[Path], str]] = [_mutate_bytes]
    if path.suffix == ".onnx":
        ways += [_mutate_message] * 3
    elif path.suffix == ".json":
        ways += [_mutate_json] * 2
    elif path.suffix == ".safetensors":
        ways += [_mutate_header] * 2
    return random.choice(ways)(path)


def _mutate_bytes(path: Path) -> str:
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data) + 1)
    size = random.choice((1, 1, 2, 8, 100, 5000))
    way = random.choice(("change", "cut", "insert", "repeat", "end"))
    if way == "change":
        for _ in range(size):
            data[random.randrange(len(data))] = random.randrange(256)
    elif way == "cut":
        del data[at : at + size]
    elif way == "insert":
        data[at:at] = random.randbytes(size)
    elif way == "repeat":
        data[at:at] = data[at : at + size]
    else:
        del data[at:]
    path.write_bytes(data)
    return f"{way} {size} bytes at {at}"


def _mutate_message(path: Path) -> str:
    """Gives other values to a few fields of a model, at any depth."""
    model = onnx.load(path, load_external_data=False)
    done = []
    for _ in range(random.choice((1, 1, 2, 5))):
        message: Any = model
        places = [name for name in ("graph",) if random.random() < 0.9]
        message = getattr(message, places[0]) if places else message
        trail = "model"
        while True:
            name = random.choice([f.name for f in message.DESCRIPTOR.fields])
            field, value = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
            trail += f".{name}"
            several = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
            if field.message_type is None or (several and not len(value)):
                done.append(f"{trail} = {_change_field(message, field, value, several)}")
                break
            if several and random.random() < 0.2:
                done.append(f"{trail}: {_change_list(value)}")
                break
            message = random.choice(value) if several else value
    path.write_bytes(model.SerializeToString())
    return "; ".join(done)[:300]


def _change_list(values: Any) -> str:
    index = random.randrange(len(values))
    if random.random() < 0.5:
        del values[index]
        return f"without entry {index}"
    values.add().CopyFrom(values[index])
    return f"entry {index} twice"


def _change_field(message: Any, field: Any, value: Any, several: bool) -> str:
    if field.message_type is not None:
        value.add()
        return "an empty message"
    if field.cpp_type == field.CPPTYPE_STRING:
        text: Any = random.choice(TEXTS)
        text = text.encode() if field.type == field.TYPE_BYTES else text
    elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        text = random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    else:
        bits = 63 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 31
        least = 0 if field.cpp_type == field.CPPTYPE_UINT64 else -(2**bits)
        text = random.choice([number for number in NUMBERS if least <= number < 2**bits])
        if field.cpp_type == field.CPPTYPE_ENUM:
            text = random.choice([v.number for v in field.enum_type.values])
    if not several:
        setattr(message, field.name, text)
    elif value and random.random() < 0.7:
        value[random.randrange(len(value))] = text
    else:
        value.append(text)
    return repr(text)[:60]


def _mutate_json(path: Path) -> str:
    content = json.loads(path.read_text())
    changed = _change_entry(content)
    path.write_text(json.dumps(content))
    return changed


def _mutate_header(path: Path) -> str:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    changed = _change_entry(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return changed


def _change_entry(content: Any) -> str:
    """Gives another value to an entry of tables and lists, at any depth."""
    trail = ""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            return f"{trail} is empty"
        key = random.choice(keys)
        trail += f"[{key!r}]"
        if not isinstance(content[key], (dict, list)) or random.random() < 0.2:
            break
        content = content[key]
    content[key] = random.choice((*NUMBERS, *TEXTS, None, [], {}, [1, 2], 1.5, True))
    return f"{trail} = {content[key]!r}"[:100]


# --- readers -------------------------------------------------------------------------------------


def merge_results(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds the numbers of results of ``read_mutated_files``."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for result in results:
        for reader, outcomes in result["readers"].items():
            counts[reader].update(outcomes)
    return {
        "trials": sum(result["trials"] for result in results),
        "seeds": sorted(seed for result in results for seed in result["seeds"]),
        "readers": {reader: dict(sorted(counts[reader].items())) for reader in sorted(counts)},
        "seconds": max(result["seconds"] for result in results),
        "megabytes": max(result["megabytes"] for result in results),
        "failures": [failure for result in results for failure in result["failures"]],
    }


def read_mutated_files(seed: int, trials: int) -> dict[str, Any]:
    """Mutates files, one after the other, and lets every reader read them.

    Returns:
        Numbers of files, and of reads by reader and outcome, the seed, the largest time and memory,
        and ``failures``: what was changed, and the error that is not one of ours.
    """
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        found = _read_mutated_files(Path(folder), trials)
    return {"trials": trials, "seeds": [seed], **found}


def _read_mutated_files(folder: Path, trials: int) -> dict[str, Any]:
    source = folder / "source"
    source.mkdir()
    make_files(source)
    names = sorted(path.name for path in source.iterdir())
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures: list[dict[str, str]] = []
    longest, largest = 0.0, 0
    for trial in range(trials):
        copy = folder / "copy"
        shutil.copytree(source, copy)
        name = random.choice(names)
        changed = f"{trial}: {name}: {mutate_file(copy / name)}"
        outcomes, seconds, memory = _read_in_child(readers_of(copy, name), copy / "result")
        longest, largest = max(longest, seconds), max(largest, memory)
        for reader, (outcome, text) in outcomes.items():
            counts[reader][outcome] += 1
            if outcome == "failed":
                failures.append({"reader": reader, "changed": changed, "error": text})
                sys.stderr.write(f"{changed}\n{reader}: {text}\n\n")
        shutil.rmtree(copy)
    return {
        "readers": {reader: dict(found) for reader, found in counts.items()},
        "seconds": round(longest, 1),
        "megabytes": largest // 2**20,
        "failures": failures,
    }


def _read_in_child(
    readers: Mapping[str, Callable[[], Any]], result: Path
) -> tuple[dict[str, tuple[str, str]], float, int]:
    """Runs readers in a child.

    Returns:
        Outcomes by reader, seconds of the processor, and bytes of memory.
    """
    child = os.fork()
    if child == 0:
        try:
            _run_readers(readers, result)
        finally:
            os._exit(0)
    _, status, used = os.wait4(child, 0)
    lines = result.read_text().splitlines() if result.exists() else []
    rows = {name: found for name, *found in map(json.loads, lines)}
    (memory,) = rows.pop("memory", (None,))
    outcomes = {name: (outcome, text) for name, (outcome, text) in rows.items()}
    if memory is None:
        how = f"by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "by an exit"
        outcomes[next(name for name in readers if name not in rows)] = ("failed", f"ended {how}")
    return outcomes, used.ru_utime + used.ru_stime, (memory or 0) * 1024


def _run_readers(readers: Mapping[str, Callable[[], Any]], result: Path) -> None:
    """Runs readers with limits, and writes a line of JSON after each."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAITING)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(result, "w") as file:
        for name, read in readers.items():
            file.write(json.dumps([name, *_read(read)]) + "\n")
            file.flush()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        file.write(json.dumps(["memory", after - before]) + "\n")


def _read(read: Callable[[], Any]) -> tuple[str, str]:
    try:
        read()
    except OnnxExporterError as error:
        return "refused", str(error)[:200]
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames[-6:]))
        return "failed", f"{type(error).__name__}: {str(error)[:200]} ({places})"
    return "read", ""


def readers_of(folder: Path, name: str) -> dict[str, Callable[[], Any]]:
    """Returns the readers that a file concerns, by name."""
    if name.endswith((".pt", ".json")) or (name.endswith(".safetensors") and random.random() < 0.5):
        return {"apply_weights": lambda: _apply(folder, name)}
    kinds = {"shards": "shards.onnx", "two": "two.onnx", "functions": "functions.onnx"}
    model = next((m for k, m in kinds.items() if name.startswith(k)), "one.onnx")
    path = folder / model
    net = Net().eval()
    readers: dict[str, Callable[[], Any]] = {
        "load": lambda: onnx_aot.ONNXProgram.load(path),
        "inspect": lambda: _run_command("inspect", str(path)),
        "view": lambda: _run_command("view", str(path), "-o", str(folder / "view.html")),
        "verify": lambda: onnx_aot.verify(path, net, (X,), sizes=False),
    }
    others: dict[str, Callable[[], Any]] = {
        "inspect --tree --json": lambda: _run_command("inspect", str(path), "--tree", "--json"),
        "compare": lambda: onnx_aot.compare(path, net, (X,)),
        "save": lambda: onnx_aot.ONNXProgram.load(path).save(folder / "saved.onnx"),
    }
    chosen = random.choice(list(others))
    return {**readers, chosen: others[chosen]}


def _apply(folder: Path, name: str) -> None:
    program = onnx_aot.ONNXProgram.load(folder / "one.onnx")
    program.apply_weights(folder / name, partial=True)
    program.save(folder / "saved.onnx")


def _run_command(*arguments: str) -> None:
    """Runs a command; an exception other than an exit is what users see as a traceback."""
    done = CliRunner().invoke(application, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


if __name__ == "__main__":
    main()
