"""Detection models of torchvision, with any number of boxes (even none) and any image size."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import onnx_aot
from benchmarks.models.torchvision_cpu import load_torchvision
from onnx_aot.errors import CaptureError
from onnx_aot.inspection.verify import verify_against

torchvision = load_torchvision()
if torchvision is None:
    pytest.skip("needs torchvision", allow_module_level=True)

from torchvision.models import detection  # noqa: E402
from torchvision.models.detection.anchor_utils import (  # noqa: E402
    AnchorGenerator,
    DefaultBoxGenerator,
)
from torchvision.models.detection.image_list import ImageList  # noqa: E402
from torchvision.ops import MultiScaleRoIAlign  # noqa: E402
from torchvision.ops.boxes import batched_nms  # noqa: E402

CHANNELS = 32  # groups of the normalization in FCOS
IMAGES = {"min_size": 48, "max_size": 64}
DENSE = {"num_classes": 3, "detections_per_img": 20, "topk_candidates": 20}
REGIONS: dict[str, Any] = {
    "num_classes": 3,
    "rpn_pre_nms_top_n_test": 12,
    "rpn_post_nms_top_n_test": 8,
    "box_detections_per_img": 6,
}
ANYWHERE = ([{1: "height", 2: "width"}],)


class Backbone(torch.nn.Module):
    """Returns two feature maps, a quarter and an eighth as large as the image."""

    out_channels = CHANNELS

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, CHANNELS, 4, 4)
        self.second = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        first = self.first(x).tanh()
        return OrderedDict([("0", first), ("1", self.second(first).tanh())])


def anchors(per_place: int) -> Any:
    return AnchorGenerator(((8,), (16,)), ((0.5, 1.0, 2.0)[:per_place],) * 2)


def pooled(size: int) -> Any:
    return MultiScaleRoIAlign(["0", "1"], size, 2, canonical_scale=24)


def regions(kind: Any, **options: Any) -> torch.nn.Module:
    options = {"box_roi_pool": pooled(3), **options}
    return kind(  # type: ignore[no-any-return]
        Backbone(), rpn_anchor_generator=anchors(3), **REGIONS, **IMAGES, **options
    )


def ssd() -> torch.nn.Module:
    generator = DefaultBoxGenerator([[2], [2]], scales=[0.2, 0.5, 0.9])
    options = {"num_classes": 3, "detections_per_img": 6, "topk_candidates": 20}
    head = detection.ssd.SSDHead([CHANNELS] * 2, generator.num_anchors_per_location(), 3)
    return detection.ssd.SSD(  # type: ignore[no-any-return]
        Backbone(), generator, (32, 40), head=head, **options
    )


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "retinanet": lambda: detection.RetinaNet(
        Backbone(), anchor_generator=anchors(3), **DENSE, **IMAGES
    ),
    "fcos": lambda: detection.FCOS(Backbone(), anchor_generator=anchors(1), **DENSE, **IMAGES),
    "ssd": ssd,
    "faster_rcnn": lambda: regions(detection.FasterRCNN),
    "mask_rcnn": lambda: regions(detection.MaskRCNN, mask_roi_pool=pooled(4)),
    "keypoint_rcnn": lambda: regions(
        detection.KeypointRCNN, keypoint_roi_pool=pooled(4), num_keypoints=4
    ),
}


def image(index: int, height: int = 52, width: int = 60) -> torch.Tensor:
    """Returns a random image whose contrast grows with the index."""
    generator = torch.Generator().manual_seed(index)
    return (0.2 + 0.5 * index) * torch.rand(3, height, width, generator=generator)


@functools.cache
def model(name: str) -> torch.nn.Module:
    """Random weights, with a threshold at which one of four images has no detections."""
    torch.manual_seed(1)
    made = MODELS[name]().eval()
    for part in made.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear, torch.nn.ConvTranspose2d)):
            torch.nn.init.normal_(part.weight, std=1.5 * part.weight[0].numel() ** -0.5)
            if part.bias is not None:
                torch.nn.init.normal_(part.bias, std=0.1)
    set_threshold(made, 0.0)
    with torch.no_grad():
        found = [made([image(index)])[0]["scores"].max() for index in range(4)]
    lowest, second = sorted(float(score) for score in found)[:2]
    set_threshold(made, (lowest + second) / 2)
    return made


def set_threshold(made: Any, threshold: float) -> None:
    getattr(made, "roi_heads", made).score_thresh = threshold


def assert_right(program: Any, module: torch.nn.Module, images: list[torch.Tensor]) -> list[int]:
    """Compares with PyTorch; returns the number of detections per image."""
    differences = verify_against(program, module, (images,), {})
    assert differences
    assert all(d.within for d in differences), [str(d) for d in differences]
    with torch.no_grad():
        return [len(found["scores"]) for found in module(images)]


@pytest.mark.parametrize("name", MODELS)
def test_any_number_is_found(name: str) -> None:
    program = onnx_aot.export(model(name), ([image(1)],))
    counts = [n for i in range(8) for n in assert_right(program, model(name), [image(i)])]
    assert 0 in counts
    assert len(set(counts)) > 2


@pytest.mark.parametrize("name", ["fcos", "mask_rcnn"])
def test_images_of_any_size(name: str) -> None:
    program = onnx_aot.export(model(name), ([image(1)],), dynamic_shapes=ANYWHERE)
    sizes = ((52, 60), (60, 52), (40, 130), (97, 64))
    counts = [
        n
        for i, size in enumerate(sizes)
        for n in assert_right(program, model(name), [image(2 * i, *size)])
    ]
    assert len(set(counts)) > 1


def test_several_images() -> None:
    """The list has a fixed length, and each image has its own number of detections."""
    program = onnx_aot.export(model("faster_rcnn"), ([image(1), image(2, 40, 70)],))
    counts = assert_right(program, model("faster_rcnn"), [image(3), image(4, 40, 70)])
    counts += assert_right(program, model("faster_rcnn"), [image(6), image(0, 40, 70)])
    assert len(set(counts)) > 1


def test_checks_pass_whatever_is_found() -> None:
    """The checks assume nothing about the data, so the model accepts all of it."""
    program = onnx_aot.export(model("faster_rcnn"), ([image(1)],), runtime_checks=True)
    counts = [n for i in range(4) for n in assert_right(program, model("faster_rcnn"), [image(i)])]
    assert 0 in counts
    assert len(set(counts)) > 1


class PooledPart(torch.nn.Module):
    """Regions of the first rows of a map; the number of rows is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = MultiScaleRoIAlign(["0"], 2, 2)

    def forward(self, x: torch.Tensor, rows: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        count = rows.item()
        torch._check(count >= 4)
        torch._check(count <= x.shape[2])
        return self.pool({"0": x[:, :, :count]}, [boxes], [(32, 32)])


def test_scales_that_depend_on_data() -> None:
    inputs = torch.rand(1, 3, 16, 16), torch.tensor(8), torch.tensor([[2.0, 3.0, 20.0, 25.0]])
    model = PooledPart().eval()
    with pytest.raises(CaptureError, match="once with real images"):
        onnx_aot.export(model, inputs)
    expected = model(*inputs)
    program = onnx_aot.export(model, inputs)
    torch.testing.assert_close(program(*inputs)[0], expected)


# --- parts exported alone ------------------------------------------------------------------------


class Suppresses(torch.nn.Module):
    """Calls a function that this file has imported by name."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept = scores > 0.3
        return batched_nms(boxes[kept], scores[kept], torch.zeros_like(scores[kept]), 0.5)


class Proposes(torch.nn.Module):
    def __init__(self, detector: torch.nn.Module) -> None:
        super().__init__()
        self.rpn = detector.rpn

    def forward(
        self, image: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> torch.Tensor:
        images = ImageList(image, [(image.shape[2], image.shape[3])])
        return self.rpn(images, {"0": first, "1": second})[0][0]  # type: ignore[no-any-return]


def corners(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    first = torch.rand(count, 2, generator=generator) * 20
    return torch.cat([first, first + 4 + torch.rand(count, 2, generator=generator) * 20], dim=1)


def spread_scores(detector: torch.nn.Module) -> torch.nn.Module:
    """Makes scores differ by more than rounding, so that their order is the same everywhere."""
    torch.manual_seed(0)
    for weight in detector.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return detector.eval()


def test_imported_by_name() -> None:
    sizes = ({0: "n"}, {0: "n"})
    program = onnx_aot.export(Suppresses(), (corners(9), torch.rand(9)), dynamic_shapes=sizes)
    for count in (9, 40, 1):
        inputs = (corners(count), torch.rand(count))
        torch.testing.assert_close(program(*inputs)[0], Suppresses()(*inputs))


def test_region_proposals_alone() -> None:
    detector = spread_scores(regions(detection.FasterRCNN))
    model = Proposes(detector)

    def inputs(height: int, width: int) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(height)
        image = torch.rand(1, 3, height, width)
        with torch.no_grad():
            return image, *detector.backbone(image).values()

    names = tuple({2: f"h{i}", 3: f"w{i}"} for i in range(3))
    program = onnx_aot.export(model, inputs(48, 64), dynamic_shapes=names)
    for size in ((48, 64), (64, 40)):
        with torch.no_grad():
            expected = model(*inputs(*size))
        torch.testing.assert_close(program(*inputs(*size))[0], expected, rtol=1e-3, atol=1e-3)


def test_region_heads_alone() -> None:
    detector = spread_scores(regions(detection.FasterRCNN))
    image = torch.rand(1, 3, 48, 64)
    with torch.no_grad():
        features = dict(detector.backbone(image))

    def inputs(count: int) -> tuple[Any, ...]:
        return features, [corners(count)], [(48, 64)]

    program = onnx_aot.export(
        detector.roi_heads, inputs(9), dynamic_shapes=({"0": {}, "1": {}}, [{0: "n"}], None)
    )
    for count in (9, 30, 1):
        with torch.no_grad():
            (expected,), _ = detector.roi_heads(*inputs(count))
        results = [expected[name] for name in ("boxes", "labels", "scores")]
        torch.testing.assert_close(list(program(*inputs(count))), results, rtol=1e-3, atol=1e-3)
