"""Lists the fixes that messages of failing rows offer, as a user would follow them."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["FIXES", "Fix", "Line", "Translation"]


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a package, rewritten.

    Attributes:
        function: The function that has it, as ``module:name.name``.
        old: The line, without its indentation; only its first line if it is longer.
        new: What stands in its place.
    """

    function: str
    old: str
    new: str


@dataclasses.dataclass(frozen=True)
class Translation:
    """A translation of an operator of a package, which a message asks for.

    Attributes:
        operator: The operator, as the message writes it, below ``torch.ops``.
        function: The translation, as ``module:name``.
    """

    operator: str
    function: str


@dataclasses.dataclass(frozen=True)
class Fix:
    """An edit that the message of a row offers.

    Attributes:
        fixed: Names of dimensions that are left out of ``dynamic_shapes``.
        dynamic_shapes: Another request; None for that of the row.
        shown: The other request, as it is written.
        options: Further options of the export.
        lines: Lines of packages, rewritten.
        sizes: Other sizes of the example and of the comparison; None for those of the row.
        scripted: Paths of modules that ``torch.jit.script`` compiles.
        translations: Translations of the package's own operators.
        double: Whether the model and its inputs are in float64, where only errors are left.
    """

    fixed: tuple[str, ...] = ()
    dynamic_shapes: Any = None
    shown: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    sizes: Any = None
    scripted: tuple[str, ...] = ()
    translations: tuple[Translation, ...] = ()
    double: bool = False


FIXES: dict[str, Fix] = {
    "inertial_integration": Fix(fixed=("frames",)),
    "iqa_cw_ssim": Fix(fixed=("height", "width")),
    "mambapy": Fix(fixed=("length",)),
    "s3_tokenizer": Fix(
        lines=(
            Line(
                "s3tokenizer.model_v2:S3TokenizerV2.quantize",
                "if long_audio_mask.any():",
                "import onnx_aot\nif not onnx_aot.is_in_onnx_export() and long_audio_mask.any():",
            ),
        )
    ),
    "s5": Fix(fixed=("length", "batch")),
    "se3_transformer": Fix(fixed=("batch", "length")),
    "spherical_harmonics": Fix(
        translations=(
            Translation(
                "sphericart_torch.spherical_harmonics.default",
                "benchmarks.field.translations:translate_spherical_harmonics",
            ),
        )
    ),
    "tabicl": Fix(
        fixed=("known", "batch"),
        options={"strategies": ("non-strict", "strict")},
        lines=(
            Line(
                "tabicl._model.embedding:ColEmbedding._compute_embeddings",
                "num_classes = int(y_train.max().item()) + 1",
                "num_classes = y_train.max().to(torch.int64).item() + 1",
            ),
            Line(
                "tabicl._model.embedding:ColEmbedding._compute_embeddings",
                "if not needs_mixed_radix:",
                "torch._check(num_classes <= 3)\nif not needs_mixed_radix:",
            ),
            Line(
                "tabicl._model.learning:ICLearning._inference_forward",
                "if num_classes <= self.max_classes:",
                "torch._check(num_classes <= 3)\nif num_classes <= self.max_classes:",
            ),
        ),
    ),
    "titans_memory": Fix(fixed=("batch", "length")),
    "torchaudio_hdemucs": Fix(fixed=("batch", "time")),
    "torchaudio_tacotron2": Fix(scripted=("model.decoder",)),
    "tracer": Fix(double=True),
    "wavelets": Fix(fixed=("height", "width")),
}
"""Fixes by the name of the failing row."""
