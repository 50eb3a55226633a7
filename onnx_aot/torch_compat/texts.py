"""Parses texts that torch writes: messages, names of sizes, names of modules.

If a release words them differently, an error is shown with torch's own message, without a line or a
fix. ``tests/torch_compat/test_texts.py`` checks each text against the installed torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from types import CodeType

__all__ = [
    "ASSERTING",
    "CONTENT_SIZE",
    "EXPECTED_WARNINGS",
    "FRAME",
    "NO_MODULE",
    "SIZE_TERM",
    "TRACED_ROOT",
    "WARNINGS_WHILE_TRACING",
    "WHILE_LOOP",
    "asks_in_dynamo",
    "asserted_condition",
    "constraint_sentences",
    "failure_kind",
    "frames_in_dynamo",
    "generated_guard",
    "is_about_types",
    "is_arithmetic",
    "is_relation",
    "is_transform",
    "is_vmap_mark",
    "is_vmap_value",
    "is_without_conditions",
    "names_sizes",
    "needs_data",
    "only_says",
    "printed_in_graphs",
    "runs_fake_kernels",
    "specialized_size",
    "suggested_fixes",
    "violates_constraints",
    "wants_integers",
    "with_builtins",
    "without_infinity",
    "without_locals",
]

# --- places --------------------------------------------------------------------------------------

FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?'
    r'(?:\n(?!\s*File ")\s*(?P<code>[^\n]*))?'
)
"""A line in a recorded stack, or in a source range of TorchScript.

The code is missing if Python had no source.
"""

# --- names --------------------------------------------------------------------------------------

WHILE_LOOP = "torch._higher_order_ops.while_loop"
"""The function for loops, whose body may use tensors from outside, as a user calls it.

``torch.ops.higher_order.while_loop`` only takes them as further arguments.
"""

# --- sizes ---------------------------------------------------------------------------------------

SIZE_TERM = re.compile(
    r"L\['(\w+)'\]((?:\[[^\[\]]*\]|\.(?!size\(\))[A-Za-z_]\w*)*)(?:\.size\(\)\[(\d+)\])?"
)
"""One dimension of an input, or a number, in conditions and messages: ``L['x'].size()[0]``."""

CONTENT_SIZE = re.compile(r"(u|zuf)\d+")
"""The name of an unbacked symbol."""

_INFINITY = "IntInfinity()"


def without_locals(condition: str) -> str:
    """Replaces ``L['x']`` by ``x`` in a condition."""
    return re.sub(r"L\['(\w+)'\]", r"\1", condition)


# Files that implement the arithmetic of symbols, between the line that asks and the answer.
_ARITHMETIC = (
    "symbolic_shapes.py",
    "recording.py",
    "sym_node.py",
    "non_strict_utils.py",
    "proxy_tensor.py",
    os.path.join("torch", "__init__.py"),
)


def is_arithmetic(file: str) -> bool:
    """True if a file of torch only passes on questions about symbols."""
    return file.endswith(_ARITHMETIC)


ASSERTING = "_assert"
"""Name of torch's function, in one of these files, that only asserts what it is given."""

_ASSERTED = re.compile(r"^Runtime assertion failed for expression (.+) on node '\w+'$")


def asserted_condition(message: str) -> str | None:
    """Returns the condition in torch's message of a recorded assertion; None for other messages."""
    found = _ASSERTED.search(message)
    return None if found is None else found[1]


def runs_fake_kernels(file: str) -> bool:
    """True if a file of torch calls the kernels that compute shapes."""
    return file.endswith("fake_tensor.py")


def asks_in_dynamo(code: CodeType) -> bool:
    """True if a function of torch decides for Dynamo whether a condition on sizes is true."""
    return code.co_name == "evaluate_expr" and "_dynamo" in code.co_filename


# --- constraints ---------------------------------------------------------------------------------

_SENTENCE = re.compile(r"^  - (.+)$", re.MULTILINE)
_GUARD = re.compile(r"satisfy the generated guard (.+)$")
_FIXED = re.compile(r"your code specialized it to be a constant \((\d+)\)")
_FIXES = "Suggested fixes:\n"
_SECOND = "Specializations unexpectedly required"
"""Begins another message of torch's, on the line of the last sentence."""


def violates_constraints(error: BaseException) -> bool:
    """True if an error says that torch refuses the requested dynamic dimensions.

    It mostly names the conditions that they violate. Of some that do not fit their ranges, such as
    ``3/2 < n`` for sizes from zero on, its solver only says what it did not expect.
    """
    return str(error).startswith("Constraints violated") or is_without_conditions(error)


def is_without_conditions(error: BaseException) -> bool:
    """True if such an error does not say which conditions the dimensions violate."""
    return isinstance(error, AssertionError) and str(error).startswith(_UNEXPECTED)


_UNEXPECTED = ("Expected op to be '=='", "Cannot create Dim with inconsistent", "tgt_bound=")


def constraint_sentences(error: BaseException) -> list[str]:
    """Returns the sentences about dimensions in the message of violated constraints."""
    found = _SENTENCE.findall(str(error).partition(_FIXES)[0])
    return [sentence.partition(_SECOND)[0] for sentence in found]


def suggested_fixes(error: BaseException) -> list[str]:
    """Returns the definitions that such a message suggests, for example ``n = 2*m``."""
    lines = str(error).partition(_FIXES)[2].splitlines()
    return [line.strip().replace(", max=oo", "") for line in lines if "=" in line]  # oo is no name


def generated_guard(sentence: str) -> str | None:
    """Returns the condition that a sentence is about, without ``n <= IntInfinity()``, or None."""
    found = _GUARD.search(without_infinity(sentence))
    return found[1].replace(_INFINITY, "math.inf") if found else None


def specialized_size(sentence: str) -> int | None:
    """Returns the size at which a sentence says that a dimension was fixed, or None."""
    found = _FIXED.search(sentence)
    return int(found[1]) if found else None


def is_relation(sentence: str) -> bool:
    """True if a sentence says that sizes depend on each other."""
    return "must always be equal" in sentence or "was inferred to be equal to" in sentence


def without_infinity(sentence: str) -> str:
    """Removes ``n <= IntInfinity()`` from a sentence."""
    return re.sub(r" and [^ ]+ <= " + re.escape(_INFINITY), "", sentence)


def with_builtins(condition: str) -> str:
    """Writes ``max`` and ``min`` for the functions of sizes that newer releases name."""
    return re.sub(r"\btorch\.sym_(max|min)\b", r"\1", condition)


# --- other failures ------------------------------------------------------------------------------

# By kind, a pattern for ``Type: text`` of an error.
_KINDS: dict[str, str] = {
    # NumPy calls methods with the names of its functions where an operand is a symbolic size.
    "numpy, sizes": (
        r"loop of ufunc does not support argument \d+ of type (?:Sym\w+|float|int) "
        r"|'(?:float|int|SymFloat|SymInt)' object has no attribute "
        r"'(?:fmod|sqrt|square|floor|ceil|rint|trunc|exp|log|log2|log10|sin|cos|tan|tanh|arctan2)'"
    ),
    "numpy": (
        r"\.numpy\(\) is not supported|numpy function unsupported|__array__"
        r"|loop of ufunc does not support"
    ),
    "memory": r"data pointer of Tensor|Cannot access storage",
    "answers": r"DataDependentOutputException: (\S+?)\.\w+$",
    "text": r"unsupported format string passed to Sym",
    "fake-kernel": r"UnsupportedOperatorException: (\S+?)(?:\.default)?$",
    "hidden": r"fake tensor in the exported program constant's list",
    "device": (
        r"not linked with support for (\w+) devices|not compiled with (\w+) enabled|"
        r"No (\w+) GPUs are available"
    ),
    "devices": r"[Ee]xpected all tensors to be on the same device",
    "gradients": (
        r"leaf Variable that requires grad is being used in an in-place operation|"
        r"arguments don't support automatic differentiation"
    ),
}


def failure_kind(error: BaseException) -> tuple[str, str] | None:
    """Returns why torch refused a model and what it names: ``("fake-kernel", "mylib.gadget")``.

    None for other failures.
    """
    for link in _walk_causes(error):
        for kind, pattern in _KINDS.items():
            found = re.search(pattern, f"{type(link).__name__}: {link}", re.MULTILINE)
            if found is not None:
                return kind, next(filter(None, found.groups()), "")
    return None


_TYPES = re.compile(
    r"same d?type|share same datatype|same scalar type|expected scalar type|expected dtype \w+ for"
    r"|scalar types?: |[Ii]nput type \(.*type \(|dtypes? .*(?:must be|does not match)"
    r"|used as indices must be|for index, but got"
    r"|Expected self\.dtype to be equal|not implemented for '\w+'"
)


def is_about_types(error: BaseException) -> bool:
    """True if a model refuses the types of its tensors, such as float64 beside float32."""
    kinds = (RuntimeError, ValueError, TypeError, IndexError)
    return isinstance(error, kinds) and _TYPES.search(str(error)) is not None


def wants_integers(error: BaseException) -> bool:
    """True if such an error asks for indices of an integer type."""
    return (
        re.search(r"scalar types: Long|indices must be long|int64 for index", str(error))
        is not None
    )


def names_sizes(error: BaseException) -> bool:
    """True if a message has a symbol for a size of the inputs, such as ``s77``."""
    return re.search(r"\bs\d+\b", str(error)) is not None


def needs_data(error: BaseException) -> bool:
    """True if a capture failed because it needs the value of data, or a fake kernel."""
    names = ("GuardOnDataDependentSymNode", "UnsupportedOperatorException")
    return any(
        type(link).__name__ in names or "fake impl" in str(link) for link in _walk_causes(error)
    )


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# Traces, and advice that this package replaces by its own.
_NOISE = (
    "\n\nThe error above occurred when calling torch.export.export",
    "\nFor more information, run with TORCH_LOGS",
    "\nSet TORCHDYNAMO_VERBOSE=1",
    "\n  Developer debug context:",
    "\n\nThe following call raised this error",
    "\n\nfrom user code:",
    "\n\nWhile executing %",
)


def frames_in_dynamo(error: BaseException) -> list[tuple[str, int, str]]:
    """File, line and function of the calls that a strict capture was in, the outermost first.

    Empty for other errors, and on a release that does not record them; errors of strict captures
    then name no line.
    """
    frames = getattr(error, "real_stack", None) or ()
    return [(frame.filename, frame.lineno, frame.name) for frame in frames]


def only_says(error: BaseException) -> str:
    """Returns the message of an error without torch's advice and traces."""
    text = str(error)
    for noise in _NOISE:
        text = text.partition(noise)[0]
    return text


EXPECTED_WARNINGS = (
    # Recurrent layers reassign their list of weights in forward; this loses nothing.
    "The tensor attributes? .*_flat_weights",
    # Torch inspects the arguments of higher-order operators' functions; no gradient is needed.
    "The .grad attribute of a Tensor that is not",
)
"""Patterns for the beginnings of warnings that do not concern the user of an export."""

WARNINGS_WHILE_TRACING = (
    "The tensor attributes? .*assigned during export",
    "While compiling, we found certain side effects",
)
"""Patterns for the beginnings of torch's warnings that would end a capture as errors."""


def printed_in_graphs(argument: object) -> str:
    """Returns an argument of a node as FX prints it; some classes customize this."""
    own = getattr(argument, "_custom_fx_repr_fn", None)
    return str(own() if own is not None else argument)


# --- modules -------------------------------------------------------------------------------------

NO_MODULE = "_empty_nn_module_stack"
"""Prefix of the module path of nodes that ``torch.export`` adds itself, such as sizes."""

TRACED_ROOT = re.compile(r"^.*(\]|cell_contents)\.?|^_export_root\.?")
"""Prefix of a body's module paths before the module names: closures, roots of strict captures."""


def is_transform(target: object) -> bool:
    """True if a node is part of ``torch.vmap`` or another function transform."""
    return _module_name(target).startswith("torch._functorch")


def is_vmap_value(target: object) -> bool:
    """True if a node passes a tensor into a function under ``vmap``, or out of it."""
    return getattr(target, "__name__", "") in ("_add_batch_dim", "_remove_batch_dim")


def is_vmap_mark(target: object) -> bool:
    """True if a node marks where a function under ``vmap`` begins, ends, or gets its tensors."""
    return _module_name(target) == "torch._functorch.predispatch"


def _module_name(target: object) -> str:
    return str(getattr(target, "__module__", ""))
