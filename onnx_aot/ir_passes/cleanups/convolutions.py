"""Merges additions and paddings around convolutions and poolings into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from onnx_aot.ir_passes.rewriter import Rewriter, Rule
from onnx_aot.ir_passes.shapes import dims, rank

__all__ = ["ADD_TO_CONV_BIAS", "PAD_INTO_WINDOWS"]


def add_to_conv_bias(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Add(Conv(x, w), c)`` -> ``Conv(x, w, c)`` for one term per channel, also ConvTranspose.

    An existing bias is added to the term.
    """
    for place in (0, 1):
        conv = rewriter.producer(node.inputs[place], "Conv")
        conv = conv or rewriter.producer(node.inputs[place], "ConvTranspose")
        term = node.inputs[1 - place]
        if conv is not None and _fits_conv_bias(conv, term, rewriter):
            break
    else:
        return False
    assert conv is not None
    assert term is not None
    sizes = dims(conv.outputs[0])
    assert sizes is not None
    channels = sizes[1]
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if not isinstance(channels, int) or term.dtype is None:
        return False
    sources = [term] if bias is None else [term, bias]
    total = rewriter.fold(_per_channel(channels), sources, dtype=term.dtype, shape=[channels])
    inputs = [*conv.inputs[:2], total]
    new = rewriter.emit(conv.op_type, inputs, conv.attributes, like=conv)
    rewriter.replace(node.outputs[0], new)
    return True


def _fits_conv_bias(conv: ir.Node, term: ir.Value | None, rewriter: Rewriter) -> bool:
    """Returns True if a constant has one number per channel and nothing else reads the result."""
    sizes, result = dims(term), dims(conv.outputs[0])
    if sizes is None or result is None or len(sizes) > len(result):
        return False
    if not rewriter.only_use(conv.outputs[0]) or not rewriter.is_foldable(term):
        return False
    if len(conv.inputs) > 2 and not rewriter.is_foldable(conv.inputs[2]):
        return False
    wide = [1] * (len(result) - len(sizes)) + sizes
    return wide[1] in (1, result[1]) and all(s == 1 for i, s in enumerate(wide) if i != 1)


def _per_channel(channels: int) -> Callable[..., torch.Tensor]:
    def per_channel(term: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        wide = term.reshape(-1).expand(channels)
        return wide if bias is None else wide + bias

    return per_channel


def pad_into_windows(node: ir.Node, rewriter: Rewriter) -> bool:
    """``Conv(Pad(x, p))`` -> ``Conv(x, pads + p)`` for zeros around the spatial axes.

    Also for AveragePool if it counts the padding.
    """
    pad = rewriter.producer(node.inputs[0], "Pad")
    if pad is None or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return False
    known = rank(pad.inputs[0])
    added = None if known is None else _zeros_added(pad, known, rewriter)
    if added is None or known is None:
        return False
    spatial = known - 2
    before = node.attributes.get_ints("pads") or [0] * (2 * spatial)
    attributes = dict(node.attributes)
    if node.op_type == "AveragePool":
        counted = node.attributes.get_int("count_include_pad", 0) or not any(before)
        if not counted or node.attributes.get_int("ceil_mode"):
            return False
        attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    pads = [a + b for a, b in zip(before, added, strict=True)]
    attributes["pads"] = ir.AttrInt64s("pads", pads)
    if node.op_type == "AveragePool" and not _fits_pooling_window(node, pads):
        return False
    inputs = [pad.inputs[0], *node.inputs[1:]]
    rewriter.replace(node.outputs[0], rewriter.emit(node.op_type, inputs, attributes, like=pad))
    return True


def _fits_pooling_window(pool: ir.Node, pads: Sequence[int]) -> bool:
    """Returns True if the padding is smaller than the window, as runtimes require."""
    kernel = pool.attributes.get_ints("kernel_shape") or []
    return all(pad < size for pad, size in zip(pads, [*kernel, *kernel], strict=True))


def _zeros_added(pad: ir.Node, known: int, rewriter: Rewriter) -> list[int] | None:
    """Begins and ends of a Pad's spatial axes; None if it pads other axes, or not with zeros."""
    if pad.attributes.get_string("mode", "constant") != "constant" or len(pad.inputs) > 3:
        return None
    if len(pad.inputs) > 2 and pad.inputs[2] is not None:
        value = rewriter.constant(pad.inputs[2])
        if value is None or bool(value.any()):
            return None
    pads = rewriter.constant(pad.inputs[1])
    if pads is None or pads.numel() != 2 * known or bool((pads < 0).any()):
        return None
    begins, ends = pads[:known].tolist(), pads[known:].tolist()
    if any(begins[:2]) or any(ends[:2]) or known < 3:
        return None
    return [*begins[2:], *ends[2:]]


ADD_TO_CONV_BIAS = Rule(
    "add_to_conv_bias",
    ("Add",),
    add_to_conv_bias,
    exact=False,
    behind=frozenset({"Conv", "ConvTranspose"}),
)
PAD_INTO_WINDOWS = Rule(
    "pad_into_windows",
    ("Conv", "AveragePool"),
    pad_into_windows,
    exact=False,
    since=11,
    behind=frozenset({"Pad"}),
)
