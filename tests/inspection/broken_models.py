"""Ten models that cannot be exported, each for a different reason.

``docs/failures.md`` shows the first screen of each report.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import onnx_ir as ir
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot import ir_passes
from onnx_aot.ir_passes.fusions.rms_normalization import RMS_NORMALIZATION
from onnx_aot.ir_passes.rewriter import Rewriter

__all__ = ["BROKEN", "Broken"]


@torch.library.custom_op("broken::sharpen", mutates_args=())
def sharpen(image: Tensor, amount: float) -> Tensor:
    pixels = image.detach().numpy()
    return torch.from_numpy(pixels + amount * (pixels - pixels.mean()))


@sharpen.register_fake
def _(image: Tensor, amount: float) -> Tensor:
    return torch.empty_like(image)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.broken.sharpen(self.linear(x), 0.5)


class UnknownOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x.long()
        return x


class DataDependentBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x) + 1


def wrong_gelu(op: Any, self: Any, approximate: str) -> Any:
    return op.Mul(self, op.Sigmoid(self))


class Activation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x)


class WrongTranslation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.activation = Activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x)) + 1


class WrittenOutNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class WrongFusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = WrittenOutNorm()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).sigmoid()


class FixedSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(7, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.position


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class OfDoubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu(x)


class Huge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(550_000_000))  # its pages are never accessed

    def forward(self, index: Tensor) -> Tensor:
        return self.table[index]


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 3:
            raise ValueError(f"Scale takes tensors of rank 3, not {x.dim()}")
        return x * 2


class RaisesItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(x)


def wrong_rms_normalization(node: ir.Node, rewriter: Rewriter) -> bool:
    """Applies the fusion with a different epsilon from the model's."""
    emit = rewriter.emit

    def emit_wrong(op_type: str, inputs: Any, attributes: Any = None, **more: Any) -> Any:
        if op_type == "RMSNormalization":
            attributes = {**attributes, "epsilon": 0.5}
        return emit(op_type, inputs, attributes, **more)

    with mock.patch.object(rewriter, "emit", emit_wrong):
        return RMS_NORMALIZATION.apply(node, rewriter)


WRONG_RULES = tuple(
    dataclasses.replace(rule, apply=wrong_rms_normalization) if rule is RMS_NORMALIZATION else rule
    for rule in ir_passes.RULES
)
"""All rules, with the fusion RMS_NORMALIZATION made wrong."""


# --- exports of the models -----------------------------------------------------------------------

X = torch.linspace(-2.0, 2.0, 28).reshape(7, 4)


def exported(
    folder: str, model: nn.Module, args: tuple[Any, ...] = (X,), f: Any = None, **options: Any
) -> None:
    onnx_aot.export(model.eval(), args, f, artifacts_dir=folder, **options)


def unknown_operator(folder: str) -> None:
    exported(folder, UnknownOperator())


def data_dependent_branch(folder: str) -> None:
    exported(folder, DataDependentBranch())


def wrong_translation(folder: str) -> None:
    table = {torch.ops.aten.gelu.default: wrong_gelu}
    exported(folder, WrongTranslation(), verify=True, custom_translation_table=table)


def wrong_fusion(folder: str) -> None:
    with mock.patch.object(ir_passes, "RULES", WRONG_RULES):
        exported(folder, WrongFusion(), verify=True, opset_version=23)


def fixed_size(folder: str) -> None:
    exported(folder, FixedSize(), dynamic_shapes={"x": {0: "length"}})


def missing_weights(folder: str) -> None:
    with onnx_aot.enable_fake_mode():
        model = Small()
    exported(folder, model, f=os.path.join(folder, "model.onnx"))


def name_clash(folder: str) -> None:
    exported(folder, Small(), input_names=["hidden"], output_names=["hidden"])


def missing_kernel(folder: str) -> None:
    exported(folder, OfDoubles(), (X.double(),), verify=True, target=None)


def too_large(folder: str) -> None:
    exported(
        folder,
        Huge(),
        (torch.tensor([2, 3]),),
        f=os.path.join(folder, "model.onnx"),
        external_data=False,
    )


def raises_itself(folder: str) -> None:
    exported(folder, RaisesItself())


@dataclasses.dataclass(frozen=True)
class Broken:
    """One of the ten models.

    Attributes:
        title: Heading of its section in the documentation.
        text: Description below the heading.
        export: Function that exports the model into a folder, and fails.
        cause: Text about the cause that the first screen of the report must contain.
        where: Texts about the line of the user's code, empty if no line is the cause.
        fix: Text about the fix.
    """

    title: str
    text: str
    export: Callable[[str], None]
    cause: str
    where: tuple[str, ...]
    fix: str


BROKEN = (
    Broken(
        "An operator without a translation",
        "Two blocks call a custom operator that has no translation.",
        unknown_operator,
        "no ONNX translation for 1 operator(s) of the model: broken.sharpen.default (2x)",
        ("torch.ops.broken.sharpen(self.linear(x), 0.5)", "module blocks.0", "node sharpen"),
        "onnx_aot.register(torch.ops.broken.sharpen.default, broken_sharpen_default)",
    ),
    Broken(
        "A branch that depends on data",
        "Both sides of an `if` are captured, but here they cannot be one model.",
        data_dependent_branch,
        "the model needs values of its data",
        ("if x.sum() > 0:", "module gate"),
        "compute the same on both sides",
    ),
    Broken(
        "A wrong custom translation",
        "The user's function emits the wrong approximation, which `verify=True` detects.",
        wrong_translation,
        "your translation of aten.gelu.default, wrong_gelu, gives another gelu than PyTorch does",
        ("return nn.functional.gelu(x)", "module activation", "node gelu", "def wrong_gelu("),
        "correct the function",
    ),
    Broken(
        "A wrong fusion",
        "A test changes the epsilon of the rule `rms_normalization`, which `verify=True` detects.",
        wrong_fusion,
        "the optimization rms_normalization makes mul wrong, which is right without",
        ("torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)", "module norm"),
        "which leaves rms_normalization out",
    ),
    Broken(
        "A dimension that comes out static",
        "The model adds a parameter of size 7 along a dimension that is requested as dynamic.",
        fixed_size,
        "x, axis 0 ('length') is fixed at 7",
        ("return x + self.position",),
        "must follow x.shape[0]",
    ),
    Broken(
        "Weights without values",
        "The model was created in `enable_fake_mode` and saved before `apply_weights`.",
        missing_weights,
        "2 weights have no values",
        (),
        "program.apply_weights(state_dict or path)",
    ),
    Broken(
        "A duplicate name",
        "The input and the output are given the same name.",
        name_clash,
        "input_names and output_names both give hidden",
        (),
        "call the output hidden_out",
    ),
    Broken(
        "A missing kernel of the runtime",
        "`target=None` keeps an operator on doubles whose ONNX Runtime kernel takes only floats.",
        missing_kernel,
        "ONNX Runtime has no kernel for Elu of DOUBLE",
        ("return nn.functional.elu(x)", "node elu"),
        'export with target="onnxruntime"',
    ),
    Broken(
        "More than 2 GB in one file",
        "`external_data=False` requests one file, and the weights do not fit into it.",
        too_large,
        "the weights take 2.20 GB; one ONNX file holds at most 2 GB",
        (),
        'external_data=True or "auto"',
    ),
    Broken(
        "An exception raised by the model",
        "`forward` rejects the example inputs, with or without an export.",
        raises_itself,
        "ValueError: Scale takes tensors of rank 3, not 2",
        ('raise ValueError(f"Scale takes tensors of rank 3, not {x.dim()}")', "module scale"),
        "run model(*args), and correct the model or the inputs",
    ),
)
