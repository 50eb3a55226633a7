"""Replaces Python code of torchvision's detection models while a model is traced.

Torchvision's code reads sizes as numbers and loops over the detections. These functions give the
same results for every size and for any number of boxes, including none.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import Patch

__all__ = ["DETECTION"]

Tensor = torch.Tensor

_MODELS = "torchvision.models.detection"


def _batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """``batched_nms`` with one algorithm for every number of boxes.

    Torchvision chooses between two algorithms by the number of boxes, which depends on data. This
    is one of them: the boxes of each class are moved to where no other class has any.
    """
    ends = torch.cat([boxes.flatten(), boxes.new_zeros(1)])
    moved = boxes + (idxs.to(boxes) * (ends.max() + 1))[:, None]
    return torch.ops.torchvision.nms(moved, scores, iou_threshold)  # type: ignore[no-any-return]


def _decode(self: Any, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
    """``BoxCoder.decode`` without the test for boxes; none give ``[0, classes, 4]``.

    Args:
        self: The ``BoxCoder``.
        rel_codes: Offsets, ``[N, 4 * classes]``.
        boxes: The boxes that the offsets refer to, ``[N_i, 4]`` per image.

    Returns:
        ``[N, classes, 4]``.
    """
    decoded = self.decode_single(rel_codes, torch.cat(boxes, dim=0))
    return decoded.unflatten(1, (-1, 4))  # type: ignore[no-any-return]


def _batch_images(self: Any, images: list[Tensor], size_divisible: int = 32) -> Tensor:
    """``GeneralizedRCNNTransform.batch_images``, without turning the sizes into numbers.

    Args:
        self: The transform.
        images: ``[C, H_i, W_i]`` each.
        size_divisible: Height and width of the result are multiples of this.

    Returns:
        ``[N, C, H, W]``, with zeros below and to the right of each image.
    """
    for axis in (1, 2):
        sizes = [image.shape[axis] for image in images]
        largest: Any = functools.reduce(torch.sym_max, sizes)
        steps = (largest + size_divisible - 1) // size_divisible
        if isinstance(steps, torch.SymInt):
            steps = torch_compat.fresh_size(steps)
            torch._check(steps >= 1)  # type: ignore[no-untyped-call]
        whole = steps * size_divisible
        images = [
            _extend_edge(image, axis, whole - size)
            for image, size in zip(images, sizes, strict=True)
        ]
    return torch.stack(images)


def _extend_edge(image: Tensor, axis: int, more: Any) -> Tensor:
    shape = list(image.shape)
    shape[axis] = more
    return torch.cat([image, image.new_zeros(shape)], axis)


def _infer_scale(feature: Tensor, original_size: Sequence[int]) -> float:
    """The scale of a feature map, a power of 2, for the sizes of the example.

    Torchvision's ``MultiScaleRoIAlign`` keeps the scales that it computed for its first images.

    Raises:
        CaptureError: A size depends on data, so the example does not tell it.
    """
    size, original = (torch_compat.example_size(n) for n in (feature.shape[-2], original_size[0]))
    if size is None or original is None:
        raise CaptureError(
            "torchvision's MultiScaleRoIAlign works the scale of a feature map out from its size, "
            "which depends on data here. Call the model once with real images before the export: "
            "it keeps the scales that it finds",
            code="OA107",
        )
    return float(2 ** round(math.log2(size / original)))


# --- masks ---------------------------------------------------------------------------------------


def _paste_masks(
    masks: Tensor, boxes: Tensor, img_shape: Sequence[int], padding: int = 1
) -> Tensor:
    """``paste_masks_in_image`` without the loop that resizes each mask to its box.

    Resizing is linear along each axis: a matrix of weights for the rows and one for the columns.

    Args:
        masks: Probabilities, ``[N, 1, M, M]``.
        boxes: ``[N, 4]``, in pixels of the image.
        img_shape: Height and width of the image.
        padding: Pixels around a mask that extend beyond the box.

    Returns:
        ``[N, 1, height, width]``, 0 outside the boxes.
    """
    functions = vars(sys.modules[f"{_MODELS}.roi_heads"])
    masks, scale = functions["expand_masks"](masks, padding=padding)
    corners = functions["expand_boxes"](boxes, scale).to(torch.int64)
    rows = _linear_weights(corners[:, 1], corners[:, 3], img_shape[0], masks)
    columns = _linear_weights(corners[:, 0], corners[:, 2], img_shape[1], masks)
    return (rows @ masks[:, 0] @ columns.transpose(1, 2))[:, None]


def _linear_weights(first: Tensor, last: Tensor, size: int, like: Tensor) -> Tensor:
    """Weights of ``interpolate(mode="bilinear")`` to ``first ... last``, ``[N, size, M]``."""
    count = like.shape[-1]
    extent = (last - first + 1).clamp(min=1)[:, None].to(like.dtype)
    pixels = torch.arange(size, device=like.device)
    inside = (pixels >= first[:, None]) & (pixels <= last[:, None])
    place = (pixels - first[:, None]).to(like.dtype)
    source = ((place + 0.5) * (count / extent) - 0.5).clamp(0, count - 1)
    points = torch.arange(count, dtype=like.dtype, device=like.device)
    weights = (1 - (source[:, :, None] - points).abs()).clamp(min=0)
    return weights * inside[:, :, None].to(like.dtype)


# --- keypoints -----------------------------------------------------------------------------------


def _keypoints(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """``heatmaps_to_keypoints`` as a loop of the graph instead of a Python loop over regions.

    Each map is resized to its region, by weights for the rows and the columns up to the largest
    region, and searched for its maximum.

    Args:
        maps: Heat maps, ``[N, K, H, W]``.
        rois: ``[N, 4]``.

    Returns:
        ``[N, K, 3]``: x, y and 1; and ``[N, K]``: the maps' values there.
    """
    extents = (rois[:, 2:] - rois[:, :2]).clamp(min=1)  # width, height
    whole = extents.ceil()
    columns, rows = (_up_to(whole[:, axis]) for axis in (0, 1))
    x, y, scores = torch_compat.map_slices(
        _find_strongest, (maps, whole.to(torch.int64)), columns, rows
    )
    places = [
        (index + 0.5) * (extents[:, axis] / whole[:, axis])[:, None] + rois[:, axis][:, None]
        for axis, index in enumerate((x, y))
    ]
    return torch.stack([*places, torch.ones_like(places[0])], dim=2), scores


def _up_to(sizes: Tensor) -> Tensor:
    """The integers from 0 to the largest size, exclusive; ``[0]`` if there are no sizes."""
    largest = torch.cat([sizes, sizes.new_ones(1)]).max().to(torch.int64).item()
    torch._check(largest >= 1)  # type: ignore[no-untyped-call]
    return torch.arange(largest, device=sizes.device)


def _find_strongest(
    slices: tuple[Tensor, Tensor], columns: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Column, row and value of the maximum of each of ``K`` maps ``[H, W]``, resized."""
    maps, (width, height) = slices[0], slices[1].unbind()
    across = _cubic_weights(columns, width, maps.shape[2], maps.dtype)
    down = _cubic_weights(rows, height, maps.shape[1], maps.dtype)
    resized = down @ maps @ across.transpose(0, 1)
    outside = (rows >= height)[:, None] | (columns >= width)[None, :]
    values, places = resized.masked_fill(outside, -math.inf).flatten(1).max(dim=1)
    down_to = places // columns.shape[0]
    across_to = places - down_to * columns.shape[0]
    return across_to.to(torch.float32), down_to.to(torch.float32), values.to(torch.float32)


def _cubic_weights(pixels: Tensor, extent: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Weights of ``interpolate(mode="bicubic")`` of ``count`` points, ``[len(pixels), count]``.

    The cubic has the coefficient -0.75 (R. Keys, Cubic convolution interpolation, 1981). Points
    beyond a border repeat the one at the border.
    """
    source = (pixels.to(dtype) + 0.5) * (count / extent.to(dtype)) - 0.5
    before = source.floor()
    offsets = torch.arange(-1, 3, dtype=dtype, device=pixels.device)
    distance = ((source - before)[:, None] - offsets).abs()
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    weights = torch.where(distance <= 1, near, far)
    taken = (before[:, None] + offsets).clamp(0, count - 1)
    points = torch.arange(count, dtype=dtype, device=pixels.device)
    return (weights[:, :, None] * (taken[:, :, None] == points)).sum(1)


# --- the rows ------------------------------------------------------------------------------------

_COUNTED = "Detection models are refused, or exported for as many boxes as the example has."


def _make_patch(
    place: str, replacement: Callable[..., Any], parameters: str, without: str
) -> Patch:
    return Patch(
        place,
        lambda original, settings: replacement,
        without,
        parameters=parameters,
        imports=False,
    )


DETECTION: tuple[Patch, ...] = (
    *(
        _make_patch(
            f"{module}:batched_nms", _batched_nms, "boxes, scores, idxs, iou_threshold", _COUNTED
        )
        for module in ("torchvision.ops", "torchvision.ops.boxes")
    ),
    _make_patch(
        "torchvision.ops.poolers:_infer_scale",
        _infer_scale,
        "feature, original_size",
        "MultiScaleRoIAlign is refused with dynamic sizes of images.",
    ),
    _make_patch(f"{_MODELS}._utils:BoxCoder.decode", _decode, "self, rel_codes, boxes", _COUNTED),
    _make_patch(
        f"{_MODELS}.transform:GeneralizedRCNNTransform.batch_images",
        _batch_images,
        "self, images, size_divisible",
        "Detection models with dynamic sizes of images are captured twice.",
    ),
    _make_patch(
        f"{_MODELS}.transform:paste_masks_in_image",
        _paste_masks,
        "masks, boxes, img_shape, padding",
        _COUNTED,
    ),
    _make_patch(f"{_MODELS}.roi_heads:heatmaps_to_keypoints", _keypoints, "maps, rois", _COUNTED),
)
