"""Answers questions about data with both answers in turn, and records what the model computes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.patching import Patch, Settings, applied
from onnx_aot.torch_compat.symbolic_sizes import is_data_symbol
from onnx_aot.torch_compat.tracing import (
    current_tracer,
    fake_mode_of,
    forget_answers,
    recorded_number,
)

__all__ = [
    "BRANCHES",
    "SETS_GRADIENTS",
    "WHILE_RECORDED",
    "can_record_paths",
    "record_mark",
    "record_path",
    "widen_sizes",
    "without_new_conditions",
]

SETS_GRADIENTS = torch._C._set_grad_enabled
"""Node target that switches gradients on or off."""

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_REENTER = "torch._higher_order_ops.utils:reenter_make_fx"
_UNCHANGED = "Branches on data are refused if one way does not need what the other one reads."


def _answer_branches(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Lets a capture go the way that ``Settings.branches`` wants at an ``if`` of the model."""
    error = private(f"{_SHAPES}:GuardOnDataDependentSymNode")

    @functools.wraps(original)
    def guard_bool(self: Any, file: str, line: int) -> Any:
        if error is None:
            return original(self, file, line)
        try:
            return original(self, file, line)
        except error:
            answer = settings.branches.answer(self)
            if answer is None:
                raise
            return answer

    return guard_bool


def _record_checks(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Records conditions that the model states, with ``torch._check`` for example, as steps."""

    @functools.wraps(original)
    def guard_or_defer(self: Any, orig_expr: Any, msg: str, *args: Any, **kwargs: Any) -> Any:
        settings.branches.note_check(self.create_symboolnode, orig_expr, msg)
        return original(self, orig_expr, msg, *args, **kwargs)

    return guard_or_defer


def _is_wanted(settings: Settings) -> bool:
    return settings.branches is not None


BRANCHES: tuple[Patch, ...] = (
    Patch(
        "torch.fx.experimental.sym_node:SymNode.guard_bool",
        _answer_branches,
        "Models that branch on their data are refused.",
        when=_is_wanted,
        parameters="self, file, line",
    ),
    Patch(
        f"{_SHAPES}:ShapeEnv.guard_or_defer_runtime_assert",
        _record_checks,
        "Models that branch on their data may lose what torch._check says about it.",
        when=_is_wanted,
        parameters="self, orig_expr, msg",
    ),
)

WHILE_RECORDED: tuple[Patch, ...] = (
    Patch(
        "torch.fx.graph:Graph.eliminate_dead_code",
        lambda original, settings: lambda *args, **kwargs: False,
        _UNCHANGED,
    ),
    Patch(
        "torch.fx.passes.runtime_assert:insert_deferred_runtime_asserts",
        lambda original, settings: lambda *args, **kwargs: None,
        _UNCHANGED,
    ),
)
"""Rows for the time in which one path is recorded: its graph keeps what the path did not need."""


def can_record_paths() -> bool:
    """True if this torch can record a graph while it traces a model."""
    return private(_REENTER) is not None


def record_path(function: Callable[..., Any], inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """Records the ATen calls of ``function(*inputs)`` while a model is traced."""
    with applied(WHILE_RECORDED, Settings()), torch.fx.traceback.preserve_node_meta():
        module: torch.fx.GraphModule = private(_REENTER)(function)(*inputs)
    return module


@contextlib.contextmanager
def without_new_conditions(mode: Any) -> Iterator[None]:
    """Forgets afterwards what torch learnt about values of data that it knew of before.

    What holds for them on one way of a branch need not hold on the other.
    """
    env = None if mode is None else mode.shape_env
    tables = [private_attribute(env, f"{_SHAPES}:ShapeEnv.{name}", {}) for name in _KNOWLEDGE]
    before = [dict(table) for table in tables]
    asserts = {symbol: list(known) for symbol, known in before[0].items()}
    symbols = {symbol for symbol in before[1] if is_data_symbol(symbol)}
    try:
        yield
    finally:
        for table, kept in zip(tables, (asserts, *before[1:]), strict=True):
            for symbol in symbols:
                table.pop(symbol, None)
                if symbol in kept:
                    table[symbol] = kept[symbol]
        _forget(env)


def widen_sizes(values: Any, limits: Mapping[str, Any]) -> None:
    """Gives sizes of a capture that the caller owns the ranges that they have in the model.

    A capture of the branch ``n <= 8`` knows that ``n <= 8``, which its surroundings must not use.

    Args:
        values: Recorded values of the capture.
        limits: The ranges by the names of symbols.
    """
    mode = fake_mode_of(values)
    env = None if mode is None else mode.shape_env
    ranges = private_attribute(env, f"{_SHAPES}:ShapeEnv.var_to_range", {})
    for symbol in ranges:
        ranges[symbol] = limits.get(str(symbol), ranges[symbol])
    _forget(env)


def _forget(env: Any) -> None:
    """Makes torch answer questions about sizes anew."""
    for path in _VERSIONS:
        version = private_attribute(env, path)
        if version is not None:
            setattr(env, path.rpartition(".")[2], version + 1)
    forget_answers()


# By which torch knows that simplified sizes are out of date.
_VERSIONS = (
    f"{_SHAPES}:ShapeEnv._version_counter",
    f"{_SHAPES}:ShapeEnv._replacements_version_counter",
)
_KNOWLEDGE = ("deferred_runtime_asserts", "var_to_range", "replacements")


def record_mark(target: Callable[..., Any], value: Any, *args: Any) -> bool:
    """Adds a call of a Python function with a symbolic value to the graph that is recorded.

    Returns:
        False if the value is none of the graph.
    """
    proxy = recorded_number(value)
    if proxy is None:
        return False
    current_tracer().create_proxy("call_function", target, (proxy, *args), {})
    return True
