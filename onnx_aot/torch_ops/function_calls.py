"""Numbers the calls of operators that stand for ``torch.autograd.Function`` classes.

The graph has the tensors and sizes of a call, and its number for everything else. An export keeps
the calls that it captures; afterwards the nodes of its program do.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

__all__ = ["CALLS", "NAMESPACE", "enter_call"]

NAMESPACE = "autograd_functions"
"""Namespace of the operators; the last argument of each is the number of the call."""

CALLS: weakref.WeakValueDictionary[tuple[Any, int], Any] = weakref.WeakValueDictionary()
"""Calls by operator and number, as long as an export or a program needs them."""


_NUMBERS = itertools.count()


def enter_call(operator: Any, call: Any) -> int:
    """Enters a call of an operator and returns its number, which no other call ever gets."""
    number = next(_NUMBERS)
    CALLS[operator, number] = call
    return number
