"""Runs one file in one client, in a process of its own, and judges the outputs."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.clients.inside.exchange import ANSWER, load_arrays
from benchmarks.clients.prepare import EXPECTED
from benchmarks.clients.table import FOLDER, Client
from onnx_aot.inspection.differences import compare_outputs

__all__ = ["STAGES", "judge_cell"]

STAGES = ("missing", "no file", "not loaded", "unchanged", "not run", "wrong", "one size", "right")
"""Outcomes of a cell, from the worst to the best. ``missing``: the client is not installed;
``no file``: the exporter refuses the model; ``unchanged``: the tool makes none of its nodes;
``one size``: right at the size of the example, and refused at the other one."""

SHOWN = 280


def judge_cell(client: Client, prepared: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Runs a file in a client.

    Args:
        client: The client or tool.
        prepared: The file's entry of ``prepare.prepare_model``.
        limit: Seconds after which the process is killed.

    Returns:
        ``stage``, one of ``STAGES``, and ``reason``, which is empty if the stage is ``right``.
        Tools that do not keep every bit also have ``error``, and those that make nodes ``made``.
    """
    if not client.interpreter.exists():
        return _cell("missing", f"no {client.interpreter.as_posix()}")
    if "reason" in prepared:
        return _cell("no file", prepared["reason"])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "case")
        shutil.copytree(prepared["folder"], folder)
        ended = _run_process(_command(client, folder), folder, limit)
        path = folder / ANSWER
        if not path.exists():
            return _cell("not loaded", ended.replace(f"{folder}{os.sep}", ""))
        text = path.read_text(encoding="utf-8").replace(f"{folder}{os.sep}", "")
        expected = torch.load(Path(prepared["folder"]).parent / EXPECTED)
        return _judge(client, json.loads(text), expected, folder, ended)


def _cell(stage: str, reason: str, **more: Any) -> dict[str, Any]:
    text = " ".join(reason.split())
    if len(text) > SHOWN:  # a long path or signature is in the middle
        text = f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
    return {"stage": stage, "reason": text, **more}


def _command(client: Client, folder: Path) -> list[str]:
    path, inside = str(folder / "model.onnx"), FOLDER / "inside"
    interpreter = str(client.interpreter.absolute())
    if client.kind == "node":
        modules = client.interpreter.absolute().parent.parent
        program = str(inside / "run_node.mjs")
        return ["node", program, client.key, str(modules), path, str(folder)]
    program = "apply_tool.py" if client.kind == "tool" else "run_client.py"
    return [interpreter, "-s", str(inside / program), client.key, path, str(folder)]


def _run_process(command: Sequence[str], folder: Path, limit: float) -> str:
    """Runs a command; returns why it did not end as it should, or an empty string."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {"OMP_NUM_THREADS": "1", "DEV": "CPU", "CC": str(FOLDER / "inside" / "zig_cc.sh")}
    variables |= {"TINYGRAD_PYTHON": command[0], "OPENCV_LOG_LEVEL": "SILENT"}
    with (folder / "printed").open("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,  # some tools write files beside themselves
            env=variables,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"takes longer than {limit:g} s"
        printed.seek(0)
        lines = [line for line in printed.read().splitlines() if line.strip()]
    if code < 0:
        return f"the process crashed: {signal.Signals(-code).name}"
    return f"exit code {code}: {lines[-1] if lines else ''}" if code else ""


def _judge(
    client: Client, answer: Mapping[str, Any], expected: Any, folder: Path, ended: str
) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if "made" in answer and client.makes:
        more["made"] = {key: count for key, count in answer["made"].items() if count}
    if not answer["loaded"]:
        return _cell("not loaded", answer.get("reason") or ended, **more)
    if client.makes and not more["made"]:
        return _cell("unchanged", "the tool makes none of its nodes", **more)
    reasons: list[str] = []
    for index, tensors in enumerate(expected):
        size = answer["sizes"][index] if index < len(answer["sizes"]) else {"reason": ended}
        if "reason" in size:
            reasons.append(size["reason"])
            continue
        actual = [torch.from_numpy(array.copy()) for array in load_arrays(folder, size["outputs"])]
        if client.error:
            error = _relative_error(tensors, actual)
            more["error"] = max(more.get("error", 0.0), round(error, 5))
            wrong = "" if error <= client.error else f"off by {error:.3g} of the norm"
        else:
            wrong = _describe_wrong(tensors, actual)
        if wrong:
            return _cell("wrong", f"size {index + 1}: {wrong}", **more)
        reasons.append("")
    if reasons[0]:
        return _cell("not run", reasons[0], **more)
    if any(reasons):
        return _cell("one size", next(filter(None, reasons)), **more)
    return _cell("right", "", **more)


def _describe_wrong(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> str:
    """Describes the first output that is not within its tolerance."""
    if len(expected) != len(actual):
        return f"{len(actual)} outputs instead of {len(expected)}"
    names = [f"output {index}" for index in range(len(expected))]
    for found in compare_outputs(names, expected, actual):
        if not found.within:
            return f"{found.name}: {found.remark}"
    return ""


def _relative_error(expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> float:
    """The largest norm of a difference over the norm of what was expected; infinite for NaN."""
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in actual]:
        return float("inf")
    errors = [0.0]
    for one, other in zip(expected, actual, strict=True):
        if one.is_floating_point():
            norm = float(one.double().norm())
            errors.append(float((one.double() - other.double()).norm()) / max(norm, 1e-30))
    return float("inf") if any(map(math.isnan, errors)) else max(errors)
