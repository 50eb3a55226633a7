"""Exports interrupted at random points leave torch and the model unchanged."""

from __future__ import annotations

import contextlib
import copy
import logging
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError, OnnxExporterError
from onnx_aot.torch_compat import FakeTensor, hidden
from onnx_aot.torch_compat.interrupts import interrupts_deferred, may_interrupt
from tests.torch_compat.state import everything
from tests.torch_compat.without import shows

PACKAGE = str(Path(onnx_aot.__file__).parent)
# Functions of these modules are called from torch's C++ code, which crashes if they raise.
CALLED_BY_TORCH = ("torch_compat", "module_state", "patches")


class Model(torch.nn.Module):
    """A model that modifies itself and contains cases of several rows of the table."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.LSTM(3, 4)
        self.linear = torch.nn.Linear(4, 2)
        self.calls = 0
        self.register_buffer("factor", torch.tensor(2), persistent=False)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        y = self.linear(self.recurrent(x)[0])
        return {"rows": y[: len(x)], "sum": y.sum(0).relu() * self.factor}


class Injection:
    """Counts calls of Python functions, and raises an error in one of them.

    KeyboardInterrupt arrives as a signal, at any call; other errors are raised where the model or
    this package would raise them.
    """

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        self.calls, self.at, self.error = 0, at, error

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (self._is_signal() or self._may_raise(frame.f_code.co_filename)):
            return
        self.calls += 1
        if self.calls == self.at:
            sys.setprofile(None)
            if self._is_signal():
                signal.raise_signal(signal.SIGINT)
            elif self.error is not None:
                raise self.error

    def _is_signal(self) -> bool:
        return isinstance(self.error, KeyboardInterrupt)

    @staticmethod
    def _may_raise(file: str) -> bool:
        ours = file.startswith(PACKAGE) and not any(part in file for part in CALLED_BY_TORCH)
        return ours or file == __file__

    def __enter__(self) -> Injection:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def _export(model: torch.nn.Module) -> onnx_aot.ONNXProgram:
    x = torch.linspace(-1, 1, 30).reshape(5, 2, 3)
    return onnx_aot.export(model, (x,), dynamic_shapes=({0: "time", 1: "batch"},))


def _assert_right(program: onnx_aot.ONNXProgram, model: Model) -> None:
    x = torch.randn(7, 3, 3)
    with torch.no_grad():
        expected = copy.deepcopy(model)(x)  # counts its calls
    torch.testing.assert_close(list(program(x)), list(expected.values()), rtol=1e-5, atol=1e-5)


def _counted(model: Model, error: BaseException) -> int:
    """Returns the number of points at which the error can be raised."""
    with Injection(error=error) as injection:
        _export(model)
    return injection.calls


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Installs Python's own handler, which test runners may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


ERRORS = (SystemExit, GeneratorExit, RuntimeError, MemoryError)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("_ctrl_c")
# an error in a destructor, or in a callback that Python runs when an object is deleted
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:forward changes numbers")  # Model counts its calls
def test_fifty_exports_that_are_ended(seed: int) -> None:
    model = Model().eval()
    _export(model)  # imports everything that it needs
    points = {error: _counted(model, error()) for error in (KeyboardInterrupt, RuntimeError)}
    assert points[KeyboardInterrupt] > 5000
    assert points[RuntimeError] > 500
    rng, before, ended = random.Random(seed), everything(model), 0
    for _ in range(50):
        error: Any = rng.choice((KeyboardInterrupt,) * 4 + ERRORS)
        at = rng.randrange(1, points.get(error, points[RuntimeError]))
        try:
            with Injection(at, error("injected")), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about missing parts are expected
                _export(model)
        except (KeyboardInterrupt, OnnxExporterError, *ERRORS):
            ended += 1
        after = everything(model)
        assert {name for name in before if before[name] != after[name]} == set(), (error, at)
        _assert_right(_export(model), model)
    assert ended > 30  # some errors are caught, as in a search for a source file


# --- delivery of interrupts ----------------------------------------------------------------------


class Context:
    """Must not be interrupted while it is entered or left."""

    allowed: list[bool]

    def __init__(self) -> None:
        self.allowed = []

    def __enter__(self) -> None:
        self.allowed.append(self._look())

    def __exit__(self, *_: object) -> None:
        self.allowed.append(self._look())

    def _look(self) -> bool:
        return may_interrupt(sys._getframe())


def test_where_an_interrupt_may_come() -> None:
    context = Context()
    with context:
        assert may_interrupt(sys._getframe())
    assert context.allowed == [False, False]
    assert may_interrupt(None)


def test_no_interrupt_may_come_while_a_stack_enters_a_context() -> None:
    allowed = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is contextlib.ExitStack.enter_context.__code__:
            allowed.append(may_interrupt(frame))

    with contextlib.ExitStack() as stack:
        sys.setprofile(look)
        stack.enter_context(contextlib.nullcontext())
        sys.setprofile(None)
        assert may_interrupt(sys._getframe())
    assert allowed == [False]


class Interrupted:
    """Gets a signal while it is being left."""

    def __init__(self, signals: int = 1) -> None:
        self.signals, self.finished = signals, False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for _ in range(self.signals):
            signal.raise_signal(signal.SIGINT)
        threading.Event().wait(0.05)  # long enough for the signal to be retried
        self.finished = True


def _waits_behind(context: Interrupted) -> None:
    with context:
        pass
    threading.Event().wait(1)
    raise AssertionError("not interrupted")


@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupt_waits_until_a_context_is_left() -> None:
    context = Interrupted()
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        _waits_behind(context)
    assert context.finished
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Interrupting(logging.Handler):
    """Gets a signal while it handles a record, with its lock."""

    allowed = True

    def emit(self, record: logging.LogRecord) -> None:
        signal.raise_signal(signal.SIGINT)
        self.allowed = may_interrupt(sys._getframe())


def _logs(logger: logging.Logger) -> None:
    logger.warning("a record")
    threading.Event().wait(1)
    raise AssertionError("not interrupted")


@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupt_waits_until_a_record_is_logged() -> None:
    """Other threads would wait for the lock of the handler forever."""
    logger, handler = logging.getLogger(f"{__name__}.interrupted"), Interrupting()
    logger.addHandler(handler)
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        _logs(logger)
    logger.removeHandler(handler)
    assert not handler.allowed
    assert handler.lock is not None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler.lock.acquire, timeout=5).result()


@pytest.mark.usefixtures("_ctrl_c")
def test_a_second_interrupt_does_not_wait() -> None:
    context = Interrupted(signals=2)
    with pytest.raises(KeyboardInterrupt), interrupts_deferred(), context:
        pass
    assert not context.finished


@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupt_is_not_lost_when_the_work_is_done() -> None:
    class AtTheEnd(Interrupted):
        def __exit__(self, *_: object) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), interrupts_deferred(), AtTheEnd():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_ctrl_c")
def test_handlers_of_the_user_are_left_alone() -> None:
    calls: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    with interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
    assert calls == [signal.SIGINT]


# --- immediate interrupts ------------------------------------------------------------------------


def _raised_where_is_left(kind: str) -> Callable[[FrameType, str, Any], None]:
    """Raises KeyboardInterrupt where a context would be left, like a second Ctrl-C does."""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name != "__exit__":
            return
        context = frame.f_locals.get("self")
        generator = getattr(context, "gen", None)
        code = getattr(generator, "gi_code", None)
        if kind in (type(context).__name__, getattr(code, "co_name", "")):
            sys.setprofile(None)
            raise KeyboardInterrupt

    return profile


def _interrupted(kind: str) -> BaseException:
    """Returns the exception of an export; it keeps the contexts alive that were not left."""
    model = torch.nn.Linear(3, 2).eval()
    _export(model)  # imports everything that it needs
    try:
        sys.setprofile(_raised_where_is_left(kind))
        _export(model)
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        sys.setprofile(None)
    raise AssertionError(f"no {kind} was left")


@shows("modes of the thread")
def test_a_mode_that_is_not_left() -> None:
    modes, keys = "modes of the thread", "dispatch keys of the thread"
    held = _interrupted("FakeTensorMode")
    assert type(torch.zeros(2)) is torch.Tensor
    with hidden(modes, keys):
        held = _interrupted("FakeTensorMode")
        left = type(torch.zeros(2))
    while torch._C._len_torch_dispatch_stack():
        torch.utils._python_dispatch._pop_mode()
    assert left is FakeTensor
    assert type(torch.zeros(2)) is torch.Tensor
    assert held.__traceback__ is not None


@shows("dispatch keys of the thread")
def test_a_dispatch_key_that_stays_switched_off() -> None:
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    key = torch._C.DispatchKey.ADInplaceOrView

    class Excludes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)  # and is then interrupted
            raise KeyboardInterrupt

    for names, left in ((), False), (("dispatch keys of the thread",), True):
        with hidden(*names), pytest.raises(KeyboardInterrupt):
            onnx_aot.export(Excludes(), (torch.ones(2),))
        found = excluded(key)
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        assert found is left


@shows("levels of torch.func in the thread")
def test_a_level_of_a_transform_that_is_not_left() -> None:
    """A capture leaves those of ``torch.func.hessian`` when it fails."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        bent: torch.Tensor = torch.func.hessian(lambda y: (y**3).sum() * float(y[0]))(x)
        return bent

    depth = torch._C._functorch.get_dynamic_layer_stack_depth
    with pytest.raises(CaptureError):
        onnx_aot.export(forward, (torch.ones(3),))
    assert depth() == 0
    x = torch.ones(3)
    torch.testing.assert_close(torch.func.jvp(torch.sin, (x,), (x,))[1], x.cos())
    with hidden("levels of torch.func in the thread"), pytest.raises(CaptureError):
        onnx_aot.export(forward, (torch.ones(3),))
    left = depth()
    while depth():
        torch._C._functorch.pop_dynamic_layer_stack()
    torch._C._exit_dual_level(level=0)
    torch._functorch.eager_transforms.JVP_NESTING = 0
    assert left > 0


@shows("torch.compiler.is_compiling() and is_exporting()")
def test_flags_that_stay_set() -> None:
    held = _interrupted("_compiling_state_context")
    assert not torch.compiler.is_exporting()
    with hidden("torch.compiler.is_compiling() and is_exporting()"):
        held = _interrupted("_compiling_state_context")
        left = torch.compiler.is_exporting()
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = False
    assert left
    assert held.__traceback__ is not None
