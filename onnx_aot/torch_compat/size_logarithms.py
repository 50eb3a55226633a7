"""Computes logarithms of symbolic sizes, and the number of bits of a size.

``2 ** math.ceil(math.log2(n))`` is the length of many Fourier transforms. The logarithm is that of
Python, in double precision. Rounded up or down it is exact: that of a power of two is an integer,
and that of any other size below 2**40 is 10**-12 from one.

The natural logarithm is ``log2(n) * log(2)`` to torch. Rounded, it could differ from Python's by
its last digit: ``int(math.log(1000, 10))`` is 2. So a size is fixed where its logarithm is rounded.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.types import Number

from onnx_aot.torch_compat.lookup import private
from onnx_aot.torch_compat.symbolic_sizes import (
    is_data_symbol,
    symbolic_expression,
    symbolic_truth,
)
from onnx_aot.torch_compat.tracing import current_tracer, recorded_number

__all__ = [
    "LOG",
    "LOG2",
    "bit_length_of_size",
    "can_take_log2",
    "fix_sizes_of",
    "has_log2",
    "has_natural_log",
    "log2_of_size",
    "log_of_size",
]

_LOG2 = "torch:_sym_log2"
_SYMBOLIC = (torch.SymInt, torch.SymFloat)


def can_take_log2() -> bool:
    """True if this torch has symbolic logarithms."""
    return private(_LOG2) is not None


def has_log2(size: Any) -> bool:
    """True if a size is above zero, which becomes a condition of the capture unless it is known.

    False for sizes that depend on data, of which it is not known.
    """
    if not can_take_log2():
        return False
    is_above = size > 0 if isinstance(size, torch.SymFloat) else size >= 1
    is_known = symbolic_truth(is_above)
    if is_known is not None:
        return is_known
    if any(map(is_data_symbol, symbolic_expression(size).free_symbols)):
        return False
    return bool(is_above)


@torch.library.custom_op("onnx_aot::log2", mutates_args=())
def _take_log2(number: Number) -> Number:
    """``math.log2``; ``torch.export`` accepts roots of sizes in a graph, but not logarithms."""
    return math.log2(number)


LOG2 = torch.ops.onnx_aot.log2.default


def log2_of_size(size: Any) -> Any:
    """The logarithm of a number above zero, as a ``SymFloat`` if it is symbolic."""
    return LOG2(size) if isinstance(size, _SYMBOLIC) else math.log2(size)


@_take_log2.register_fake
def _(number: Any) -> Any:
    if not isinstance(number, _SYMBOLIC):
        return math.log2(number)
    expression = symbolic_expression(number)
    if type(expression).__name__ == "PowByNatural" and expression.args[0] == 2:
        exponent = number.node.shape_env.create_symintnode(expression.args[1], hint=None)
        return torch.sym_float(exponent)  # type: ignore[no-untyped-call]
    return _describe_log2(number)


def _describe_log2(number: Any) -> Any:
    if isinstance(number, torch.SymInt):
        # 0 has no logarithm; with it, torch would not know that others are not negative
        number = torch.sym_float(torch.sym_max(number, 1))  # type: ignore[no-untyped-call]
    take: Any = private(_LOG2)
    return take(number)


@torch.library.custom_op("onnx_aot::log", mutates_args=())
def _take_log(number: Number) -> Number:
    """``math.log``; its expression is that of the logarithm to base 2, times ``log(2)``."""
    return math.log(number)


@_take_log.register_fake
def _(number: Any) -> Any:
    if not isinstance(number, _SYMBOLIC):
        return math.log(number)
    return _describe_log2(number) * math.log(2)


LOG = torch.ops.onnx_aot.log.default


def log_of_size(size: Any) -> Any:
    """The natural logarithm of a number above zero, as a ``SymFloat`` if it is symbolic."""
    return LOG(size) if isinstance(size, _SYMBOLIC) else math.log(size)


def fix_sizes_of(number: Any) -> float:
    """The value of a symbolic number for the example, whose sizes the capture then holds for."""
    env = number.node.shape_env
    for symbol in symbolic_expression(number).free_symbols:
        int(env.create_symintnode(symbol, hint=None))  # a condition with the user's line
    return float(number)


def has_natural_log(number: Any) -> bool:
    """True if a symbolic number is computed from the natural logarithm of a size."""
    import sympy  # takes long, and torch has imported it by then

    parts = sympy.preorder_traversal(symbolic_expression(number))
    if not any("log2" in type(part).__name__ for part in parts):
        return False
    if current_tracer() is None:  # within a call that was recorded
        return False
    proxy = recorded_number(number)
    if proxy is None:
        return True
    waiting, seen = [proxy.node], set()
    while waiting:
        node = waiting.pop()
        if node.target is LOG:
            return True
        seen.add(node)
        waiting += [before for before in node.all_input_nodes if before not in seen]
    return False


def bit_length_of_size(size: Any) -> Any:
    """``int.bit_length``: how often the size can be halved until it is 0."""
    magnitude = size if symbolic_truth(size >= 0) else abs(size)
    return math.ceil(log2_of_size(magnitude + 1))
