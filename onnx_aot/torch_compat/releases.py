"""Lists the tested releases of torch, and what this package cannot use of the installed one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch

from onnx_aot.torch_compat.lookup import PRIVATE, is_hidden
from onnx_aot.torch_compat.overloads import missing_operators
from onnx_aot.torch_compat.patching import Patch, why_off
from onnx_aot.torch_compat.places import find_place

__all__ = [
    "TESTED",
    "Capabilities",
    "SwitchedOff",
    "describe_untested",
    "find_capabilities",
    "is_tested",
]

TESTED = ("2.12", "2.13", "2.14", "2.15")
"""Minor releases that the whole test suite runs on."""


@dataclasses.dataclass(frozen=True)
class SwitchedOff:
    """A private part of torch that this package uses if possible, but not on this release.

    Attributes:
        name: Its place, ``"module:Class.attribute"``, or a few words.
        reason: Why it cannot be used.
        without: What happens without it.
    """

    name: str
    reason: str
    without: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}. {self.without}"


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """Tells what this package can use of the installed torch.

    Attributes:
        torch: The version of torch.
        tested: Whether the test suite of this package runs on the release.
        off: The parts of torch that are not used.
        operators: Names of operators with a translation that the release does not have.
    """

    torch: str
    tested: bool
    off: tuple[SwitchedOff, ...]
    operators: tuple[str, ...]


def is_tested() -> bool:
    """True if the test suite runs on this release."""
    return ".".join(torch.__version__.split(".")[:2]) in TESTED


def describe_untested() -> str:
    """Returns a message about a release that is not among the tested ones."""
    return (
        f"torch {torch.__version__} is not among the releases that this version of onnx_aot is "
        f"tested with ({', '.join(TESTED)}). onnx-aot doctor says what of it cannot be used"
    )


def find_capabilities(patches: Iterable[Patch]) -> Capabilities:
    """Checks which private parts of torch this package can use.

    Args:
        patches: The table of patches.
    """
    off = [found for patch in patches if (found := _switched_off(patch)) is not None]
    off += [
        SwitchedOff(path, "it does not exist", without)
        for path, without in PRIVATE.items()
        if is_hidden(path) or not _place_exists(path)
    ]
    return Capabilities(torch.__version__, is_tested(), tuple(off), tuple(missing_operators()))


def _switched_off(patch: Patch) -> SwitchedOff | None:
    if is_hidden(patch.name):
        return SwitchedOff(patch.name, "it is hidden", patch.without)
    if patch.exists is not None:
        reason = "" if patch.exists() else "it does not exist"
    elif patch.places is not None:  # places in the model, which exist
        return None
    else:
        module = patch.name.partition(":")[0]
        place = find_place(patch.name)
        if place is None and not patch.imports and not module.startswith("torch."):
            return None  # its package is not installed
        reason = why_off(patch, place)
    return SwitchedOff(patch.name, reason, patch.without) if reason else None


def _place_exists(path: str) -> bool:
    """True if a place exists; an attribute that only instances have is looked up in a sample."""
    return find_place(path) is not None or path.rpartition(".")[2] in _instance_attributes(path)


def _instance_attributes(path: str) -> set[str]:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    cls = path.partition(":")[2].partition(".")[0]
    if cls == "ShapeEnv":
        return set(dir(ShapeEnv()))
    if cls in ("SymNode", "ExportedProgram", "CustomOpDef"):
        return _attributes_of_samples()[cls]
    return set()


def _attributes_of_samples() -> dict[str, set[str]]:
    """Attributes of a symbolic size, a program and a custom operator."""
    from torch.export import Dim

    class Identity(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    program = torch.export.export(Identity(), (torch.ones(3),), dynamic_shapes={"x": {0: Dim("n")}})
    size = next(n for n in program.graph.nodes if n.op == "placeholder").meta["val"].shape[0]
    operator = torch.library.custom_op("onnx_aot::capability", mutates_args=())(_identity)
    draft = {"_report"}  # only programs from draft export have it
    return {
        "SymNode": set(dir(size.node)),
        "ExportedProgram": set(dir(program)) | draft,
        "CustomOpDef": set(dir(operator)),
    }


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
