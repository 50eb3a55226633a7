"""Options of ``export``: their values, the checks of them, and retired options."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from onnx_aot.errors import InvalidOptionError, warn

if TYPE_CHECKING:
    import torch

__all__ = [
    "DEFAULT_OPSET",
    "RETIRED",
    "Options",
    "check_choice",
    "check_optimize",
    "check_options",
    "check_retired",
    "choose_opset",
    "choose_target",
    "named_mode",
    "names_given",
]

DEFAULT_OPSET = 20


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that the stages of the pipeline read; ``onnx_aot.export`` describes each."""

    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    opset: int = DEFAULT_OPSET
    dynamic_shapes: Any = None
    dynamic_axes: Any = None
    on_specialized: Literal["error", "warn", "allow"] = "error"
    runtime_checks: bool = False
    state: Literal["outputs", "drop", "io"] = "outputs"
    weights_as_inputs: bool | Sequence[str] = False
    custom_translation_table: Mapping[Any, Any] | None = None
    custom_opsets: Mapping[str, int] | None = None
    unsupported: Literal["error", "emit", "function"] = "error"
    decompose: bool = True
    export_modules_as_functions: bool | Collection[type[Any] | str] = False
    optimize: bool | Literal["safe"] | Collection[str] = True
    target: str | None = "onnxruntime"
    contrib_ops: bool = False
    metadata: Literal["full", "light", "none"] = "full"
    stack_trace_root: str | None = None
    seed: int | None = None
    strategies: Sequence[str] | None = None
    reuse: Literal["auto", "off", "check"] = "auto"


def names_given(option: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """Converts names to a tuple.

    Raises:
        InvalidOptionError: ``given`` is not a list of names.
    """
    names = tuple(given or ())
    is_list = not isinstance(given, (str, Mapping))
    if not is_list or not all(isinstance(name, str) and name for name in names):
        raise InvalidOptionError(f"{option} is {given!r}; expected a list of names")
    return names


def check_options(options: Options) -> None:
    """Checks that every option has an accepted value.

    Raises:
        InvalidOptionError: One does not, or two options exclude each other.
    """
    if options.dynamic_shapes is not None and options.dynamic_axes is not None:
        raise InvalidOptionError(
            "dynamic_shapes and dynamic_axes are two forms of the same request; pass one of them",
            code="OA202",
        )
    check_choice("metadata", options.metadata, ("full", "light", "none"))
    check_choice("contrib_ops", options.contrib_ops, (True, False))
    _check_contrib_ops(options)
    check_choice("on_specialized", options.on_specialized, ("error", "warn", "allow"))
    check_choice("unsupported", options.unsupported, ("error", "emit", "function"))
    check_choice("reuse", options.reuse, ("auto", "off", "check"))
    check_choice("decompose", options.decompose, (True, False))
    check_choice("state", options.state, ("outputs", "drop", "io"))
    check_optimize(options.optimize)
    _check_weights(options.weights_as_inputs)
    _check_domains(options.custom_opsets)
    _check_classes(options.export_modules_as_functions)
    _check_opset(options.opset)
    _check_target(options.target, options.opset)
    if options.seed is not None and (
        not isinstance(options.seed, int) or isinstance(options.seed, bool)
    ):
        raise InvalidOptionError(f"seed is {options.seed!r}; expected an int or None")


def _check_opset(opset: Any) -> None:
    """Checks that an opset is emitted, and that the installed onnx has it."""
    import onnx

    from onnx_aot.graph.opset_range import MAX_OPSET, MIN_OPSET

    if not isinstance(opset, int) or not MIN_OPSET <= opset <= MAX_OPSET:
        raise InvalidOptionError(
            f"opset_version is {opset!r}; it is a number from {MIN_OPSET} to {MAX_OPSET}",
            code="OA008",
        )
    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        raise InvalidOptionError(
            f"opset_version is {opset}; onnx {onnx.__version__}, which is installed, has opsets up "
            f"to {newest}: pass opset_version={newest}, or install a newer onnx",
            code="OA008",
        )


def choose_target(target: str | None, opset: Any, model: Any, inputs: Any) -> str | None:
    """The target of an export: that for CUDA if only ONNX Runtime is named and a tensor is there.

    Args:
        target: As the user gives it.
        opset: As the user gives it; one that the table for CUDA lacks keeps the target.
        model: A module or program, or a function.
        inputs: A nested structure of example inputs.
    """
    from onnx_aot.targets import ON_CUDA, RUNTIME, find_kernels

    if target != RUNTIME or (isinstance(opset, int) and opset > find_kernels(ON_CUDA).opset):
        return target
    return ON_CUDA if any(tensor.is_cuda for tensor in _list_tensors(model, inputs)) else target


def _list_tensors(model: Any, inputs: Any) -> Iterator[torch.Tensor]:
    """Yields example inputs and weights."""
    import torch

    from onnx_aot.torch_compat import is_initialized, pytree

    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor):
            yield leaf
    if isinstance(model, torch.nn.Module) and is_initialized(model):
        yield from model.parameters()
        yield from model.buffers()
    elif isinstance(model, torch.export.ExportedProgram):
        yield from model.state_dict.values()


def choose_opset(target: str | None) -> int:
    """The opset of an export that names none: the default, or the highest that the target loads.

    Raises:
        InvalidOptionError: There is no such target.
    """
    from onnx_aot.targets import find_kernels

    return DEFAULT_OPSET if target is None else min(DEFAULT_OPSET, find_kernels(target).opset)


def _check_contrib_ops(options: Options) -> None:
    from onnx_aot.targets import FAMILY, find_kernels

    if not options.contrib_ops:
        return
    if options.target is None or find_kernels(options.target).runtime not in FAMILY:
        raise InvalidOptionError(
            f"contrib_ops is True and target is {options.target!r}; only ONNX Runtime has these "
            'operators: pass target="onnxruntime", or leave contrib_ops out'
        )


def _check_target(target: str | None, opset: int) -> None:
    """Checks that there is such a target, and that it loads the opset."""
    from onnx_aot.targets import RUNTIME, find_kernels

    if target is None:
        return
    kernels = find_kernels(target)
    name = kernels.name + (", which is installed," if target == RUNTIME else "")
    if opset > kernels.opset:
        raise InvalidOptionError(
            f"opset_version is {opset}; {name} loads opsets up to {kernels.opset}: pass "
            f"opset_version={kernels.opset}, or as target a newer release, "
            f"'{kernels.runtime}==x.y', or None",
            code="OA008",
        )
    if opset < kernels.least_opset:
        raise InvalidOptionError(
            f"opset_version is {opset}; the operators of {name} are known from opset "
            f"{kernels.least_opset} on: pass opset_version={kernels.least_opset}, or leave it out, "
            "or pass target=None",
            code="OA008",
        )


def check_optimize(given: Any) -> None:
    """Checks that ``optimize`` is a bool, ``"safe"``, or names of passes and rules.

    Raises:
        InvalidOptionError: It is not.
    """
    if isinstance(given, bool) or given == "safe":
        return
    from onnx_aot.ir_passes import RULES_ON_REQUEST, names_of_passes

    known = [*names_of_passes(), *(rule.name for rule in RULES_ON_REQUEST)]
    if isinstance(given, str) or not isinstance(given, Collection):
        raise InvalidOptionError(
            f'optimize is {given!r}; expected True, False, "safe", or a set of names: '
            f"{', '.join(known)}"
        )
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidOptionError(
                f"optimize has {name!r}, which is not a pass or rule{hint}. There are "
                f"{', '.join(known)}"
            )


def _check_domains(given: Any) -> None:
    is_table = given is None or isinstance(given, Mapping)
    if not is_table or not all(_is_version(*pair) for pair in (given or {}).items()):
        raise InvalidOptionError(
            f"custom_opsets is {given!r}; expected a dict of versions by domain, such as "
            '{"my.domain": 2}. The version of ONNX\'s own operators is opset_version',
            code="OA013",
        )


def _is_version(domain: Any, version: Any) -> bool:
    named = isinstance(domain, str) and domain not in ("", "ai.onnx")
    return named and isinstance(version, int) and not isinstance(version, bool) and version > 0


def _check_weights(given: Any) -> None:
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not isinstance(given, bool) and not (is_list and all(isinstance(n, str) for n in given)):
        raise InvalidOptionError(
            f"weights_as_inputs is {given!r}; expected True, False, or a list of names of "
            'parameters and buffers such as ["head.weight", "encoder.*"]',
            code="OA011",
        )


class Retired(NamedTuple):
    """An option of earlier exporters: which values change nothing, and what to do instead."""

    harmless: Callable[[Any], bool]
    advice: str


def named_mode(value: Any) -> str:
    """Upper-case name of a mode: ``"EVAL"`` for ``TrainingMode.EVAL`` and for ``"EVAL"``."""
    return str(getattr(value, "name", value)).rpartition(".")[2].upper()


def _check_classes(given: Any) -> None:
    is_collection = isinstance(given, Collection) and not isinstance(given, str)
    if not isinstance(given, bool) and not (
        is_collection and all(isinstance(entry, (type, str)) for entry in given)
    ):
        raise InvalidOptionError(
            f"export_modules_as_functions is {given!r}; expected True, False, or a set of "
            'classes of modules, or of their names such as "torch.nn.modules.linear.Linear"',
            code="OA012",
        )


RETIRED: dict[str, Retired] = {
    "training": Retired(
        lambda value: named_mode(value) in ("EVAL", "PRESERVE"),
        "call model.eval() or model.train() before exporting",
    ),
    "operator_export_type": Retired(
        lambda value: named_mode(value) == "ONNX",
        'use unsupported="emit", which emits operators without a translation in a domain of their '
        "own, or give translations in custom_translation_table",
    ),
    "do_constant_folding": Retired(lambda value: True, "use optimize=True or optimize=False"),
    "autograd_inlining": Retired(
        bool,
        "autograd functions are inlined, except those with a symbolic method, which is called; "
        "give them one",
    ),
    "fallback": Retired(lambda value: True, "there is one exporter; leave the option out"),
}


def check_retired(given: Mapping[str, Any], accepted: list[str]) -> None:
    """Warns about retired options whose value changes nothing, and rejects all others.

    Raises:
        InvalidOptionError: An option is unknown, or retired and its value cannot be honoured.
    """
    for name, value in given.items():
        retired = RETIRED.get(name)
        if retired is None:
            close = [option for option in accepted if option.startswith(name)]
            close += difflib.get_close_matches(name, accepted, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise InvalidOptionError(
                f"export has no option {name!r}{hint} Options are {', '.join(accepted)}",
                code="OA002",
            )
        if not retired.harmless(value):
            raise InvalidOptionError(
                f"the option {name}={value!r} is retired and cannot be honoured: {retired.advice}",
                code="OA002",
            )
        warn(f"the option {name} is retired and has no effect: {retired.advice}", "OA002")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Checks that a value is one of the choices.

    Raises:
        InvalidOptionError: It is not.
    """
    if not any(value is choice or value == choice for choice in choices):
        shown = ", ".join(map(repr, choices))
        raise InvalidOptionError(f"{name} is {value!r}; expected one of {shown}")
