"""Exports of many models: each in a process of its own, with results that are kept and compared.

Read ``plan`` first, which makes the rows; ``runner`` gives those that have to run to an engine,
``engine_local`` or ``engine_ray``; ``host`` runs each in a forked process, where ``worker`` calls
its task, by default that of ``export_task``; ``results`` keeps what came of it, and ``page``,
``difference`` and ``summary`` show it.
"""

from __future__ import annotations

from onnx_aot.sweep.difference import Difference, compare_sweeps
from onnx_aot.sweep.plan import Plan, load_plan
from onnx_aot.sweep.results import Result, Results
from onnx_aot.sweep.rows import Limits, Row
from onnx_aot.sweep.runner import Sweep, run
from onnx_aot.sweep.worker import Progress, repeat_row

__all__ = [
    "Difference",
    "Limits",
    "Plan",
    "Progress",
    "Result",
    "Results",
    "Row",
    "Sweep",
    "compare_sweeps",
    "load_plan",
    "repeat_row",
    "run",
]
