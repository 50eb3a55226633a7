"""Explains in plain words why torch refuses a model, with the smallest edit that helps.

The page of its code, in explanations/, shows the message of each entry.
"""

from __future__ import annotations

import dataclasses

import torch

from onnx_aot.capture.sizes.guards import Location, as_places, with_line
from onnx_aot.errors import CaptureError, SourceLocation
from onnx_aot.torch_compat import failure_kind

__all__ = [
    "Explanation",
    "RefusedError",
    "UnjoinableError",
    "UnrollableError",
    "explain",
    "make_explained_error",
]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a capture failed.

    Attributes:
        reason: A sentence that begins with what the model does.
        fix: The edit that helps.
        code: Code of the page that explains it.
    """

    reason: str
    fix: str
    code: str


class UnjoinableError(Exception):
    """Two paths cannot be joined; the message says why.

    Attributes:
        fix: An edit of the model after which they can, unless it depends on the line.
    """

    def __init__(self, reason: str, fix: str | None = None) -> None:
        super().__init__(reason)
        self.fix = fix


class UnrollableError(Exception):
    """A Python loop cannot become one loop; the message says why.

    It is empty if the model has no loop that could, such as one over ``x.chunk(3)``.

    Attributes:
        fix: An edit of the model after which it can.
        location: The user's line, if it is known.
    """

    def __init__(self, reason: str, fix: str, location: SourceLocation | None = None) -> None:
        super().__init__(reason)
        self.fix, self.location = fix, location


class RefusedError(Exception):
    """Ends a capture with an explanation of this package.

    Attributes:
        explanation: Reason and fix.
    """

    def __init__(self, reason: str, fix: str, code: str) -> None:
        super().__init__(reason)
        self.explanation = Explanation(reason, fix, code)


def refuse_autocast(device: str, what: str) -> None:
    """Refuses a part of a model whose types autocast changes without a trace in the capture.

    Args:
        device: Kind of device that the part computes on.
        what: The part, in words.

    Raises:
        RefusedError: Autocast is switched on.
    """
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        raise RefusedError(
            f"autocast computes parts of {what} in another type, which is not recorded",
            "switch it off around the layer, with torch.autocast(device, enabled=False), and "
            "convert its input to the type that it has to compute in",
            "OA121",
        )


def make_explained_error(
    explained: Explanation, location: Location | None, model: torch.nn.Module, *details: str
) -> CaptureError:
    """Makes the error with an explanation, the user's line, and further lines of detail."""
    lines = [
        f"the model could not be captured; {explained.reason}:",
        *with_line(location, "  "),
        f"fix: {explained.fix}",
        *details,
    ]
    return CaptureError(
        "\n".join(lines),
        cause=explained.reason,
        places=as_places([location], model),
        fix=explained.fix,
        code=explained.code,
    )


# Code, reason and edit by kind of failure. ``{0}`` is the name that torch's error gives.
_EXPLANATIONS: dict[str, tuple[str, str, str]] = {
    "numpy": (
        "OA111",
        "it computes with NumPy, which needs the values of tensors and sizes; a graph has none",
        "use the function of torch that does the same, or put the numpy code into an operator of "
        "your own: @torch.library.custom_op with @register_fake, and a translation of it",
    ),
    "numpy, sizes": (
        "OA111",
        "it computes with NumPy, which needs the values of sizes; those of dynamic dimensions have "
        "none",
        "leave the dimensions that it computes with out of dynamic_shapes, or use the function of "
        "torch that does the same",
    ),
    "memory": (
        "OA113",
        "it asks for the memory address of a tensor, as compiled extensions and copy.deepcopy do, "
        "and tensors have none during a capture",
        "call compiled code through @torch.library.custom_op with @register_fake; copy a tensor "
        "with clone()",
    ),
    "answers": (
        "OA109",
        "{0} returns a Python bool or number, which depends on data",
        "stay with tensors, (x == y).all() instead of aten.equal(x, y), and choose with "
        "torch.where(condition, a, b) or torch.cond(condition, f, g, operands)",
    ),
    "text": (
        "OA110",
        "it formats a value of its data as text, and values are not known during a capture",
        "leave the text out while exporting: if not onnx_aot.is_in_onnx_export(): ...",
    ),
    "fake-kernel": (
        "OA112",
        "torch cannot tell the shape that {0} returns without running it: it has no fake kernel",
        "for an operator of your own, write one with @torch.library.register_fake; replace an "
        "operator of torch with others",
    ),
    "sparse": (
        "OA006",
        "it computes with sparse tensors, and torch cannot tell the shape that {0} returns",
        "compute with dense tensors there, and return to_dense() of a sparse result",
    ),
    "hidden": (
        "OA114",
        "a tensor reaches the result in a way that the capture does not see, such as through "
        "another thread or through compiled code",
        "compute in the thread that calls forward, with functions of torch",
    ),
    "device": (
        "OA116",
        "it moves tensors to a device that this installation of torch does not have",
        "write x.to(other.device) instead of a fixed device",
    ),
    "devices": (
        "OA116",
        "it computes with tensors on different devices",
        "move the model and the example inputs to one device before the export, model.to(device) "
        "and x.to(device), and make tensors in forward with device=x.device",
    ),
    "gradients": (
        "OA117",
        "it writes to a tensor that requires a gradient, which PyTorch does under torch.no_grad() "
        "only",
        "export it as it runs, within `with torch.no_grad():`, or call model.requires_grad_(False)",
    ),
}


def explain(error: BaseException) -> Explanation | None:
    """Explains why a capture failed, or returns None if only torch's own message says so.

    Args:
        error: The exception that a strategy raised.
    """
    found = failure_kind(error)
    if found is None:
        return None
    kind, named = found
    if kind == "fake-kernel" and "sparse" in named:
        kind = "sparse"
    code, reason, fix = _EXPLANATIONS[kind]
    return Explanation(reason.format(named), fix, code)
