"""Parts of torchvision's detection models that each need a single change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.torchvision_cpu import load_torchvision
from tests.torch_compat.models import Example

__all__ = ["DETECTION_MODELS"]

if load_torchvision() is not None:
    from torchvision import ops
    from torchvision.models.detection import _utils, roi_heads, transform


def spread(*sizes: int) -> Tensor:
    """Numbers from 0 to 1."""
    return torch.rand(sizes, generator=torch.Generator().manual_seed(0))


def boxes(n: int) -> Tensor:
    corners = torch.linspace(0, 9, 2 * n).reshape(n, 2)
    return torch.cat([corners, corners + 3], dim=1)


class Suppressed(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        kept = scores > 0.3
        return ops.batched_nms(boxes[kept], scores[kept], labels[kept], 0.4)


class SuppressedByModule(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        kept = scores > 0.3
        return ops.boxes.batched_nms(boxes[kept], scores[kept], labels[kept], 0.4)


class Decoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.coder = _utils.BoxCoder((10.0, 10.0, 5.0, 5.0))

    def forward(self, codes: Tensor, scores: Tensor) -> Tensor:
        kept = scores > 0.5
        return self.coder.decode(codes[kept], [boxes(8)[: kept.shape[0]][kept]])


class Batched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transform = transform.GeneralizedRCNNTransform(8, 16, [0.0], [1.0])

    def forward(self, image: Tensor) -> Tensor:
        return self.transform.batch_images([image], 32)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = ops.MultiScaleRoIAlign(["0"], 2, 2)

    def forward(self, image: Tensor, boxes: Tensor) -> Tensor:
        features = nn.functional.avg_pool2d(image, 4)
        sizes: Any = [(image.shape[2], image.shape[3])]
        result: Tensor = self.pool({"0": features}, [boxes], sizes)
        return result


class Pasted(nn.Module):
    def forward(self, masks: Tensor, boxes: Tensor) -> Tensor:
        result: Tensor = transform.paste_masks_in_image(masks, boxes, (20, 24))
        return result


class Found(nn.Module):
    def forward(self, maps: Tensor, boxes: Tensor) -> Any:
        return roi_heads.heatmaps_to_keypoints(maps, boxes)


def scored(n: int) -> tuple[Tensor, Tensor, Tensor]:
    return boxes(n), torch.linspace(0.1, 0.9, n), torch.arange(n) % 2


ROWS = ({0: "n"}, {0: "n"}, {0: "n"})

DETECTION_MODELS: dict[str, Example] = {
    "suppressed": Example(Suppressed, scored, dynamic_shapes=ROWS),
    "suppressed by module": Example(SuppressedByModule, scored, dynamic_shapes=ROWS),
    "decoded": Example(
        Decoded,
        lambda n: (torch.linspace(-1, 1, 8 * n).reshape(n, 8), torch.linspace(0.1, 0.9, n)),
        dynamic_shapes=ROWS[:2],
    ),
    "batched": Example(
        Batched, lambda n: (torch.ones(3, n, n + 1),), (20, 40), ({1: "h", 2: "w"},)
    ),
    "pooled": Example(
        Pooled,
        lambda n: (torch.linspace(0, 1, 8 * n * n).reshape(1, 8, n, n), boxes(3)),
        (16, 32),
        ({2: "h", 3: "w"}, None),
    ),
    "pasted": Example(Pasted, lambda n: (spread(n, 1, 6, 6), boxes(n)), dynamic_shapes=ROWS[:2]),
    "found": Example(Found, lambda n: (spread(n, 2, 6, 6), boxes(n)), dynamic_shapes=ROWS[:2]),
}
