"""Rows of torchvision: classification, segmentation, detection, video and optical flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.zoo_models.case import ZooCase

__all__ = ["CASES", "image_case"]


def _build(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    return lambda: load_torchvision().models.get_model(name, **options)


def image_case(
    group: str,
    name: str,
    build: Callable[[], torch.nn.Module],
    first: tuple[int, int] = (64, 96),
    second: tuple[int, int] = (128, 160),
) -> ZooCase:
    """Row for images of any height and width."""
    return ZooCase(
        name=f"{group}_{name}",
        build=build,
        inputs=lambda batch, height, width: ((torch.randn(batch, 3, height, width),), {}),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=tuple(
            {"batch": batch, "height": height, "width": width}
            for batch, (height, width) in ((2, first), (3, second))
        ),
        group=group,
    )


def _classification_case(name: str, first: int = 64, second: int = 96, **options: Any) -> ZooCase:
    sides = (first, second), (second, first)
    return image_case("torchvision", name, _build(name, **options), *sides)


def _segmentation_case(name: str) -> ZooCase:
    build = _build(name, weights=None, weights_backbone=None, num_classes=5)
    return image_case("torchvision", name, build)


def _vision_transformer() -> torch.nn.Module:
    return load_torchvision().models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)


def _detection_case(name: str, second: tuple[int, int] = (128, 112), **options: Any) -> ZooCase:
    """Row for a list of one image, which determines the number of boxes."""
    return ZooCase(
        name=f"torchvision_{name}",
        build=lambda: _with_small_moves(
            _build(name, weights=None, weights_backbone=None, **options)()
        ),
        inputs=lambda height, width, images=1: (
            ([torch.rand(3, height, width) for _ in range(images)],),
            {},
        ),
        dynamic_shapes=([{1: "height", 2: "width"}],),
        sizes=({"height": 96, "width": 128}, {"height": second[0], "width": second[1]}),
        group="torchvision",
    )


def _with_small_moves(model: torch.nn.Module) -> torch.nn.Module:
    """Scales down the layers that move boxes, since trained ones also move them little.

    Boxes are exponentials of the outputs of these layers, and masks start at whole pixels, so large
    moves amplify rounding errors beyond any tolerance.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bbox_pred" in name:
                weight.mul_(0.1)
    return model


def _video_case(name: str, side: int, frames: int, free: bool = True) -> ZooCase:
    """Row for clips, of any length and size if ``free``."""
    names = {0: "batch", 2: "frames", 3: "height", 4: "width"} if free else {0: "batch"}
    larger = {"frames": frames + 4, "height": side + 16, "width": side + 32}

    def inputs(
        batch: int, frames: int = frames, height: int = side, width: int = side
    ) -> tuple[Any, Any]:
        return (torch.randn(batch, 3, frames, height, width),), {}

    return ZooCase(
        name=f"torchvision_{name}",
        build=_build(name, weights=None),
        inputs=inputs,
        dynamic_shapes=(names,),
        sizes=(
            {"batch": 2, **({"frames": frames, "height": side, "width": side} if free else {})},
            {"batch": 1, **(larger if free else {})},
        ),
        group="torchvision",
    )


def _flow_case(name: str) -> ZooCase:
    """Row for two images, with two steps of refinement."""
    size = {0: "batch", 2: "height", 3: "width"}

    def inputs(batch: int, height: int, width: int) -> tuple[Any, Any]:
        pair = [torch.rand(batch, 3, height, width) for _ in range(2)]
        return tuple(pair), {"num_flow_updates": 2}

    return ZooCase(
        name=f"torchvision_{name}",
        build=_build(name, weights=None),
        inputs=inputs,
        dynamic_shapes={"image1": size, "image2": size, "num_flow_updates": None},
        sizes=(
            {"batch": 2, "height": 128, "width": 144},
            {"batch": 1, "height": 144, "width": 128},
        ),
        group="torchvision",
    )


_PLAIN = {"init_weights": False, "transform_input": True, "aux_logits": False}
_RCNN = {
    "min_size": 96,
    "max_size": 128,
    "box_score_thresh": 0.0,  # the scores of untrained weights are low
    "box_detections_per_img": 8,
}
_DENSE = {"score_thresh": 0.0, "detections_per_img": 8}

CASES = (
    *map(
        _classification_case,
        (
            "alexnet",
            "convnext_tiny",
            "densenet121",
            "efficientnet_b0",
            "efficientnet_v2_s",
            "mnasnet0_5",
            "mobilenet_v2",
            "mobilenet_v3_small",
            "regnet_x_400mf",
            "regnet_y_400mf",
            "resnet18",
            "resnext50_32x4d",
            "shufflenet_v2_x0_5",
            "squeezenet1_0",
            "vgg11_bn",
            "wide_resnet50_2",
        ),
    ),
    # These pad to windows; an export keeps the example's choice, and warns of it.
    *(
        image_case("torchvision", n, _build(n), (64, 96), (56, 128))
        for n in ("swin_t", "swin_v2_t")
    ),
    _classification_case("googlenet", **_PLAIN),
    _classification_case("inception_v3", 96, 128, **_PLAIN),
    ZooCase(
        name="torchvision_maxvit_t",
        build=_build("maxvit_t"),
        inputs=lambda batch: ((torch.randn(batch, 3, 224, 224),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 3}),
        group="torchvision",
    ),
    ZooCase(
        name="torchvision_vision_transformer",
        build=_vision_transformer,
        inputs=lambda batch: ((torch.randn(batch, 3, 32, 32),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 3}),
        group="torchvision",
    ),
    *map(
        _segmentation_case,
        ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"),
    ),
    _detection_case("fasterrcnn_mobilenet_v3_large_320_fpn", **_RCNN),
    # For padded images, PyTorch's own masks differ from float64 by more than the tolerance.
    _detection_case("maskrcnn_resnet50_fpn", (128, 96), **_RCNN),
    _detection_case("keypointrcnn_resnet50_fpn", **_RCNN),
    _detection_case("retinanet_resnet50_fpn", min_size=96, max_size=128, **_DENSE),
    _detection_case("fcos_resnet50_fpn", min_size=96, max_size=128, **_DENSE),
    # By default, pixels are scaled by 255, and every score of untrained weights is 1.
    _detection_case("ssd300_vgg16", image_std=[1.0, 1.0, 1.0], **_DENSE),
    _detection_case("ssdlite320_mobilenet_v3_large", **_DENSE),
    _video_case("mc3_18", 64, 8),
    _video_case("r3d_18", 64, 8),
    _video_case("r2plus1d_18", 64, 8),
    _video_case("s3d", 224, 16),
    _video_case("swin3d_t", 64, 8),
    _video_case("mvit_v2_s", 224, 16, free=False),
    _flow_case("raft_small"),
)
