"""Computes functions of torch that take sizes as plain integers, for symbolic sizes.

Their schemas have ``int`` where others have ``SymInt``, so that torch itself reads a symbolic size
as a number, which fixes the dimension. The replacements compute the same values with functions that
keep sizes symbolic; calls with plain integers are not changed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot.capture.patches.numpy_numbers import Rounded
from onnx_aot.torch_compat import (
    Attribute,
    Patch,
    Settings,
    bit_length_of_size,
    can_take_log2,
    fix_sizes_of,
    has_log2,
    has_natural_log,
    is_traced,
    log2_of_size,
    log_of_size,
)

__all__ = ["SIZE_FUNCTIONS"]

Tensor = torch.Tensor
SYMBOLIC = (torch.SymInt, torch.SymFloat)

sym_max: Any = torch.sym_max


# --- ramps ---------------------------------------------------------------------------------------


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``[steps]``, from both ends to the middle, as torch computes it."""
    steps = _read_number(steps)
    dtype = dtype or _dtype_of_bounds(start, end)
    exact = dtype if dtype.is_floating_point or dtype.is_complex else torch.float64
    last = sym_max(steps - 1, 1)
    index = torch.arange(steps, dtype=exact, device=device)
    step = (end - start) / last
    ramp = torch.where(index < steps // 2, start + index * step, end - (last - index) * step)
    return ramp.to(dtype)


def _dtype_of_bounds(*bounds: Any) -> torch.dtype:
    floating = [b.dtype for b in bounds if isinstance(b, Tensor) and b.is_floating_point()]
    return floating[0] if floating else torch.get_default_dtype()


def _logspace(
    start: Any,
    end: Any,
    steps: Any,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    dtype = dtype or _dtype_of_bounds(start, end)
    exact = dtype if dtype.is_floating_point or dtype.is_complex else torch.float64
    return torch.pow(base, _linspace(start, end, steps, dtype=exact, device=device)).to(dtype)


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool) -> Tensor:
    """``[N, H, W, 2]`` or ``[N, D, H, W, 3]``; ``theta`` is ``[N, 2, 3]`` or ``[N, 3, 4]``."""
    axes = size[2:]
    # one row of theta per coordinate of the result; the last column is the offset
    grid = theta[:, :, -1].reshape(size[0], *(1 for _ in axes), len(axes))
    for position, count in enumerate(axes):
        index = torch.arange(count, dtype=theta.dtype, device=theta.device)
        extent = sym_max(count - 1, 1) if align_corners else sym_max(count, 1)
        places = (2 * index - (count - 1)) / extent
        shape: list[Any] = [1] * (len(axes) + 2)
        shape[1 + position] = count
        column = theta[:, :, len(axes) - 1 - position]
        grid = grid + places.reshape(shape) * column.reshape(size[0], *(1 for _ in axes), len(axes))
    return grid


def _arange(*bounds: Any, out: Tensor | None = None, **options: Any) -> Tensor:
    """Reads numbers from tensors, also from pieces of which torch does not know the size 1."""
    numbers = {name: _read_number(value) for name, value in options.items()}
    return torch.arange(*map(_read_number, bounds), out=out, **numbers)


def _read_number(value: Any) -> Any:
    return value.item() if _is_traced_number(value) else value


def _is_traced_number(value: Any) -> bool:
    return isinstance(value, Tensor) and is_traced(value)


def _has_traced_bound(*bounds: Any, out: Tensor | None = None, **options: Any) -> bool:
    return any(map(_is_traced_number, (*bounds, *options.values())))


def _fftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``[n]``: 0 to the middle, then the negative frequencies."""
    index = torch.arange(n, dtype=dtype or torch.get_default_dtype(), device=device)
    frequencies: Tensor = torch.where(index < (n + 1) // 2, index, index - n) / (n * d)
    return frequencies


def _rfftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``[n // 2 + 1]``: the frequencies that are not negative."""
    index = torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype(), device=device)
    frequencies: Tensor = index / (n * d)
    return frequencies


# --- windows -------------------------------------------------------------------------------------


def _make_window(value: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Makes ``window(length, periodic, ...)`` from a function of the angle from 0 to 2 pi."""

    def window(
        window_length: Any,
        periodic: bool = True,
        *coefficients: float,
        dtype: torch.dtype | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **named: float,
    ) -> Tensor:
        dtype = dtype or torch.get_default_dtype()
        intervals = sym_max(window_length if periodic else window_length - 1, 1)
        index = torch.arange(window_length, dtype=torch.float64, device=device)
        shape = value(index * (2 * math.pi / intervals), *coefficients, **named)
        single = torch.full_like(index, window_length) == 1
        return torch.where(single, torch.ones_like(shape), shape).to(dtype)

    return window


def _hamming(angle: Tensor, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    return alpha - beta * torch.cos(angle)


def _blackman(angle: Tensor) -> Tensor:
    return 0.42 - 0.5 * torch.cos(angle) + 0.08 * torch.cos(2 * angle)


def _bartlett(angle: Tensor) -> Tensor:
    return 1 - (angle / math.pi - 1).abs()


def _kaiser(angle: Tensor, beta: float = 12.0) -> Tensor:
    distance = angle / math.pi - 1
    inside = (1 - distance * distance).clamp(min=0)
    bessel: Any = torch.special.i0
    shape: Tensor = bessel(beta * inside.sqrt()) / bessel(torch.full_like(angle, beta))
    return shape


WINDOWS: dict[str, Callable[..., Tensor]] = {
    "hann": lambda angle: 0.5 - 0.5 * torch.cos(angle),
    "hamming": _hamming,
    "blackman": _blackman,
    "bartlett": _bartlett,
    "kaiser": _kaiser,
}


# --- indices -------------------------------------------------------------------------------------


def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Tensor:
    """``[*tensor.shape, num_classes]``, int64."""
    if isinstance(num_classes, Tensor):  # calls this function again, unless the number is known
        return torch.nn.functional.one_hot(tensor, num_classes.item())  # type: ignore[arg-type]
    if not _is_symbolic(num_classes) and num_classes == -1:
        num_classes = tensor.max().item() + 1
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor[..., None] == classes).to(torch.int64)


def _has_unknown_classes(tensor: Tensor, num_classes: Any = -1) -> bool:
    if isinstance(num_classes, (*SYMBOLIC, Tensor)):
        return True
    return num_classes == -1 and isinstance(tensor, Tensor) and is_traced(tensor)


def _make_triangle(keep: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def indices(
        row: Any, col: Any, offset: int = 0, *, dtype: torch.dtype = torch.int64, device: Any = None
    ) -> Tensor:
        """``[2, count]``, in order of rows."""
        kept = keep(torch.ones(row, col, dtype=torch.bool, device=device), offset)
        return kept.nonzero().transpose(0, 1).to(dtype)

    return indices


def _vander(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """``[len(x), N]``: the powers of each element from 0 to N - 1, the highest first."""
    count = x.shape[0] if N is None else N
    powers = torch.arange(count, device=x.device)
    whole = torch.result_type(x, powers) if not x.is_floating_point() else x.dtype
    return torch.pow(x[:, None].to(whole), powers if increasing else count - 1 - powers).to(whole)


# --- windows of a tensor --------------------------------------------------------------------------


def _unfold(self: Tensor, dimension: int, size: Any, step: Any) -> Tensor:
    """``x.unfold(d, size, step)``: windows along ``d``, with their elements in a last dimension."""
    axis = dimension % self.dim()
    count = (self.shape[axis] - size) // step + 1
    if _is_same_size(size, step):
        windows = torch.unflatten(self.narrow(axis, 0, count * size), axis, (count, size))
        return windows.movedim(axis + 1, -1)
    places = torch.arange(count, device=self.device)[:, None] * step
    places = places + torch.arange(size, device=self.device)
    chosen = self.index_select(axis, places.flatten())
    return torch.unflatten(chosen, axis, (count, size)).movedim(axis + 1, -1)


def _is_same_size(size: Any, other: Any) -> bool:
    """True if two sizes are equal whatever the symbols are; asks torch for no guard."""
    return str(size) == str(other)


def _has_symbolic_window(self: Tensor, dimension: int, size: Any, step: Any) -> bool:
    """True if the windows are side by side, or overlap.

    Those side by side are views, as in PyTorch, which refuses writes to windows that overlap.
    """
    return self.dim() > 0 and (_is_same_size(size, step) or _is_same_size(step, 1))


# --- signals -------------------------------------------------------------------------------------


def _istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Tensor:
    """``[..., length]`` from a spectrum ``[..., n_fft // 2 + 1, count]``."""
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    kind = torch.empty((), dtype=input.dtype).real.dtype
    window = torch.ones(size, dtype=kind, device=input.device) if window is None else window
    before = (n_fft - size) // 2
    window = torch.nn.functional.pad(window, (before, n_fft - size - before))
    norm = "ortho" if normalized else "backward"
    frames = torch.fft.irfft(input.transpose(-1, -2), n_fft, norm=norm) * window
    count = input.shape[-1]
    places = torch.arange(count, device=input.device)[:, None] * hop
    places = (places + torch.arange(n_fft, device=input.device)).reshape(-1)

    def add_frames(frames: Tensor) -> Tensor:
        flat = frames.reshape(*frames.shape[:-2], count * n_fft)
        start = n_fft // 2 if center else 0
        total = flat.new_zeros(*flat.shape[:-1], n_fft + hop * (count - 1))
        added = total.scatter_add(-1, places.expand_as(flat), flat)
        return added[..., start : start + length]

    signal = add_frames(frames) / add_frames((window * window).expand(count, n_fft))
    return torch.nn.functional.pad(signal, (0, length - signal.shape[-1]))


def _has_symbolic_length(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> bool:
    """True if the length is symbolic, and the result real from half of a spectrum."""
    is_real = not return_complex and not (window is not None and window.is_complex())
    return _is_symbolic(length) and is_real and onesided is not False


# --- the rows ------------------------------------------------------------------------------------


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple, torch.Size)):
        return any(map(_is_symbolic, value))
    return isinstance(value, SYMBOLIC)


def _has_symbolic_shape(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_complex() and _is_symbolic(value.shape)


def _make_patch(
    place: str,
    function: Callable[..., Any],
    applies: Callable[[Any], bool] = _is_symbolic,
    when: Callable[..., bool] = lambda *args, **kwargs: True,
) -> Patch:
    """Row for a function that is replaced in calls with an argument for which ``applies`` holds."""
    signature = inspect.signature(function)

    def make(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if any(map(applies, (*args, *kwargs.values()))) and when(*args, **kwargs):
                try:
                    signature.bind(*args, **kwargs)
                except TypeError:
                    return original(*args, **kwargs)
                return function(*args, **kwargs)
            return original(*args, **kwargs)

        return call

    name = place.partition(":")[2]
    return Patch(
        place,
        make,
        f"{name} of a dynamic size fixes it.",
        when=lambda settings: settings.dynamic and not settings.strict,
    )


def _is_counted(start: Any, end: Any, steps: Any = None, *args: Any, **kwargs: Any) -> bool:
    """True if the number of steps is symbolic; the operators take symbolic ends."""
    return _is_count(steps)


def _is_count(value: Any) -> bool:
    return isinstance(value, SYMBOLIC) or _is_traced_number(value)


def _is_of_real_numbers(x: Tensor, *args: Any, **kwargs: Any) -> bool:
    return not x.is_complex()


# --- functions of Python and NumPy ---------------------------------------------------------------


def _square_root(number: Any) -> Any:
    return torch.sym_sqrt(torch.sym_float(number))  # type: ignore[no-untyped-call]


def _logarithm(number: Any) -> Any:
    """``math.log2``. That a size is above zero becomes a condition of the capture."""
    if number >= 1 if isinstance(number, torch.SymInt) else number > 0:
        return log2_of_size(number)
    raise ValueError("math domain error")  # as Python says


def _natural_logarithm(number: Any, base: Any = None) -> Any:
    """``math.log``, of a size above zero, or of a number to a base that is one."""
    logarithm = log_of_size(number)
    return logarithm if base is None else logarithm / log_of_size(base)


def _logarithm_of(number: Any) -> Any:
    """``numpy.log``, which calls this method of objects."""
    return _natural_logarithm(number) if has_log2(number) else math.log(number)


def _decimal_logarithm(number: Any) -> Any:
    return _natural_logarithm(number, 10)


def _exponential(number: Any) -> Any:
    """``math.exp``, as the power that torch has an expression for."""
    return math.e ** torch.sym_float(number)  # type: ignore[no-untyped-call]


def _make_rounding(name: str) -> Patch:
    """Row for a method of a symbolic number: the natural logarithm of a size fixes the size."""

    def make(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
        def rounded(self: Any, *args: Any) -> Any:
            if has_natural_log(self):
                value = getattr(fix_sizes_of(self), name)(*args)
                return Rounded(value) if isinstance(value, int) else value
            return original(self, *args)

        return rounded

    return Patch(
        f"torch:SymFloat.{name}",
        make,
        "Where the logarithm of a dynamic size is rounded, it may differ from Python's.",
        when=lambda settings: settings.dynamic and not settings.strict,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, SYMBOLIC)


def _is_logarithm(number: Any) -> bool:
    return can_take_log2()


def _has_logarithms(*numbers: Any) -> bool:
    """True if all numbers are above zero, which becomes a condition of the capture for sizes."""
    return all(has_log2(number) for number in numbers if isinstance(number, SYMBOLIC))


def _shape_as_tensor(self: Tensor) -> Tensor:
    return torch.tensor(self.shape, dtype=torch.int64, device="cpu")


SIZE_FUNCTIONS: tuple[Patch, ...] = (
    Patch(
        "torch:_shape_as_tensor",  # which torch.onnx.operators.shape_as_tensor calls
        lambda original, settings: _shape_as_tensor,
        "Models that take the shape of a tensor as a tensor are refused.",
        when=lambda settings: not settings.strict,
    ),
    Patch(
        "numpy.sqrt of a size",
        lambda original, settings: _square_root,  # NumPy calls this method of objects
        "Models that compute numpy.sqrt of a dynamic size are refused.",
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(kind, "sqrt") for kind in SYMBOLIC],
    ),
    Patch(
        "numpy.log2 of a size",
        lambda original, settings: _logarithm,
        "Models that compute numpy.log2 of a dynamic size are refused.",
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(kind, "log2") for kind in SYMBOLIC],
        exists=can_take_log2,
    ),
    Patch(
        "numpy.log of a size",
        lambda original, settings: _logarithm_of,
        "Models that compute numpy.log of a dynamic size are refused.",
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(kind, "log") for kind in SYMBOLIC],
        exists=can_take_log2,
    ),
    Patch(
        "numpy.exp of a size",
        lambda original, settings: _exponential,
        "Models that compute numpy.exp of a dynamic size are refused.",
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(kind, "exp") for kind in SYMBOLIC],
    ),
    Patch(
        "bit_length of a size",
        lambda original, settings: bit_length_of_size,
        "bit_length() of a dynamic size fixes it.",
        when=lambda settings: settings.dynamic,
        places=lambda settings: [Attribute(torch.SymInt, "bit_length")],
        exists=can_take_log2,
    ),
    _make_patch("math:sqrt", _square_root, _is_number),
    _make_patch("math:log2", _logarithm, _is_number, _is_logarithm),
    _make_patch("math:log", _natural_logarithm, _is_number, _has_logarithms),
    _make_patch("math:log10", _decimal_logarithm, _is_number, _has_logarithms),
    _make_patch("math:exp", _exponential, _is_number),
    *map(_make_rounding, ("__floor__", "__ceil__", "__trunc__", "__round__")),
    _make_patch("torch:arange", _arange, _is_traced_number, _has_traced_bound),
    _make_patch("torch:linspace", _linspace, _is_count, _is_counted),
    _make_patch("torch:logspace", _logspace, _is_count, _is_counted),
    _make_patch("torch:affine_grid_generator", _affine_grid),
    _make_patch("torch.fft:fftfreq", _fftfreq),
    _make_patch("torch.fft:rfftfreq", _rfftfreq),
    *(_make_patch(f"torch:{name}_window", _make_window(value)) for name, value in WINDOWS.items()),
    _make_patch(
        "torch.nn.functional:one_hot",
        _one_hot,
        lambda value: isinstance(value, (*SYMBOLIC, Tensor)),
        _has_unknown_classes,
    ),
    _make_patch("torch:tril_indices", _make_triangle(torch.tril)),
    _make_patch("torch:triu_indices", _make_triangle(torch.triu)),
    _make_patch(
        "torch:vander",
        _vander,
        lambda value: _is_symbolic(value) or _has_symbolic_shape(value),
        _is_of_real_numbers,
    ),
    _make_patch("torch:Tensor.unfold", _unfold, when=_has_symbolic_window),
    _make_patch("torch:istft", _istft, when=_has_symbolic_length),
    Patch(
        "torch.backends.opt_einsum:enabled",
        lambda original, settings: False,
        "einsum of three or more tensors fixes all sizes if opt_einsum is installed.",
        when=lambda settings: settings.dynamic,
    ),
)
