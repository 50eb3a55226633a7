"""Effects on messages of a release of torch without a private part that this package uses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import (
    CaptureError,
    OnnxExporterWarning,
)
from onnx_aot.torch_compat import MODULE_CALLS
from tests.capture.reuse.models import Stack
from tests.torch_compat.models import (
    MODELS,
    Example,
    function,
    rows,
)
from tests.torch_compat.without import SHAPES, absent, differs, exported, message, shows

pytestmark = pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")

SIZES = "torch.utils._sympy"
DETECTION = "torchvision.models.detection"


@shows(f"{SHAPES}:ShapeEnv._log_guard", f"{SHAPES}:ShapeEnv.var_to_sources")
@pytest.mark.parametrize(
    "name", [f"{SHAPES}:ShapeEnv._log_guard", f"{SHAPES}:ShapeEnv.var_to_sources"]
)
def test_no_line_of_a_fixed_size(name: str) -> None:
    assert "models.py" in message(MODELS["fixed"])
    with absent(name):
        shown = message(MODELS["fixed"])
    assert "fixed at 4" in shown
    assert "models.py" not in shown


@shows(f"{SHAPES}:ShapeEnv._log_real_tensor_propagation")
def test_no_line_of_what_draft_export_assumes() -> None:
    def warned() -> str:
        with pytest.warns(OnnxExporterWarning, match="draft_export") as caught:
            exported(MODELS["number of data"], strategies=("draft",))
        return str(caught[0].message)

    assert "models.py" in warned()
    with absent(f"{SHAPES}:ShapeEnv._log_real_tensor_propagation"):
        assert "models.py" not in warned()


@shows(f"{SHAPES}:ShapeEnv._make_data_dependent_error")
def test_no_line_where_draft_export_fails() -> None:
    """Draft export reports the places in another form."""

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else x.sum()

    example = Example(Fails, rows)
    assert "if x.sum() > 0" in message(example)
    with absent(f"{SHAPES}:ShapeEnv._make_data_dependent_error"):
        assert "1. if x.sum() > 0" not in message(example)


@shows(f"{SHAPES}:ShapeEnv.evaluate_expr")
def test_notes_of_checks_name_the_error_and_not_the_condition() -> None:
    """The check is captured on both sides, and the note has the line of the side that ends."""
    example = MODELS["validated"]
    program = exported(example)
    assert not differs(example, program)
    assert any("if x.min() < -10: (raises an error)" in note for note in program.report.notes)
    with absent(f"{SHAPES}:ShapeEnv.evaluate_expr"):
        program = exported(example)
        assert not differs(example, program)
        assert any("raise ValueError (raises an error)" in note for note in program.report.notes)


@shows(f"{SHAPES}:uninteresting_files")
def test_torchs_messages_name_this_package() -> None:
    def cause() -> str:
        with pytest.raises(CaptureError) as caught:
            exported(MODELS["number of data"])
        return str(caught.value.__cause__)

    assert "onnx_aot/torch_compat" not in cause()
    with absent(f"{SHAPES}:uninteresting_files"):
        assert "onnx_aot/torch_compat" in cause()


@shows(f"{SHAPES}:ShapeEnv.var_to_stack")
def test_no_call_that_gave_a_value() -> None:
    def counted(x: Tensor) -> Tensor:
        count = int(x.sum())
        return sum((x[0] for _ in range(count)), x[1])

    example = Example(function(counted), rows)
    shown = message(example)
    with absent(f"{SHAPES}:ShapeEnv.var_to_stack"):
        less = message(example)
    assert "values of its data" in less
    assert len(less) <= len(shown)


def traces(program: Any) -> list[str]:
    found = [node.metadata_props for node in program.model.graph]
    return [str(props.get("pkg.torch.onnx.stack_trace", "")) for props in found]


@shows("torch.fx.proxy:TracerBase._filter_traceback_frames")
def test_no_lines_of_functions() -> None:
    def twice(x: Tensor) -> Tensor:
        return x * 2

    assert all("in twice" in trace for trace in traces(onnx_aot.export(twice, rows(4))))
    with absent("torch.fx.proxy:TracerBase._filter_traceback_frames"):
        found = traces(onnx_aot.export(twice, rows(4)))
    assert not any("in twice" in trace for trace in found)


@shows("torch.fx.proxy:CapturedTraceback")
def test_stacks_are_looked_up_in_full() -> None:
    """It takes longer; the lines are the same."""

    def twice(x: Tensor) -> Tensor:
        return x * 2

    def symbolized() -> int:
        calls = 0

        def count(tracebacks: Any) -> Any:
            nonlocal calls
            calls += 1
            return original(tracebacks)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(torch._C._profiler, "symbolize_tracebacks", count)
            assert all("in twice" in trace for trace in traces(onnx_aot.export(twice, rows(4))))
        return calls

    original = torch._C._profiler.symbolize_tracebacks
    with absent("torch.fx.proxy:CapturedTraceback"):
        more = symbolized()
    assert symbolized() < more


_COPIES = (
    MODULE_CALLS.name,
    "torch.fx.experimental.proxy_tensor:track_tensor",
    "torch.fx.experimental.symbolic_shapes:is_accessor_node",
    "torch.utils._python_dispatch:_disable_current_modes",
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack",
    "torch.overrides:_get_current_function_mode_stack",
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager",
    "torch:_C._functions.DelayedError",
    "torch:_lazy_clone",
)


@shows(*_COPIES)
@pytest.mark.parametrize("name", _COPIES)
def test_layers_that_repeat_are_all_traced(name: str) -> None:
    def copied() -> bool:
        program = onnx_aot.export(Stack().eval(), (torch.randn(2, 8),))
        return any("4 copied" in str(note) for note in program.report.notes)

    assert copied()
    with absent(name):
        assert not copied()


@shows("torch._guards:TracingContext.extract_stack")
def test_no_line_of_strict_captures() -> None:
    strict = {"strategies": ("strict",)}
    assert "models.py" in message(MODELS["fixed"], **strict)
    with absent("torch._guards:TracingContext.extract_stack"):
        assert "fixed at 4" in message(MODELS["fixed"], **strict)


@shows("torch.export:ExportedProgram._guards_code", f"{SIZES}.printers:PythonPrinter")
def test_conditions() -> None:
    def shortened(x: Tensor) -> Tensor:
        return x[:3] * 2 if x.shape[0] > 3 else x[0]

    example = Example(function(shortened), rows, sizes=(4, 6))
    assert any("3" in condition for condition in exported(example).report.conditions)
    with absent("torch.export:ExportedProgram._guards_code"):
        assert exported(example).report.conditions == ()
    with absent(f"{SIZES}.printers:PythonPrinter"):
        assert "Eq(" in message(MODELS["number of data"]) or "fixed at 4" in message(
            MODELS["fixed"]
        )


@shows(f"{SIZES}.functions:FloorDiv.eval", f"{SIZES}.functions:simple_floordiv_gcd")
def test_quotients_are_simplified_for_a_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    simplify, simplified = sympy.simplify, []

    def count_calls(expression: Any, **options: Any) -> Any:
        simplified.append(expression)
        return simplify(expression, **options)

    def simplifies(factor: int) -> bool:  # sympy keeps results, so each call has another factor
        def count(x: Tensor) -> Tensor:
            n = x.shape[0]
            return x.new_ones((6 * (n // 5) + 3 * (n // factor)) // 9) + x.sum()

        example = Example(function(count), rows, sizes=(9, 25))
        simplified.clear()
        assert not differs(example, exported(example))
        return bool(simplified)

    monkeypatch.setattr(sympy, "simplify", count_calls)
    assert not simplifies(7)
    with absent(f"{SIZES}.functions:FloorDiv.eval"):
        assert simplifies(11)
    with absent(f"{SIZES}.functions:simple_floordiv_gcd"):
        assert simplifies(13)


@shows("torch.export:ExportedProgram._report")
def test_operators_without_fake_kernels_are_not_named() -> None:
    @torch.library.custom_op("onnx_aot_without::kernelless", mutates_args=())
    def kernelless(x: Tensor) -> Tensor:
        return x * 2

    example = Example(function(kernelless), rows)
    assert "onnx_aot_without::kernelless" in message(example)
    with absent("torch.export:ExportedProgram._report"):
        shown = message(example)
    assert "fake impl" in shown
    assert "register_fake('onnx_aot_without::kernelless')" not in shown


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.name for record in caplog.records if record.name.startswith("torch")]


@shows("loggers of torch", "torch.export._trace:print")
def test_torch_writes_about_failures(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("torch._guards")
    logger.propagate, before = True, logger.propagate
    try:
        message(MODELS["number of data"])
        assert not capsys.readouterr().out
        with absent("torch.export._trace:print", "loggers of torch"):
            message(MODELS["number of data"])
    finally:
        logger.propagate = before
    assert "def forward" in capsys.readouterr().out or _logged(caplog)


@shows("torch._logging._internal:LazyTraceHandler.emit")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_draft_export_leaves_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    draft = {"strategies": ("draft",)}
    exported(MODELS["number of data"], **draft)
    assert not list(tmp_path.rglob("*"))
    with absent("torch._logging._internal:LazyTraceHandler.emit"):
        exported(MODELS["number of data"], **draft)
    assert list(tmp_path.rglob("*"))


@shows("torch.fx.experimental.sym_node:dtrace_structured")
def test_draft_export_logs_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(
        "torch.fx.experimental.sym_node.dtrace_structured",
        lambda name, *args, **kwargs: logged.append(name),
    )
    message(MODELS["number of data"])
    assert "expression_created" not in logged
    with absent("torch.fx.experimental.sym_node:dtrace_structured"):
        message(MODELS["number of data"])
    assert "expression_created" in logged
