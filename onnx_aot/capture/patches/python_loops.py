"""Hands Python loops over dynamic sizes, and the lists that they fill, to ``Settings.loops``."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

import torch

from onnx_aot.capture.patches.python_builtins import find_uses
from onnx_aot.capture.sizes.piece_counts import is_looped_over, is_unpacked
from onnx_aot.torch_compat import Patch, Settings

__all__ = ["LOOPS"]

Tensor = torch.Tensor


def _enumerate(original: Any, settings: Settings) -> Callable[..., Any]:
    def enumerate(iterable: Any, start: Any = 0) -> Any:
        steps = settings.loops.enumerate(iterable, start)
        return builtins.enumerate(iterable, start) if steps is None else steps

    return enumerate


def _zip(original: Any, settings: Settings) -> Callable[..., Any]:
    def zip(*iterables: Any, strict: bool = False) -> Any:
        steps = settings.loops.zip(iterables)
        return builtins.zip(*iterables, strict=strict) if steps is None else steps

    return zip


def _reversed(original: Any, settings: Settings) -> Callable[..., Any]:
    def reversed(sequence: Any) -> Any:
        # Else the elements may be joined, torch.stack(list(reversed(values))), without a loop.
        loops = settings.loops
        steps = loops.find_elements(sequence) if is_looped_over(sys._getframe()) else None
        return builtins.reversed(sequence if steps is None else steps)

    return reversed


def _unbind(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def unbind(input: Tensor, dim: int = 0) -> Any:
        steps = settings.loops.unbind(input, dim)
        return original(input, dim) if steps is None else steps

    return unbind


def _split(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
        steps = None
        if not is_unpacked(sys._getframe()):
            steps = settings.loops.split(tensor, split_size_or_sections, dim)
        return original(tensor, split_size_or_sections, dim) if steps is None else steps

    return split


def _chunk(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def chunk(input: Tensor, chunks: Any, dim: int = 0) -> Any:
        unpacked = is_unpacked(sys._getframe())
        steps = None if unpacked else settings.loops.chunk(input, chunks, dim)
        return original(input, chunks, dim) if steps is None else steps

    return chunk


def _stack(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def stack(tensors: Any, dim: int = 0) -> Any:
        history = settings.loops.find_history(tensors)
        return original(tensors, dim) if history is None else history.stack(dim)

    return stack


def _cat(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def cat(tensors: Any, dim: int = 0) -> Any:
        history = settings.loops.find_history(tensors)
        return original(tensors, dim) if history is None else history.cat(dim)

    return cat


def _tensor(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def tensor(data: Any, **options: Any) -> Any:
        made = settings.loops.make_tensor(data)
        if made is None:
            return original(data, **options)
        kinds = {name: options[name] for name in ("dtype", "device") if options.get(name)}
        return made.to(**kinds) if kinds else made

    return tensor


def _index(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    def __index__(self: Any) -> Any:  # noqa: N807
        position = settings.loops.find_position(self)
        return original(self) if position is None else position

    return __index__


def _rolls(settings: Settings) -> bool:
    return settings.loops is not None


LOOPS: tuple[Patch, ...] = (
    *(
        Patch(
            f"{name} in the packages of the model",
            make,
            f"{name}(...) over a dynamic size is unrolled.",
            when=_rolls,
            places=find_uses(name),
        )
        for name, make in (
            ("enumerate", _enumerate),
            ("zip", _zip),
            ("reversed", _reversed),
        )
    ),
    *(
        Patch(
            name,
            _unbind,
            "Loops over the slices of a tensor along a dynamic dimension are unrolled.",
            when=_rolls,
        )
        for name in ("torch:unbind", "torch:Tensor.unbind")
    ),
    *(
        Patch(
            name,
            make,
            "Loops over the pieces of a dynamic dimension are unrolled.",
            when=_rolls,
        )
        for name, make in (
            ("torch:Tensor.split", _split),  # torch.split calls it
            ("torch:chunk", _chunk),
            ("torch:Tensor.chunk", _chunk),
        )
    ),
    Patch(
        "torch:SymInt.__index__",
        _index,
        "Loops whose steps take a state from a list by the number of the step are unrolled.",
        when=_rolls,
    ),
    Patch(
        "torch:tensor",
        _tensor,
        "Loops that make a list of numbers for torch.tensor are unrolled.",
        when=_rolls,
    ),
    Patch(
        "torch:stack",
        _stack,
        "Loops whose results are joined with torch.stack are unrolled.",
        when=_rolls,
    ),
    *(
        Patch(
            f"torch:{name}",
            _cat,
            f"Loops whose results are joined with torch.{name} are unrolled.",
            when=_rolls,
        )
        for name in ("cat", "concat", "concatenate")
    ),
)
