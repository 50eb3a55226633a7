"""Judges an export: right, refused, explained by rounding, or wrong."""

from __future__ import annotations

import operator
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["judge_export", "reports_nan"]

LENGTH = 600
"""Characters of a description."""


def judge_export(
    model: Any, args: Any, kwargs: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Exports a model and compares it at the sizes of the example and at others.

    Args:
        model: A module or a captured program.
        args: Positional example inputs.
        kwargs: Keyword example inputs.
        options: Arguments of ``onnx_aot.export`` besides the model. The example inputs belong here
            too, unless the model is captured.

    Returns:
        The outcome and a description. ``right``: PyTorch's results, or as near to float64 as these.
        ``refused``: an error of onnx_aot. ``explained``: no value is wrong by itself, but a later
        operator makes rounding visible, or PyTorch's own result of the first wrong value is as far
        from float64 as the ONNX model's. ``reported``: the first wrong value is that of an operator
        on NaN, and the report of the export says that ONNX Runtime computes it differently.
        ``wrong``: anything else, unexpected errors included.
    """
    import onnx_aot

    try:
        exported = onnx_aot.export(model, **(options or {}))
    except onnx_aot.OnnxExporterError as error:
        lines = (line.strip() for line in str(error).splitlines()[:2])
        return "refused", f"{type(error).__name__}: {' '.join(lines)}"[:160]
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error} ({_list_frames(error)})"[:LENGTH]
    try:
        verification = onnx_aot.verify(exported, model, args, kwargs)
    except Exception as error:
        return "wrong", f"verify: {type(error).__name__}: {error} ({_list_frames(error)})"[:LENGTH]
    if verification.ok:
        return "right", ""
    return _explain(exported, verification, args, kwargs)


def _explain(exported: Any, verification: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """Finds the value that is wrong by itself; without one, rounding became visible."""
    from onnx_aot.inspection.size_checks import other_sizes

    samples = {
        tuple(s.sizes.items()): (s.args, s.kwargs) for s in other_sizes(exported, args, kwargs)
    }
    texts, is_reported = [], False
    for result in verification.results:
        if not result.failed:
            continue
        given = samples.get(tuple(result.sizes.items()), (args, kwargs))
        head = f"at {dict(result.sizes)}: "
        if result.runtime_refuses:
            return "wrong", f"{head}{result.runtime_refuses}"[:LENGTH]
        try:
            first = exported.compare(*given).first
        except Exception as error:
            return "wrong", f"{head}compare: {type(error).__name__}: {error}"[:LENGTH]
        output = next(d for d in result.differences if not d.right)
        text = f"{head}{output.name}: {output.details}"
        if first is not None:
            text += f"; {first.origin} {first.operator} {first.fx_node}: {first.remark}"
        if first is not None and first.origin in ("own", "runtime"):
            if reports_nan(exported, first, *given):
                is_reported = True
            elif rounding := _find_rounding(exported, first, *given):
                text = f"{rounding}; {text}"
            else:
                return "wrong", text[:LENGTH]
        texts.append(text)
    return "reported" if is_reported else "explained", "; ".join(texts)[:LENGTH]


def reports_nan(exported: Any, first: Any, args: Any, kwargs: Any) -> bool:
    """True if the report names the operator of a value, and the operator got NaN.

    Args:
        exported: The ``ONNXProgram``.
        first: The row of its comparison that goes wrong.
        args: Positional inputs.
        kwargs: Keyword inputs.
    """
    from onnx_aot.inspection.fx_run import run_captured
    from onnx_aot.ops.registry import FLOATING, REPORTED

    found: dict[Any, bool] = {}

    def see(node: Any, result: Any, by_torch: bool) -> None:
        is_floating = isinstance(result, torch.Tensor) and result.is_floating_point()
        found[node] = is_floating and bool(result.isnan().any())

    run_captured(exported, exported._bind_inputs(args, kwargs), (), see)
    node = next(node for node in found if node.name == first.fx_node)
    if node.target is operator.getitem:
        node = node.args[0]
    is_named = REPORTED.get(node.target) == FLOATING
    return is_named and any(found[source] for source in node.all_input_nodes)


def _find_rounding(exported: Any, first: Any, args: Any, kwargs: Any) -> str:
    """Describes a value whose result in PyTorch is about as far from float64 as the ONNX model's.

    All of the captured graph runs in float64, so that what rounding before the value does to it
    counts too. Otherwise, or if the graph does not run, the text is empty.
    """
    from onnx_aot.inspection.fx_run import placeholder_getters, run_captured
    from onnx_aot.inspection.rounding import measure_rounding
    from onnx_aot.torch_compat import in_double_precision, to_double

    inputs = exported._bind_inputs(args, kwargs)
    getters = placeholder_getters(exported, inputs)
    found: dict[str, Any] = {}

    def see(node: Any, result: Any, by_torch: bool) -> None:
        if node.name == first.fx_node and by_torch:
            found["expected"] = result

    class Doubled(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            given = to_double(getters[n.name]()) if n.op == "placeholder" else None
            result = super().run_node(n) if given is None else given
            if n.name == first.fx_node:
                found["exact"] = result
            return result

    try:
        run_captured(exported, inputs, (), see)
        with torch.no_grad(), in_double_precision():
            Doubled(exported.exported_program.graph_module).run(enable_io_processing=False)
        (actual,) = exported._inner_values([first.onnx_value], inputs)
        rounding = measure_rounding(found["expected"], actual, found["exact"])
    except Exception:
        return ""
    return f"{first.fx_node}: {rounding}" if rounding is not None and rounding.alike else ""


def _list_frames(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
