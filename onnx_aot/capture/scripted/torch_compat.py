"""Private torch APIs that only scripted models need, guarded as in ``onnx_aot/torch_compat.py``."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.torch_compat import FakeTensorMode

__all__ = [
    "new_symbol",
    "storage_key",
    "symbolic_truth",
    "symbols_of_its_own",
]


def _private(module: str, attribute: str) -> Any:
    """The attribute of a private module, or None where this torch does not have it."""
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def storage_key(tensor: torch.Tensor) -> int:
    """A number that tensors which share memory have in common, fake ones too.

    Without ``UntypedStorage._cdata`` scripted models that write in place are refused.
    """
    return int(tensor.untyped_storage()._cdata)


def symbolic_truth(value: Any) -> bool | None:
    """Whether a symbolic bool is known to hold, or not to, for all sizes; None where it depends.

    Without ``statically_known_true`` nothing is known, and scripted models have more branches.
    """
    test = _private("torch.fx.experimental.symbolic_shapes", "statically_known_true")
    config = _private("torch.fx.experimental", "_config")
    if test is None:
        return None
    patched = hasattr(config, "backed_size_oblivious")  # as if no size were 0 or 1
    with config.patch(backed_size_oblivious=False) if patched else contextlib.nullcontext():
        if test(value):
            return True
        negated = torch.sym_not(value)  # type: ignore[no-untyped-call]
        return False if test(negated) else None


def new_symbol(mode: FakeTensorMode, kind: type, size: bool = False) -> Any:
    """A symbolic int, float or bool of which nothing is known, or that it is a size.

    Without ``create_unbacked_symint`` and its like loops and branches that depend on inputs cannot
    be captured; without ``_constrain_range_for_size`` some operators refuse a size.
    """
    env: Any = mode.shape_env
    makers: dict[type, Callable[[], Any]] = {
        int: env.create_unbacked_symint,
        float: env.create_unbacked_symfloat,
        bool: env.create_unbacked_symbool,
    }
    symbol = makers[kind]()
    constrain = _private("torch.fx.experimental.symbolic_shapes", "_constrain_range_for_size")
    if size and constrain is not None:
        constrain(symbol)
    return symbol


def symbols_of_its_own(mode: FakeTensorMode) -> contextlib.AbstractContextManager[Any]:
    """Lets sizes that depend on data be made which no result of the traced operator has.

    Without ``ignore_fresh_unbacked_symbols`` scripted models with such sizes are refused.
    """
    ignore = getattr(mode.shape_env, "ignore_fresh_unbacked_symbols", None)
    return ignore() if ignore is not None else contextlib.nullcontext()
