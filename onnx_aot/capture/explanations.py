"""What torch refuses to capture, in plain words, with the smallest edit that helps.

Each entry has a section in docs/troubleshooting.md, where its message is shown.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

__all__ = ["Explanation", "explain", "page"]

PAGE = "docs/troubleshooting.md"


def page(anchor: str) -> str:
    """The sentence that leads to a section of the page."""
    return f"See {PAGE}#{anchor}"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a capture failed.

    Attributes:
        reason: A sentence that begins with what the model does.
        cure: The edit.
        anchor: The section of the page.
    """

    reason: str
    cure: str
    anchor: str


@dataclasses.dataclass(frozen=True)
class _Rule:
    """An explanation by a pattern over ``Type: text`` of an error; ``{0}`` is its first group."""

    pattern: str
    reason: str
    cure: str
    anchor: str


_RULES = (
    _Rule(
        r"\.numpy\(\) is not supported|numpy function unsupported|__array__",
        "it computes with numpy, which wants the values of tensors, and a graph has none",
        "use the function of torch that does the same, or put the numpy code into an operator of "
        "your own: @torch.library.custom_op with @register_fake, and a translation of it",
        "numpy",
    ),
    _Rule(
        r"data pointer of Tensor|Cannot access storage",
        "it asks where the elements of a tensor lie in memory, as compiled extensions and "
        "copy.deepcopy do, and while a model is captured they lie nowhere",
        "call compiled code through @torch.library.custom_op with @register_fake; copy a tensor "
        "with clone()",
        "memory",
    ),
    _Rule(
        r"DataDependentOutputException: (\S+?)\.\w+$",
        "{0} answers with True or False, or a number, of Python, which depends on data",
        "stay with tensors, (x == y).all() instead of torch.equal(x, y), and choose with "
        "torch.where(condition, a, b) or torch.cond(condition, f, g, operands)",
        "answers",
    ),
    _Rule(
        r"unsupported format string passed to Sym",
        "it writes a value of its data into a text, which is not known while it is captured",
        "leave the text out while exporting: if not onnx_aot.is_in_onnx_export(): ...",
        "text",
    ),
    _Rule(
        r"UnsupportedOperatorException: (\S+?)(?:\.default)?$",
        "torch cannot tell the shape that {0} returns without running it: it has no fake kernel",
        "write one for an operator of your own, @torch.library.register_fake; compute otherwise "
        "what an operator of torch does",
        "fake-kernel",
    ),
    _Rule(
        r"fake tensor in the exported program constant's list",
        "a tensor reaches the result by a way that the capture does not see, such as another "
        "thread, or a call of code that it cannot look into",
        "compute in the thread that calls forward, with functions of torch",
        "hidden",
    ),
    _Rule(
        r"not linked with support for (\w+) devices|not compiled with (\w+) enabled|"
        r"No (\w+) GPUs are available",
        "it moves tensors to a device that this installation of torch does not have",
        "write x.to(other.device) instead of a fixed device",
        "device",
    ),
)


def explain(error: BaseException) -> Explanation | None:
    """Why a capture failed, or None where only torch's own message says it.

    Args:
        error: What a strategy raised.
    """
    for text in _texts(error):
        for rule in _RULES:
            match = re.search(rule.pattern, text, re.MULTILINE)
            if match is not None:
                reason = rule.reason.format(*match.groups())
                return Explanation(reason, rule.cure, rule.anchor)
    return None


def _texts(error: BaseException | None) -> Iterator[str]:
    """An error and what it came from, outermost first."""
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
