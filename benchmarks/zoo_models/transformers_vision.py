"""transformers' models of images and videos."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import CHANNELS, SIDE
from benchmarks.zoo_models.transformers_rows import Inputs, built, images

__all__ = ["CASES"]

_GROUP = "transformers: images and videos"

# Types that take images of one size.
_FIXED = """
vit deit beit dinov2 dinov2_with_registers data2vec-vision clip_vision_model ijepa dpt
siglip_vision_model vit_msn vitdet yolos internvl_vision aimv2_vision_model
chinese_clip_vision_model idefics3_vision
""".split()

# Types that take any: convolutions, windows, rotary positions.
_FREE = """
dinov3_vit dinov3_convnext focalnet glpn hgnet_v2 bit convnext convnextv2 mobilenet_v1
mobilenet_v2 mobilevit poolformer pvt_v2 regnet resnet segformer swiftformer
""".split()

_CLIPS = "timesformer videomae vivit".split()

_OPTIONS: dict[str, dict[str, Any]] = {
    "bit": {"num_groups": 4, "embedding_size": 16},
    "hiera": {"image_size": [64, 64]},
}


def _clips(model_type: str) -> ZooCase:
    """Videos of two frames."""

    def inputs(batch: int) -> Inputs:
        return (), {"pixel_values": torch.randn(batch, 2, CHANNELS, SIDE, SIDE)}

    return ZooCase(
        name=model_type,
        build=built(model_type, num_frames=2),
        inputs=inputs,
        dynamic_shapes={"pixel_values": {0: "batch"}},
        sizes=({"batch": 2}, {"batch": 3}),
        group=_GROUP,
    )


CASES = (
    *(images(name, _GROUP, **_OPTIONS.get(name, {})) for name in _FIXED),
    images("hiera", _GROUP, side=64, **_OPTIONS["hiera"]),
    *(images(name, _GROUP, side=64, free=True, **_OPTIONS.get(name, {})) for name in _FREE),
    *map(_clips, _CLIPS),
)
