"""Texts that torch writes and this package reads: messages, names of sizes, names of modules.

A release may word them otherwise. Then an error is shown in torch's own words, without a line or a
fix; ``tests/torch_compat/test_texts.py`` holds each of them against the torch that is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

__all__ = [
    "CONTENT_SIZE",
    "EXPECTED_WARNINGS",
    "NO_MODULE",
    "SIZE_TERM",
    "TRACED_ROOT",
    "constraint_sentences",
    "failure_kind",
    "generated_guard",
    "is_arithmetic",
    "is_relation",
    "is_transform",
    "is_vmap_mark",
    "is_vmap_value",
    "needs_data",
    "only_says",
    "printed_in_graphs",
    "suggested_fixes",
    "violates_constraints",
    "without_infinity",
    "without_locals",
]

# --- sizes ---------------------------------------------------------------------------------------

SIZE_TERM = re.compile(
    r"L\['(\w+)'\]((?:\[[^\[\]]*\]|\.(?!size\(\))[A-Za-z_]\w*)*)(?:\.size\(\)\[(\d+)\])?"
)
"""One dimension of an input, or a number, in conditions and messages: ``L['x'].size()[0]``."""

CONTENT_SIZE = re.compile(r"(u|zuf)\d+")
"""The name of a symbol for something that depends on data."""

_INFINITY = "IntInfinity()"


def without_locals(condition: str) -> str:
    """A condition with ``x`` in the place of ``L['x']``."""
    return re.sub(r"L\['(\w+)'\]", r"\1", condition)


# Files of the arithmetic of symbols, between a line that asks and the answer.
_ARITHMETIC = (
    "symbolic_shapes.py",
    "recording.py",
    "sym_node.py",
    "non_strict_utils.py",
    "proxy_tensor.py",
    os.path.join("torch", "__init__.py"),
)


def is_arithmetic(file: str) -> bool:
    """Whether a file of torch only hands on what is asked about a symbol."""
    return file.endswith(_ARITHMETIC)


# --- constraints ---------------------------------------------------------------------------------

_SENTENCE = re.compile(r"^  - (.+)$", re.MULTILINE)
_GUARD = re.compile(r"satisfy the generated guard (.+)$")
_FIXES = "Suggested fixes:\n"


def violates_constraints(error: BaseException) -> bool:
    """Whether torch refuses the dynamic dimensions that were asked for."""
    return str(error).startswith("Constraints violated")


def constraint_sentences(error: BaseException) -> list[str]:
    """What such an error says about dimensions, a sentence each."""
    return _SENTENCE.findall(str(error).partition(_FIXES)[0])


def suggested_fixes(error: BaseException) -> list[str]:
    """Definitions that such an error suggests, ``n = 2*m``."""
    return [line.strip() for line in str(error).partition(_FIXES)[2].splitlines() if "=" in line]


def generated_guard(sentence: str) -> str | None:
    """The condition that a sentence is about, if it is about one."""
    found = _GUARD.search(sentence)
    return found[1].replace(_INFINITY, "math.inf") if found else None


def is_relation(sentence: str) -> bool:
    """Whether a sentence says that sizes depend on each other."""
    return "must always be equal" in sentence or "was inferred to be equal to" in sentence


def without_infinity(sentence: str) -> str:
    """A sentence without ``n <= IntInfinity()``."""
    return re.sub(r" and [^ ]+ <= " + re.escape(_INFINITY), "", sentence)


# --- other failures ------------------------------------------------------------------------------

# By kind a pattern over ``Type: text`` of an error.
_KINDS: dict[str, str] = {
    "numpy": r"\.numpy\(\) is not supported|numpy function unsupported|__array__",
    "memory": r"data pointer of Tensor|Cannot access storage",
    "answers": r"DataDependentOutputException: (\S+?)\.\w+$",
    "text": r"unsupported format string passed to Sym",
    "fake-kernel": r"UnsupportedOperatorException: (\S+?)(?:\.default)?$",
    "hidden": r"fake tensor in the exported program constant's list",
    "device": (
        r"not linked with support for (\w+) devices|not compiled with (\w+) enabled|"
        r"No (\w+) GPUs are available"
    ),
}


def failure_kind(error: BaseException) -> tuple[str, str] | None:
    """Why torch refused a model and what it names, ``("fake-kernel", "mylib.gadget")``.

    None for other failures.
    """
    for link in _chain(error):
        for kind, pattern in _KINDS.items():
            found = re.search(pattern, f"{type(link).__name__}: {link}", re.MULTILINE)
            if found is not None:
                return kind, next(filter(None, found.groups()), "")
    return None


def needs_data(error: BaseException) -> bool:
    """Whether a capture failed because it needs the value of data, or a fake kernel."""
    names = ("GuardOnDataDependentSymNode", "UnsupportedOperatorException")
    return any(type(link).__name__ in names or "fake impl" in str(link) for link in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# Advice that this package gives better, and traces.
_NOISE = (
    "\n\nThe error above occurred when calling torch.export.export",
    "\nFor more information, run with TORCH_LOGS",
    "\nSet TORCHDYNAMO_VERBOSE=1",
    "\n  Developer debug context:",
    "\n\nThe following call raised this error",
    "\n\nfrom user code:",
    "\n\nWhile executing %",
)


def only_says(error: BaseException) -> str:
    """The message of an error without torch's advice and traces."""
    text = str(error)
    for noise in _NOISE:
        text = text.partition(noise)[0]
    return text


EXPECTED_WARNINGS = (
    # Recurrent layers reassign their list of weights in forward; nothing is lost by it.
    "The tensor attributes? .*_flat_weights",
    # Torch looks at what functions of higher-order operators are given; no gradient is meant.
    "The .grad attribute of a Tensor that is not",
)
"""Beginnings, as patterns, of warnings that say nothing to the user of an export."""


def printed_in_graphs(argument: object) -> str:
    """An argument of a node as FX prints it, which some classes do in their own way."""
    own = getattr(argument, "_custom_fx_repr_fn", None)
    return str(own() if own is not None else argument)


# --- modules -------------------------------------------------------------------------------------

NO_MODULE = "_empty_nn_module_stack"
"""Begins the path of nodes that ``torch.export`` adds itself, such as sizes."""

TRACED_ROOT = re.compile(r"^.*(\]|cell_contents)\.?|^_export_root\.?")
"""What a path in a body has before the names of modules: closures, and roots of strict captures."""


def is_transform(target: object) -> bool:
    """Whether a node is a part of ``torch.vmap`` or another transform of functions."""
    return _module(target).startswith("torch._functorch")


def is_vmap_value(target: object) -> bool:
    """Whether a node gives a tensor to a function under ``vmap``, or takes one from it."""
    return getattr(target, "__name__", "") in ("_add_batch_dim", "_remove_batch_dim")


def is_vmap_mark(target: object) -> bool:
    """Whether a node says where a function under ``vmap`` begins, ends, or gets its tensors."""
    return _module(target) == "torch._functorch.predispatch"


def _module(target: object) -> str:
    return str(getattr(target, "__module__", ""))
