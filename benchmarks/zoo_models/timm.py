"""Rows of timm: the smallest network of each of its families."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.zoo_models.case import ZooCase
from benchmarks.zoo_models.torchvision import image_case

__all__ = ["CASES"]

# Networks that take images of any height and width.
_FREE = """
convnext_atto convmixer_768_32 cpubone_nano cs3darknet_s cspnext_tiny densenet121 dla34 dpn68
edgenext_xx_small efficientnet_b0 efficientvit_b0 fasternet_s fastvit_t8 ghostnet_050 hardcorenas_a
hgnetv2_b0 hrnet_w18_small iformer_t inception_next_atto lcnetv2_small lowformer_b0 test_mambaout
caformer_s18 mobilenetv3_small_050 mobilevit_xxs test_nfnet pvt_v2_b0 rdnet_tiny regnetx_002
repghostnet_050 repvit_m0_9 res2net50_26w_4s resnest26d resnet10t resnetv2_18 rexnet_100 selecsls42
legacy_seresnet18 skresnet18 starnet_s050 nextvit_small vgg11 ese_vovnet19b_slim legacy_xception
xception41 davit_tiny focalnet_tiny_srf twins_svt_small tresnet_m
""".split()
_INCEPTIONS = "inception_v3 inception_v4 inception_resnet_v2".split()

# Networks that take images of one size: 224, unless _SIDES has another.
_FIXED = """
bat_resnext26ts beit_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_lite_tiny
coatnet_pico_rw_224 convit_tiny crossvit_tiny_240 deit_tiny_patch16_224 eva02_tiny_patch14_224
hiera_tiny_224 levit_128s mixer_s32_224 efficientformer_l1 efficientformerv2_s0 efficientvit_m0
efficientvim_m1 gcvit_xxtiny nest_tiny pit_xs_224 sequencer2d_s swiftformer_xs
swin_tiny_patch4_window7_224 swinv2_cr_tiny_224 swinv2_tiny_window8_256 test_vit tiny_vit_5m_224
tnt_s_patch16_224 visformer_tiny vit_tiny_r_s16_p8_224 vit_relpos_small_patch16_224
vitamin_small_224 volo_d1_224 xcit_nano_12_p16_224 mvitv2_tiny samvit_base_patch16_224
""".split()
_SIDES = {
    "bat_resnext26ts": 256,
    "botnet26t_256": 256,
    "crossvit_tiny_240": 240,
    "swinv2_tiny_window8_256": 256,
    "test_vit": 160,
}


def _build(name: str) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        load_torchvision()  # before timm, which imports it
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10)

    return build


def _fixed_size_case(name: str, side: int) -> ZooCase:
    return ZooCase(
        name=f"timm_{name}",
        build=_build(name),
        inputs=lambda batch: ((torch.randn(batch, 3, side, side),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 2}, {"batch": 3}),
        group="timm",
    )


CASES = (
    *(image_case("timm", name, _build(name)) for name in _FREE),
    *(image_case("timm", name, _build(name), (96, 128), (128, 96)) for name in _INCEPTIONS),
    image_case("timm", "shvit_s1", _build("shvit_s1"), (128, 192), (192, 256)),  # side / 64 > 1
    *(_fixed_size_case(name, _SIDES.get(name, 224)) for name in _FIXED),
)
