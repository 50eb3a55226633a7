"""Measures exported models on a CUDA device, in float32, float16 and bfloat16.

    python -m benchmarks.gpu [NAME ...] [--files FOLDER]

It needs a CUDA device and onnxruntime-gpu. Weights are on the device while a model is exported, and
the memory that the export takes there beside them is recorded. Our file and torch.onnx's run
alternately in one process in ONNX Runtime's provider for CUDA, with inputs and outputs that stay on
the device, in batches of 1 and 8; the median of all runs is kept. Each file has two sessions, as in
``benchmarks.latency``. Products and convolutions in float32 do not round to TF32. PyTorch runs
eagerly on the same inputs. The error of each is its distance from the same module in a wider type,
by the norm: float64 beside float32, and float32 beside the others.
"""

from __future__ import annotations

import copy
import gc
import itertools
import json
import os
import sys
import tempfile
from typing import Any

from benchmarks import optimizers, ways
from benchmarks.latency import LABELS, time_sessions
from benchmarks.run import Benchmark, Settings, folder_of, run
from benchmarks.subjects import case_of
from benchmarks.tables import facts, number, table
from benchmarks.timing import geomean, median

TYPES = ("float32", "float16", "bfloat16")
BATCHES = (1, 8)
SPEND = 0.6  # seconds per type and batch
PROVIDER = "CUDAExecutionProvider"
ON_CPU = "CPUExecutionProvider"
VISION = ("resnet50", "vit_b_16", "swin_t")
DEVICE = "cuda"
EAGER = "eager"


def main() -> None:
    """Runs the command line of this benchmark."""
    import onnxruntime
    import torch

    if not torch.cuda.is_available() or PROVIDER not in onnxruntime.get_available_providers():
        sys.exit("needs a CUDA device, a torch with CUDA, and onnxruntime-gpu")
    run(BENCHMARK)


def names() -> list[str]:
    """Names of all rows."""
    from benchmarks.models.full_size import FULL_SIZE

    return [*FULL_SIZE, *VISION]


def measure(name: str, settings: Settings) -> dict[str, Any]:
    """Measures a model in each type, in this process."""
    import torch

    from benchmarks.models.full_size import FULL_SIZE

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    case = FULL_SIZE.get(name) or case_of(name)
    model = case.make()
    row: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    for kind in TYPES:
        with folder_of(f"gpu_{name}_{kind}", settings) as folder:
            measured = _measure_type(case, model.to(DEVICE, getattr(torch, kind)), folder, settings)
        row[kind] = measured
        gc.collect()
        torch.cuda.empty_cache()
    return row


def _measure_type(case: Any, model: Any, folder: str, settings: Settings) -> dict[str, Any]:
    paths = {way: os.path.join(folder, f"{way}.onnx") for way in ("ours", "peer")}
    noted = os.path.join(folder, "facts.json")
    if not os.path.exists(noted):
        with open(noted, "w", encoding="utf-8") as file:
            json.dump(_export(case, model, paths), file)
    with open(noted, encoding="utf-8") as file:
        row: dict[str, Any] = json.load(file)
    paths = {way: path for way, path in paths.items() if way not in row["failed"]}
    row |= {"errors": {}, "on_cpu": {}, "seconds": {}, "itself": {}}
    for batch in BATCHES:
        sizes = {**case.sizes[0], "batch": batch}
        args, kwargs = _move(case.inputs(**sizes), model)
        exact, eager = _run_wider(model, args, kwargs), _run_eager(model, args, kwargs)
        errors = {EAGER: _distance(eager, exact)}
        sessions: list[tuple[tuple[str, int], Any]] = []
        for number_ in (0, 1):
            for way, path in paths.items():
                try:
                    session = _Bound(path, (args, kwargs))
                    if not number_:
                        errors[way] = _distance(session.outputs(), exact)
                    sessions.append(((way, number_), session))
                except Exception as error:  # what the runtime does not take
                    row["failed"][way] = optimizers.describe(error)
        sessions.append(((EAGER, 0), _Eager(model, args, kwargs)))
        row["errors"][str(batch)] = errors
        feeds: dict[str, Any] = dict.fromkeys((*paths, EAGER))
        spend = 0.1 if settings.quick else SPEND
        found = time_sessions(sessions, feeds, spend)
        row["seconds"][str(batch)] = {
            way: median([each for key in found if key[0] == way for each in found[key]])
            for way in dict.fromkeys(way for way, _ in found)
        }
        if ("ours", 1) in found:
            row["itself"][str(batch)] = median(found["ours", 0]) / median(found["ours", 1])
        del sessions, found
    for way, path in paths.items():
        if way not in row["failed"]:
            row["on_cpu"][way] = _count_on_cpu(path, (args, kwargs))
    return row


def _export(case: Any, model: Any, paths: dict[str, str]) -> dict[str, Any]:
    """Exports with weights on the device; returns what failed, and the memory that ours took."""
    import torch

    args, kwargs = _move(case.example(), model)
    shapes = case.dynamic_shapes
    subject = ways.Subject(model, args, kwargs, shapes, ways.as_hints(shapes), "")
    failed: dict[str, str] = {}
    gc.collect()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for way, path in paths.items():
        try:
            getattr(subject, way)(path)
        except Exception as error:  # either exporter's
            failed[way] = optimizers.describe(error)
        if way == "ours":
            taken = torch.cuda.max_memory_allocated() - held
    return {"failed": failed, "weights": held, "taken": taken}


def _move(inputs: Any, model: Any) -> Any:
    """Moves inputs to the device; floating-point ones get the model's type."""
    import torch
    from torch.utils import _pytree as pytree

    kind = next(p.dtype for p in model.parameters() if p.is_floating_point())

    def move(tensor: Any) -> Any:
        return tensor.to(DEVICE, kind) if tensor.is_floating_point() else tensor.to(DEVICE)

    return pytree.tree_map_only(torch.Tensor, move, inputs)


class _Bound:
    """A session whose inputs and outputs are bound to memory of the device."""

    def __init__(self, path: str, inputs: Any, profile: str = "") -> None:
        import onnxruntime
        import torch
        from torch.utils import _pytree as pytree

        from onnx_aot import dtypes

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        providers: list[Any] = [(PROVIDER, {"use_tf32": "0"}), ON_CPU]
        self._session = onnxruntime.InferenceSession(path, options, providers=providers)
        self._binding = self._session.io_binding()
        self._inputs = inputs  # which keeps their memory
        given = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        if not inputs[0]:
            given = [inputs[1][each.name] for each in self._session.get_inputs()]
        for each, tensor in zip(self._session.get_inputs(), given, strict=True):
            kind, shape = int(dtypes.to_onnx(tensor.dtype)), list(tensor.shape)
            self._binding.bind_input(each.name, DEVICE, 0, kind, shape, tensor.data_ptr())
        for each in self._session.get_outputs():
            self._binding.bind_output(each.name, DEVICE, 0)

    def run(self, _names: None, _feeds: None) -> None:
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def end_profile(self) -> str:
        return str(self._session.end_profiling())

    def outputs(self) -> list[Any]:
        """Runs once, and returns copies of the outputs on the device."""
        import torch

        from onnx_aot.program.session import copy_on_device

        self.run(None, None)
        place = torch.device(DEVICE, 0)
        return [copy_on_device(value, place) for value in self._binding.get_outputs()]


def _run_eager(model: Any, args: Any, kwargs: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    with torch.no_grad():
        returned = pytree.tree_leaves(model(*args, **kwargs))
    return [leaf for leaf in returned if isinstance(leaf, torch.Tensor)]


def _run_wider(model: Any, args: Any, kwargs: Any) -> list[Any]:
    """Outputs of a copy of the module in the next wider type."""
    import torch

    half = next(p.dtype for p in model.parameters() if p.is_floating_point()) != torch.float32
    wide = copy.deepcopy(model).to(torch.float32 if half else torch.float64)
    return _run_eager(wide, *_move((args, kwargs), wide))


def _distance(actual: list[Any], exact: list[Any]) -> float:
    """Norm of the difference over that of the exact outputs, the largest over the outputs."""
    shares = [
        ((a.double() - e.double()).norm() / e.double().norm()).item()
        for a, e in zip(actual, exact, strict=True)
    ]
    return float(max(shares))


class _Eager:
    """Runs the module as a session of ONNX Runtime runs its file."""

    def __init__(self, model: Any, args: Any, kwargs: Any) -> None:
        self._call = lambda: model(*args, **kwargs)

    def run(self, _names: None, _feeds: None) -> None:
        import torch

        with torch.no_grad():
            self._call()
        torch.cuda.synchronize()


def _count_on_cpu(path: str, inputs: Any) -> int:
    """Number of nodes that ran on the CPU in one run, and of copies between the devices."""
    with tempfile.TemporaryDirectory() as folder:
        session = _Bound(path, inputs, profile=os.path.join(folder, "profile"))
        session.run(None, None)
        with open(session.end_profile(), encoding="utf-8") as file:
            events = json.load(file)
    seen = {
        event["name"]: event["args"]
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    }
    return sum(
        about["provider"] == ON_CPU or about["op_name"].startswith("Memcpy")
        for about in seen.values()
    )


def ratio(row: dict[str, Any], kind: str, batch: int, way: str = "peer") -> float | None:
    """Our latency over another's, or None if one was not measured."""
    seconds = row.get(kind, {}).get("seconds", {}).get(str(batch), {})
    return seconds["ours"] / seconds[way] if {"ours", way} <= seconds.keys() else None


def error_ratio(row: dict[str, Any], kind: str, batch: int, way: str) -> float | None:
    """Error of a file over that of eager PyTorch, or None if it did not run."""
    errors = row.get(kind, {}).get("errors", {}).get(str(batch), {})
    return errors[way] / errors[EAGER] if way in errors else None


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means of the ratios, and the largest memory of an export over the weights."""
    summary: dict[str, Any] = {}
    for kind in TYPES:
        for batch in BATCHES:
            for way, label in (("peer", LABELS["peer"]), (EAGER, "eager PyTorch")):
                ratios = [r for row in rows if (r := ratio(row, kind, batch, way)) is not None]
                if ratios:
                    key = f"{kind}, batch {batch}: onnx_aot / {label}"
                    summary[f"{key}, geometric mean of {len(ratios)} models"] = geomean(ratios)
    exports = [row[kind] for row in rows for kind in TYPES if kind in row]
    for way in ("ours", "peer"):
        failed = sum(way in of["failed"] for of in exports)
        summary[f"{LABELS[way]}: files that fail, of {len(exports)}"] = failed
        cells = itertools.product(rows, TYPES, BATCHES)
        worse = [error_ratio(row, kind, batch, way) for row, kind, batch in cells]
        key = f"{LABELS[way]}: error / that of eager PyTorch, largest"
        summary[key] = max((share for share in worse if share is not None), default=0.0)
    shares = [of["taken"] / of["weights"] for of in exports if "ours" not in of["failed"]]
    summary["memory of an export on the device / memory of the weights, largest"] = max(
        shares, default=0.0
    )
    return {key: round(value, 3) for key, value in summary.items()}


def render(rows: list[dict[str, Any]], summary: dict[str, Any]) -> str:
    """Returns the tables for the documentation."""
    parts = [facts(summary), f"On {rows[0]['device']}." if rows else ""]
    head = ["Model", "onnx_aot, ms", "/ torch.onnx", "/ eager", "Itself"]
    head += ["Error / eager's", "torch.onnx's", "Nodes on the CPU", "torch.onnx's", "Remark"]
    for kind, batch in itertools.product(TYPES, BATCHES):
        body = []
        for row in rows:
            of = row.get(kind)
            if of is None or not (of["seconds"] or of["failed"]):
                continue
            ours = of["seconds"].get(str(batch), {}).get("ours")
            cells = [row["name"], number(None if ours is None else 1e3 * ours, 3)]
            cells += [number(ratio(row, kind, batch, way)) for way in ("peer", EAGER)]
            cells += [number(of["itself"].get(str(batch)))]
            cells += [number(error_ratio(row, kind, batch, way)) for way in ("ours", "peer")]
            cells += [str(of["on_cpu"].get(way, "-")) for way in ("ours", "peer")]
            said = [f"{LABELS[way]}: {reason}" for way, reason in of["failed"].items()]
            body.append([*cells, "; ".join(said)])
        parts += [f"### {kind}, batch {batch}", table(head, body)]
    return "\n\n".join(part for part in parts if part)


BENCHMARK = Benchmark("gpu", names, ("bert_base",), measure, summarize)

if __name__ == "__main__":
    main()
