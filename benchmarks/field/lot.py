"""Models of packages drawn by lot from those with many downloads whose summary names PyTorch.

Names of packages with ``torch``, ``neural``, ``transformer`` and the like in their summary were
shuffled and taken in that order, each before it was known whether its models export.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import (
    BATCH,
    BATCHES,
    LENGTHS,
    PICTURES,
    SEQUENCE,
    FieldCase,
    Method,
    call,
    noise,
    tokens,
)

__all__ = ["CASES"]

PAIR: dict[str, Any] = {
    "dynamic_shapes": ({0: "batch", 3: "height", 4: "width"},),
    "inputs": lambda batch, height, width: ((torch.rand(batch, 2, 3, height, width),), {}),
    "sizes": PICTURES["sizes"],
}


def _build_small_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def _build_quantized_by_diffq() -> nn.Module:
    """Quantizes a network at run time; in eval mode it computes with quantized weights."""
    from diffq import DiffQuantizer

    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    DiffQuantizer(model, group_size=8, min_size=0)
    return model


def _build_quantized_by_quanto() -> nn.Module:
    from optimum.quanto import freeze, qint8, quantize

    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    quantize(model, weights=qint8)
    freeze(model)
    return model


class _Cluster(nn.Module):
    """Assigns points to given centers, as a model that was fitted by ``kmeans`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centers", torch.randn(5, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from kmeans_pytorch import kmeans_predict

        return kmeans_predict(x, self.centers)


def _build_dsalt() -> nn.Module:
    from dsalt.model.config import DSALTConfig
    from dsalt.model.dsalt_lm import DSALTLMHeadModel

    config = DSALTConfig(
        vocab_size=100,
        d_model=64,
        n_layers=2,
        n_heads=4,
        n_min=2,
        n_max=6,
        k_lmk=4,
        max_seq_len=64,
    )
    return DSALTLMHeadModel.from_config(config)


class _Attention(nn.Module):
    """Self-attention by the layer whose gradients opacus can make private."""

    def __init__(self) -> None:
        super().__init__()
        from opacus.layers import DPMultiheadAttention

        self.layer = DPMultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x, x, x)


def _build_reversed() -> nn.Module:
    """Builds the classifier of domains of the package's README."""
    from pytorch_revgrad import RevGrad

    return nn.Sequential(nn.Linear(10, 5), nn.Linear(5, 2), RevGrad())


def _build_adapted() -> nn.Module:
    import loralib

    return nn.Sequential(
        loralib.Embedding(100, 32, r=4),
        loralib.MergedLinear(32, 96, r=4, enable_lora=[True, False, True]),
        nn.GELU(),
        loralib.Linear(96, 32, r=4),
    )


def _build_test_time_segmentation() -> nn.Module:
    import segmentation_models_pytorch
    import ttach

    model = segmentation_models_pytorch.Unet("resnet18", encoder_weights=None)
    return ttach.SegmentationTTAWrapper(model, ttach.aliases.d4_transform(), merge_mode="mean")


def _build_test_time_classification() -> nn.Module:
    import ttach

    return ttach.ClassificationTTAWrapper(
        _build_small_net(), ttach.aliases.five_crop_transform(48, 48)
    )


def _build_converted() -> nn.Module:
    """Converts a small ONNX model with a convolution, a resize and a reshape to PyTorch."""
    import numpy
    import onnx.parser
    from onnx import numpy_helper
    from onnx2torch import convert

    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[n, 3, h, w] x) => (float[n, 5] y) {
            a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, weight)
            b = Relu (a)
            c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
            d = ReduceMean <axes = [2, 3], keepdims = 0> (c)
            y = Gemm <transB = 1> (d, matrix, bias)
        }"""
    )
    draw = numpy.random.default_rng(0)
    shapes = {"weight": (8, 3, 3, 3), "matrix": (5, 8), "bias": (5,)}
    for name, shape in shapes.items():
        values = draw.normal(size=shape).astype(numpy.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return convert(model)


class _Pose(nn.Module):
    """A head that regresses rotations in six numbers, and returns quaternions and vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 6)

    def forward(self, x: torch.Tensor) -> Any:
        import roma

        rotation = roma.special_gramschmidt(self.layer(x).reshape(-1, 3, 2))
        return roma.rotmat_to_unitquat(rotation), roma.rotmat_to_rotvec(rotation)


class _Gaussian(nn.Module):
    """Mean and variance of the posterior of a fitted Gaussian process."""

    def __init__(self) -> None:
        super().__init__()
        from botorch.models import SingleTaskGP

        x = torch.rand(10, 2, dtype=torch.float64)
        y = (x[:, :1] * 6).sin() + x[:, 1:]
        self.model = SingleTaskGP(x, y)

    def forward(self, x: torch.Tensor) -> Any:
        posterior = self.model.posterior(x)
        return posterior.mean, posterior.variance


def _points(batch: int) -> Any:
    return (torch.rand(batch, 2, dtype=torch.float64),), {}


class _Foundation(nn.Module):
    """Classes of pictures whose bands have known wavelengths."""

    def __init__(self) -> None:
        super().__init__()
        from torchgeo.models import DOFA

        self.model = DOFA(
            img_size=64,
            patch_size=16,
            embed_dim=64,
            depth=2,
            num_heads=4,
            dynamic_embed_dim=32,
            num_classes=3,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x, [0.665, 0.56, 0.49, 0.83])


def _build_text_cnn() -> nn.Module:
    from deepchem.models.torch_models.text_cnn import TextCNN, default_dict

    return TextCNN(1, default_dict, 64, 16, [1, 3, 5], [8, 8, 8], mode="classification")


class _Molecules(nn.Module):
    """Energies of molecules by a deep tensor network, which takes a list of tensors."""

    def __init__(self) -> None:
        super().__init__()
        from deepchem.models.torch_models.dtnn import DTNN

        self.model = DTNN(n_tasks=1, n_embedding=16, n_hidden=16, n_distance=20)
        self.model([*_atoms(2, 3)[0]])  # gives the last layer its size

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model([*inputs])


def _atoms(molecules: int, atoms: int) -> Any:
    """All pairs of the atoms of molecules of equal size."""
    numbers = torch.randint(1, 9, (molecules * atoms,))
    molecule = torch.arange(molecules).repeat_interleave(atoms)
    first, second = (molecule[:, None] == molecule).nonzero(as_tuple=True)
    distances = torch.rand(len(first), 20)
    return (numbers, distances, molecule, first, second), {}


class _Dispersion(nn.Module):
    """Energy of dispersion between all pairs of atoms."""

    def __init__(self) -> None:
        super().__init__()
        from torch_dftd.dftd3_xc_params import get_dftd3_default_params
        from torch_dftd.nn.dftd3_module import DFTD3Module

        self.model = DFTD3Module(get_dftd3_default_params("zero", "pbe", old=False))

    def forward(self, numbers: Any, positions: Any, edges: Any) -> torch.Tensor:
        return self.model.calc_energy_batch(numbers, positions, edges)


def _pairs(atoms: int) -> Any:
    edges = torch.triu_indices(atoms, atoms, 1)
    return (torch.randint(1, 9, (atoms,)), torch.rand(atoms, 3) * 8, edges), {}


def _row(name: str, package: str, group: str, build: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=group, build=build, **more)


CASES = (
    _row(
        "unfold_1d",
        "unfoldNd",
        "images",
        call("unfoldNd:UnfoldNd", 3, dilation=2, padding=1, stride=2),
        inputs=noise("batch", 4, "length"),
        dynamic_shapes=({0: "batch", 2: "length"},),
        sizes=({"batch": 1, "length": 20}, {"batch": 2, "length": 31}),
    ),
    _row(
        "unfold_3d",
        "unfoldNd",
        "images",
        call("unfoldNd:UnfoldNd", (2, 3, 3), padding=1),
        inputs=noise("batch", 2, "depth", "height", "width"),
        dynamic_shapes=({0: "batch", 2: "depth", 3: "height", 4: "width"},),
        sizes=(
            {"batch": 1, "depth": 4, "height": 8, "width": 9},
            {"batch": 2, "depth": 5, "height": 7, "width": 11},
        ),
    ),
    _row(
        "diffq",
        "diffq-fixed",
        "tables",
        _build_quantized_by_diffq,
        inputs=noise("batch", 16),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "kmeans_predict",
        "kmeans-pytorch",
        "tables",
        _Cluster,
        inputs=noise("points", 8),
        dynamic_shapes=({0: "points"},),
        sizes=({"points": 4}, {"points": 9}),
    ),
    _row(
        "ctgan_generator",
        "ctgan",
        "tables",
        call("ctgan.synthesizers.ctgan:Generator", 16, (32, 32), 10),
        inputs=noise("batch", 16),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "ctgan_discriminator",
        "ctgan",
        "tables",
        call("ctgan.synthesizers.ctgan:Discriminator", 10, (32, 32), pac=5),
        inputs=noise("rows", 10),
        dynamic_shapes=({0: "rows"},),
        sizes=({"rows": 5}, {"rows": 15}),
    ),
    _row(
        "dsalt",
        "dsalt",
        "text and attention",
        _build_dsalt,
        inputs=lambda length: ((torch.randint(0, 100, (1, length)),), {}),  # fails for more
        dynamic_shapes=({1: "length"},),
        sizes=({"length": 12}, {"length": 19}),
    ),
    _row(
        "private_lstm",
        "opacus",
        "time series",
        call("opacus.layers:DPLSTM", 8, 16, num_layers=2, batch_first=True, bidirectional=True),
        inputs=noise("batch", "length", 8),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "private_attention",
        "opacus",
        "text and attention",
        _Attention,
        inputs=noise("batch", "length", 32),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "reversed_gradient",
        "pytorch-revgrad",
        "tables",
        _build_reversed,
        inputs=noise("batch", 10),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "lora",
        "loralib",
        "text and attention",
        _build_adapted,
        inputs=tokens(100),
        dynamic_shapes=SEQUENCE,
        sizes=LENGTHS,
    ),
    _row(
        "test_time_segmentation",
        "ttach",
        "images",
        _build_test_time_segmentation,
        **PICTURES,
    ),
    _row(
        "test_time_classification",
        "ttach",
        "images",
        _build_test_time_classification,
        **PICTURES,
    ),
    _row(
        "onnx_to_torch",
        "onnx2torch",
        "images",
        _build_converted,
        **PICTURES,
    ),
    _row(
        "text_cnn",
        "deepchem",
        "graphs and molecules",
        _build_text_cnn,
        inputs=lambda batch, length: ((torch.randint(34, (batch, length)),), {}),
        dynamic_shapes=SEQUENCE,
        sizes=({"batch": 1, "length": 64}, {"batch": 3, "length": 80}),
    ),
    _row(
        "deep_tensor_network",
        "deepchem",
        "graphs and molecules",
        _Molecules,
        inputs=_atoms,
        dynamic_shapes={
            "inputs": (
                {0: "atoms"},
                {0: "pairs"},
                {0: "atoms"},
                {0: "pairs"},
                {0: "pairs"},
            )
        },
        sizes=({"molecules": 1, "atoms": 5}, {"molecules": 3, "atoms": 4}),
    ),
    _row(
        "rotations",
        "roma",
        "physics and equations",
        _Pose,
        inputs=noise("batch", 16),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "arcface_logits",
        "pytorch-metric-learning",
        "images",
        lambda: Method(call("pytorch_metric_learning.losses:ArcFaceLoss", 10, 16)(), "get_logits"),
        inputs=noise("batch", 16),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "quanto_int8",
        "optimum-quanto",
        "tables",
        _build_quantized_by_quanto,
        inputs=noise("batch", 16),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "farseg",
        "torchgeo",
        "images",
        call("torchgeo.models:FarSeg", "resnet18", 4, False),
        **PICTURES,
    ),
    _row(
        "changestar",
        "torchgeo",
        "images",
        call("torchgeo.models:ChangeStarFarSeg", "resnet18", 1, False),
        **PAIR,
    ),
    _row(
        "siamese_unet",
        "torchgeo",
        "images",
        call("torchgeo.models:FCSiamConc", "resnet18", encoder_weights=None),
        **PAIR,
    ),
    _row(
        "dofa",
        "torchgeo",
        "images",
        _Foundation,
        inputs=noise("batch", 4, 64, 64),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "dispersion",
        "torch-dftd",
        "graphs and molecules",
        _Dispersion,
        inputs=_pairs,
        dynamic_shapes=({0: "atoms"}, {0: "atoms"}, {1: "pairs"}),
        sizes=({"atoms": 5}, {"atoms": 8}),
    ),
    _row(
        "gaussian_process_posterior",
        "botorch",
        "physics and equations",
        _Gaussian,
        inputs=_points,
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
)
