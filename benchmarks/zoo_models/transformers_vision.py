"""Rows of transformers' models for images and videos."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.tiny import CHANNELS, SIDE
from benchmarks.zoo_models.transformers_rows import Inputs, image_case, model_builder

__all__ = ["CASES"]

_GROUP = "transformers: images and videos"

# Types that take images of one size.
_FIXED = """
vit deit beit dinov2 dinov2_with_registers data2vec-vision clip_vision_model ijepa dpt
siglip_vision_model vit_msn vitdet yolos internvl_vision aimv2_vision_model
chinese_clip_vision_model idefics3_vision pvt
""".split()

# Types that take images of any size: convolutions, windows, rotary positions.
_FREE = """
dinov3_vit dinov3_convnext focalnet glpn hgnet_v2 bit convnext convnextv2 mobilenet_v1
mobilenet_v2 mobilevit mobilevitv2 poolformer pvt_v2 regnet resnet segformer swiftformer cvt
textnet
""".split()

_CLIPS = "timesformer videomae vivit".split()

# Windows of four patches, which are shifted in the second layer of a stage.
_WINDOWS = {
    "patch_size": 2,
    "window_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
}

_OPTIONS: dict[str, dict[str, Any]] = {
    "bit": {"num_groups": 4, "embedding_size": 16},
    "hiera": {"image_size": [64, 64]},
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "swin2sr": {
        "patch_size": 1,
        "window_size": 4,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "upsampler": "pixelshuffle",
    },
    "cvt": {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3]},
    "textnet": {
        "stem_out_channels": 8,
        "hidden_sizes": [8, 8, 16, 32, 64],
        "conv_layer_kernel_sizes": [[[3, 3]], [[3, 1]], [[1, 3]], [[3, 3]]],
        "conv_layer_strides": [[2], [2], [1], [2]],
    },
    "levit": {
        "image_size": 64,
        "patch_size": 16,
        "hidden_sizes": [16, 32, 48],
        "key_dim": [8, 8, 8],
    },
    "mobilevitv2": {"patch_size": 2, "width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1]},
}


def _clip_case(model_type: str) -> ZooCase:
    """Row for videos of two frames."""

    def inputs(batch: int) -> Inputs:
        return (), {"pixel_values": torch.randn(batch, 2, CHANNELS, SIDE, SIDE)}

    return ZooCase(
        name=model_type,
        build=model_builder(model_type, num_frames=2),
        inputs=inputs,
        dynamic_shapes={"pixel_values": {0: "batch"}},
        sizes=({"batch": 2}, {"batch": 3}),
        group=_GROUP,
    )


CASES = (
    *(image_case(name, _GROUP, **_OPTIONS.get(name, {})) for name in _FIXED),
    *(image_case(name, _GROUP, side=64, **_OPTIONS[name]) for name in ("hiera", "levit")),
    *(image_case(name, _GROUP, free=True, **_OPTIONS[name]) for name in ("swin", "swinv2")),
    image_case("swin2sr", _GROUP, "AutoModelForImageToImage", free=True, **_OPTIONS["swin2sr"]),
    *(image_case(name, _GROUP, side=64, free=True, **_OPTIONS.get(name, {})) for name in _FREE),
    *map(_clip_case, _CLIPS),
)
