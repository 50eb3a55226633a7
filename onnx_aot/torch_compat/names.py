"""Names of torch that the other files of this package, and all else, start from."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "auto_functionalized",
    "deregister_pytree_node",
    "overload_of",
    "private",
    "pytree",
]


def private(module: str, attribute: str) -> Any:
    """The attribute of a private module, or None where this torch does not have it."""
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


auto_functionalized: Any = getattr(torch.ops.higher_order, "auto_functionalized", None)
"""Torch's functional form of custom operators that write in place.

Where it is None, programs with such operators go through ``run_decompositions``, and errors about
them name torch's own replacement.
"""


def overload_of(target: Any) -> Any:
    """The operator that a function of ``torch.library.custom_op`` calls; else the target itself.

    Without ``CustomOpDef._opoverload`` such a function is no key of a table, ``torch.ops`` is.
    """
    return getattr(target, "_opoverload", target)


def deregister_pytree_node(cls: type) -> Callable[[], None]:
    """Takes back ``pytree.register_pytree_node(cls, ...)``; what it returns does that again.

    Without ``_deregister_pytree_node`` the class stays registered, and a library that wants it
    otherwise does not get its way.
    """
    forget = private("torch.utils._pytree", "_deregister_pytree_node")
    serialized = private("torch.utils._pytree", "SUPPORTED_SERIALIZED_TYPES") or {}
    node, names = pytree.SUPPORTED_NODES.get(cls), serialized.get(cls)
    if forget is None or node is None or names is None:
        return lambda: None
    forget(cls)
    return lambda: pytree.register_pytree_node(
        cls,
        node.flatten_fn,
        node.unflatten_fn,
        serialized_type_name=names.serialized_type_name,
        to_dumpable_context=names.to_dumpable_context,
        from_dumpable_context=names.from_dumpable_context,
        flatten_with_keys_fn=node.flatten_with_keys_fn,
    )
