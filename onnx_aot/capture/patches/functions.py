"""Replaces functions of torch that fix sizes or branch on values, which a capture must not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.patches.fourier_transforms import TRANSFORMS
from onnx_aot.capture.patches.recorded_gradients import HOOKS
from onnx_aot.capture.patches.resizing import RESIZING
from onnx_aot.capture.patches.symbolic_indices import (
    get_item,
    is_mixed,
    make_tensors,
    set_item,
    stack_numbers,
)
from onnx_aot.capture.patches.tensor_subclasses import is_of_subclass
from onnx_aot.capture.patches.whole_pooling import WHOLE_POOLING
from onnx_aot.capture.sizes.guards import answer_for_user, ask_for_user
from onnx_aot.torch_compat import Patch, Settings

__all__ = ["FUNCTIONS"]

SYMBOLIC = (torch.SymInt, torch.SymFloat)


def _as_tensor(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Uses ``torch.tensor`` for sizes: ``torch.as_tensor`` turns them into constants."""

    def as_tensor(*args: Any, **kwargs: Any) -> Any:
        data, *rest = args or (kwargs.get("data"),)
        several = isinstance(data, (list, tuple))
        leaves = torch_compat.pytree.tree_leaves(data) if several else [data]
        if not any(isinstance(leaf, SYMBOLIC) for leaf in leaves):
            return original(*args, **kwargs)
        options = {**dict(zip(("dtype", "device"), rest, strict=False)), **kwargs}
        options.pop("data", None)
        return torch.tensor(data, **options)

    return as_tensor


def _replace_min_or_max(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Takes ``min`` and ``max`` of symbolic numbers without asking which is less.

    Torch itself does so for two symbolic ints, and for a tensor and a number that is not symbolic.
    """

    def tensor_min_max(*args: Any, **kwargs: Any) -> Any:
        larger = kwargs.get("tensor_callable") is torch.maximum
        floats = all(isinstance(argument, (float, torch.SymFloat)) for argument in args)
        if len(args) == 2 and floats and any(isinstance(arg, torch.SymFloat) for arg in args):
            choose: Any = torch.sym_max if larger else torch.sym_min
            return choose(*args)
        tensor = next((arg for arg in args if _is_whole(arg)), None)
        size = next((arg for arg in args if isinstance(arg, torch.SymInt)), None)
        if len(args) == 2 and tensor is not None and size is not None:
            other = torch.scalar_tensor(size, dtype=tensor.dtype, device=tensor.device)  # type: ignore[arg-type]
            return (torch.maximum if larger else torch.minimum)(tensor, other)
        return ask_for_user(original, *args, **kwargs)

    return tensor_min_max


def _is_whole(value: Any) -> bool:
    """True for a tensor that holds one number of the type that sizes have."""
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype == torch.int64


def _keep_sizes(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Keeps a size symbolic by which a complex tensor is divided, as its mean is."""

    def convert(a: Any, dtype: Any) -> Any:
        if isinstance(a, SYMBOLIC) and isinstance(dtype, torch.dtype) and dtype.is_complex:
            return torch.sym_float(a)  # type: ignore[no-untyped-call]
        return original(a, dtype)

    return convert


def _find_unique(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Counts the dimension from the front; torch slices the sizes wrongly with dim=-1."""

    def unique(mode: Any, func: Any, arg: Any, dim: Any, *args: Any, **kwargs: Any) -> Any:
        if dim is not None and arg.dim():
            dim %= arg.dim()
        return original(mode, func, arg, dim, *args, **kwargs)

    return unique


def _causal_hint(original: Callable[..., Any], settings: Settings) -> Callable[..., bool]:
    """Skips the comparison of a mask with a causal one, which a capture cannot branch on.

    ``nn.Transformer*`` compares them only to find a shortcut; with False it uses the mask itself.
    """

    def detect(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return is_causal is True

    return detect


def _attend(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Decides whether attention is causal where a comparison of sizes, such as ``n > 1``, does.

    The operator takes no symbolic bool.
    """

    def attend(*args: Any, **kwargs: Any) -> Any:
        chosen = (bool(arg) if isinstance(arg, torch.SymBool) else arg for arg in args)
        if isinstance(kwargs.get("is_causal"), torch.SymBool):
            kwargs["is_causal"] = bool(kwargs["is_causal"])
        return original(*chosen, **kwargs)

    return attend


def _equal(self: torch.Tensor, other: torch.Tensor) -> Any:
    """Answers with a symbolic bool, which a model may return and a check may test."""
    return self.shape == other.shape and (self == other).all().item()


def _all_close(
    self: torch.Tensor,
    other: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    """Answers with a symbolic bool, as ``_equal`` does."""
    return torch.isclose(self, other, rtol, atol, equal_nan).all().item()


def _cross(
    input: torch.Tensor, other: torch.Tensor, dim: int | None = None, **options: Any
) -> torch.Tensor:
    """Chooses the first dimension of size 3 for the user's line: with 3 rows it is another one."""
    if dim is None:
        threes = (d for d, size in enumerate(input.shape) if answer_for_user(size == 3))
        dim = next(threes, None)
    return torch.cross(input, other, dim=dim, **options)


def _narrow(self: torch.Tensor, dim: int, start: Any, length: Any) -> torch.Tensor:
    """Reads a start or length that is a tensor in the graph; torch reads a start in its kernel."""
    start, length = (
        number.item() if isinstance(number, torch.Tensor) else number for number in (start, length)
    )
    return torch.ops.aten.narrow.default(self, dim, start, length)  # type: ignore[no-any-return]


def _fill_diagonal(self: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    """Writes to a view of the diagonal; torch's kernel reads the sizes as numbers."""
    if wrap or self.dim() < 2:
        return self.fill_diagonal_(fill_value, wrap)
    diagonal = self
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, 1 if diagonal is self else -1)
    diagonal.fill_(fill_value)
    return self


def _new_tensor(self: torch.Tensor, data: Any, **options: Any) -> torch.Tensor:
    """Keeps sizes among the elements symbolic, which torch reads as numbers."""
    leaves = torch_compat.pytree.tree_leaves(data)
    if not any(isinstance(leaf, SYMBOLIC) for leaf in leaves) or any(map(_is_tensor, leaves)):
        return self.new_tensor(data, **options)
    dtype, device = options.get("dtype") or self.dtype, options.get("device") or self.device
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        data = data[0]
    return stack_numbers(leaves, dtype, device).reshape(shape)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _where(condition: torch.Tensor, *others: Any, **named: Any) -> Any:
    """Makes a bool of a mask of uint8, which PyTorch takes and its fake tensors refuse."""
    return torch.where(_as_mask(condition), *others, **named)


def _tensor_where(self: torch.Tensor, condition: torch.Tensor, *other: Any, **named: Any) -> Any:
    return torch.Tensor.where(self, _as_mask(condition), *other, **named)


def _as_mask(condition: torch.Tensor) -> torch.Tensor:
    return condition.bool() if condition.dtype is torch.uint8 else condition


REDIRECTED: dict[Any, Callable[..., Any]] = {
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _all_close,
    torch.Tensor.allclose: _all_close,
    torch.cross: _cross,
    torch.Tensor.cross: _cross,
    torch.narrow: _narrow,
    torch.Tensor.narrow: _narrow,
    torch.Tensor.fill_diagonal_: _fill_diagonal,
    torch.Tensor.new_tensor: _new_tensor,
    torch.where: _where,
    torch.Tensor.where: _tensor_where,
    torch.Tensor.__setitem__: set_item,
    **HOOKS,
    **WHOLE_POOLING,
    **RESIZING,
    **TRANSFORMS,
}
"""Functions by the original. They act wherever a model has bound it."""


_SIZES = {
    torch.Tensor.shape.__get__,  # type: ignore[attr-defined]
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.__len__,
}
_INDEXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


def _reads_size_above_zero(func: Any, args: Any, kwargs: Any) -> bool:
    """True if the size of a slice such as ``x[:1]`` is read, which is 1 only if ``x`` has one."""
    if func not in _SIZES:
        return False
    axis = torch_compat.axis_above_zero(args[0])
    if axis is None:
        return False
    read = kwargs.get("dim", args[1] if len(args) > 1 and func is torch.Tensor.size else None)
    return not isinstance(read, int) or read % args[0].dim() == axis


def _find_overlap(original: Callable[[torch.Tensor], int], settings: Settings) -> Any:
    """Answers for a dynamic size without asking it whether it is 0 or 1.

    Shape functions of operators that write ask it, to refuse expanded tensors.
    """

    def find_overlap(self: torch.Tensor) -> int:
        is_known = all(isinstance(size, int) for size in (*self.shape, *self.stride()))
        is_expanded = any(isinstance(stride, int) and stride == 0 for stride in self.stride())
        return original(self) if is_known or is_expanded else _UNDECIDED

    return find_overlap


_UNDECIDED = 2  # MemOverlap::TooHard of ATen


def _redirect(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Calls other functions in place of those that read data where the graph cannot record it."""

    def override(self: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if (func in _INDEXED or func in TRANSFORMS) and args and is_of_subclass(args[0]):
            return func, args, kwargs  # its class decides by the function
        redirected = REDIRECTED.get(func)
        if func is torch.tensor and "data" in kwargs:  # the original reads the data by position
            args = (kwargs["data"],)
            kwargs = {name: value for name, value in kwargs.items() if name != "data"}
        if settings.loops is not None and func in _INDEXED:
            args = (args[0], settings.loops.make_index(args[1]), *args[2:])
        if func in _INDEXED:
            args = (args[0], make_tensors(args[1], args[0].device), *args[2:])
        if func is torch.Tensor.__getitem__ and is_mixed(args[1]):
            redirected = get_item
        if redirected is not None:
            return redirected, args, kwargs
        if settings.zero_ignored is not None and _reads_size_above_zero(func, args, kwargs):
            settings.zero_ignored(True)
        return original(self, func, args, kwargs)

    return override


FUNCTIONS: tuple[Patch, ...] = (
    Patch(
        "torch.nn.functional:scaled_dot_product_attention",
        _attend,
        "Attention with is_causal=n > 1, where n is a dynamic size, is refused.",
        when=lambda settings: not settings.strict,
    ),
    Patch(
        "torch._export.non_strict_utils:_NonStrictTorchFunctionHandler._override",
        _redirect,
        "torch.equal, torch.allclose, torch.narrow from a start in a tensor, and torch.where of a "
        "uint8 mask are refused; fill_diagonal_, new_tensor, x[n - 1] = value, x[n - 1, rows] and "
        "x[:, [0, n - 1]] fix n, as do pooling over a whole dynamic dimension and interpolate by a "
        "factor that is computed from sizes. torch.cross without dim is wrong for 3 rows.",
        parameters="self, func, args, kwargs",
    ),
    Patch(
        "torch:_debug_has_internal_overlap",
        _find_overlap,
        "x[:, 1::2, 1:] *= -1 limits a dynamic dimension to sizes at which that part has several "
        "elements.",
        when=lambda settings: settings.dynamic and not settings.strict,
    ),
    Patch(
        "torch:as_tensor",
        _as_tensor,
        "torch.as_tensor of a size fixes the dimension.",
    ),
    Patch(
        "torch._export.non_strict_utils:_tensor_min_max",
        _replace_min_or_max,
        "min and max of two numbers computed from data become If nodes; those of a tensor and a "
        "dynamic size are refused.",
        parameters="args, real_callable, tensor_callable, kwargs",
        imports=False,
    ),
    Patch(
        "torch._prims_common.wrappers:_maybe_convert_to_dtype",
        _keep_sizes,
        "The mean of complex numbers fixes the sizes of what it is of.",
        when=lambda settings: settings.dynamic,
        parameters="a, dtype",
    ),
    Patch(
        "torch._subclasses.fake_impls:_unique",
        _find_unique,
        "torch.unique_consecutive is refused along a negative dimension.",
        parameters="fake_mode, func, arg, dim",
    ),
    Patch(
        "torch.nn.modules.transformer:_detect_is_causal_mask",
        _causal_hint,
        "nn.Transformer with a mask compares it with a causal one when it runs, in an If node.",
        parameters="mask, is_causal, size",
        imports=False,
    ),
)
