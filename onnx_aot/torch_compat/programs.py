"""Copies, edits and reads ``ExportedProgram`` and its graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import InputKind

from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat.batching import RULES
from onnx_aot.torch_compat.lookup import private, private_attribute
from onnx_aot.torch_compat.overloads import aten, exported
from onnx_aot.torch_compat.patching import Patch, Settings, applied

__all__ = [
    "WHILE_RETRACED",
    "access_of_subclasses",
    "copy_node",
    "copy_program",
    "functionalized_by_torch",
    "make_body",
    "missing_fake_kernels",
    "open_weight",
    "replace_weights",
    "set_graph",
    "set_graph_signature",
    "set_graph_with_bodies",
    "set_size_conditions",
    "size_conditions",
]

_PROGRAM = "torch.export:ExportedProgram"
_GUARDS = f"{_PROGRAM}._guards_code"


def copy_program(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Copies a program; the copy has its own graph and signature and shares the weights."""
    duplicate = copy.copy(program)
    _replace(duplicate, program.range_constraints, dict(program.range_constraints))
    _replace(duplicate, program.graph_module, _copy_graph_module(program.graph_module))
    return duplicate


def _replace(program: torch.export.ExportedProgram, held: Any, replacement: Any) -> None:
    """Replaces an object that a program holds; its public properties are read-only.

    Raises:
        CaptureError: The program does not hold the object as an attribute.
    """
    names = [name for name, value in vars(program).items() if value is held]
    if not names:
        raise CaptureError(
            f"torch {torch.__version__} does not let this package replace the "
            f"{type(held).__name__} of an ExportedProgram. Install a release of torch that the "
            "README lists as tested",
            code="OA016",
        )
    for name in names:
        setattr(program, name, replacement)


def _copy_graph_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in module.graph.nodes:
        copies[node] = copy_node(graph, node, lambda n: copies[n])
    duplicate = _graph_module(module, graph)
    for name, child in list(duplicate.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(duplicate, name, _copy_graph_module(child))
    return duplicate


def _graph_module(module: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Makes a module with another graph, whose Python source is generated when it is first run."""
    lazy = private("torch.fx._lazy_graph_module:_LazyGraphModule")
    made: torch.fx.GraphModule = (lazy or torch.fx.GraphModule)(module, graph)
    made.meta = dict(getattr(module, "meta", {}))
    return made


def copy_node(
    graph: torch.fx.Graph, node: torch.fx.Node, mapping: Callable[[torch.fx.Node], Any]
) -> torch.fx.Node:
    """Copies a node to another graph. Placeholders keep their names, also such as ``input``.

    ``Graph.node_copy`` renames nodes with the name of a Python builtin, but the graph signature
    refers to placeholders by name.
    """
    copied = graph.node_copy(node, mapping)
    if node.op == "placeholder":
        copied.name = node.name
    return copied


def _leave_checks_unordered(original: Any, settings: Settings) -> Any:
    """Lets checks of decompositions have no effect, for which torch adds inputs and outputs."""

    def get_effect(op: Any) -> Any:
        return None if op == aten._linalg_check_errors.default else original(op)

    return get_effect


WHILE_RETRACED: tuple[Patch, ...] = (
    RULES,
    Patch(
        "torch._higher_order_ops.effects:_get_effect",
        _leave_checks_unordered,
        "Inverses and solutions of equations are refused where torch retraces the program, as "
        "under torch.vmap.",
        parameters="op",
    ),
)
"""Rows for ``functionalized_by_torch``."""


def functionalized_by_torch(
    program: torch.export.ExportedProgram,
) -> torch.export.ExportedProgram:
    """Retraces a program without in-place operators, with composite operators decomposed.

    ``run_decompositions`` is public; it warns about torch's own use of a deprecated pytree form.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        copied = copy_program(program)
        _drop_views_of_batches(copied)
        _drop_checks_of_types(copied)
        with applied(WHILE_RETRACED, Settings(dynamic=True)):
            functional: torch.export.ExportedProgram = copied.run_decompositions({})
    return functional


def _drop_views_of_batches(program: torch.export.ExportedProgram) -> None:
    """Removes constants that are values of ``torch.vmap``, which torch cannot run, if none is used.

    Under two of them, ``matrix @ vector`` transposes a value that the capture has not recorded, so
    that it becomes a constant. The result is not used.
    """
    graph, signature = program.graph, program.graph_signature
    given = [node for node in graph.nodes if node.op == "placeholder"]
    kept, constants = [], dict(program.constants)
    for node, spec in zip(given, signature.input_specs, strict=True):
        is_of_vmap = (
            spec.kind == InputKind.CONSTANT_TENSOR
            and type(node.meta.get("val")) is torch.Tensor  # those of others are fake
            and all(user.op == "call_function" and not user.users for user in node.users)
        )
        if is_of_vmap:
            for unused in [*node.users, node]:
                graph.erase_node(unused)
            constants.pop(str(spec.target), None)
        else:
            kept.append(spec)
    if len(kept) < len(given):
        _replace(program, program.constants, constants)
        set_graph_signature(program, type(signature)(kept, signature.output_specs))


def _drop_checks_of_types(program: torch.export.ExportedProgram) -> None:
    """Removes checks of dtypes, which torch cannot run on values of ``torch.vmap``."""
    for node in list(program.graph.nodes):
        if node.target is aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)


def size_conditions(program: torch.export.ExportedProgram) -> list[str]:
    """Conditions on the inputs' sizes under which the program was captured, as Python.

    ``L`` in a condition stands for the arguments by name.
    """
    return list(private_attribute(program, _GUARDS, ()))


def set_size_conditions(program: torch.export.ExportedProgram, conditions: list[str]) -> None:
    """Replaces the conditions on the inputs' sizes of a program that the caller owns."""
    setattr(program, _GUARDS.rpartition(".")[2], conditions)


def set_graph(program: torch.export.ExportedProgram, graph: torch.fx.Graph) -> None:
    """Replaces the graph of a program that the caller owns.

    ``ExportedProgram`` has no public way to do this without generating Python source.
    """
    _replace(program, program.graph_module, _graph_module(program.graph_module, graph))


def make_body(
    graph: torch.fx.Graph, attributes: torch.nn.Module | Mapping[str, torch.fx.GraphModule]
) -> torch.fx.GraphModule:
    """Makes a module of a graph.

    Args:
        graph: The graph.
        attributes: The modules that it calls by name, or a module that has them.
    """
    if isinstance(attributes, torch.nn.Module):
        return _graph_module(attributes, graph)
    root = torch.nn.Module()
    for name, body in attributes.items():
        root.add_module(name, body)
    return _graph_module(root, graph)


def set_graph_with_bodies(
    program: torch.export.ExportedProgram,
    graph: torch.fx.Graph,
    bodies: Mapping[str, torch.fx.GraphModule],
    constants: Mapping[str, Any],
) -> None:
    """Replaces the graph of a program that the caller owns, by one that calls other graphs.

    Args:
        program: The program.
        graph: The new graph.
        bodies: The graphs that it calls, by the names that it has for them.
        constants: The new constants of the program.
    """
    module = make_body(graph, bodies)
    module.meta = dict(program.graph_module.meta)
    _replace(program, program.graph_module, module)
    _replace(program, program.constants, dict(constants))


def set_graph_signature(program: torch.export.ExportedProgram, signature: Any) -> None:
    """Replaces the signature of a program that the caller owns.

    ``ExportedProgram`` has no public way to do this.
    """
    _replace(program, program.graph_signature, signature)


def access_of_subclasses() -> Any:
    """Returns the operator that reads a part of a subclass tensor in an exported graph."""
    return exported.access_subclass_inner_tensor.default


def open_weight(program: torch.export.ExportedProgram, name: str, parts: Mapping[str, str]) -> None:
    """Replaces a weight, in a program that the caller owns, by its parts.

    ``ExportedProgram`` has no public way to replace its weights, and a copy shares their dicts with
    the original. Without this, weights of tensor subclasses could not be exported.

    Args:
        program: The program.
        name: Name of the parameter, buffer or constant.
        parts: New names by attribute of its tensor. Its other inner tensors are kept too.
    """
    for held in (program.state_dict, program.constants):
        tensors = dict(held)
        if name not in tensors:
            continue
        whole = tensors.pop(name)
        unread = {part: f"{name}.{part}" for part in whole.__tensor_flatten__()[0]}
        for part, target in (unread | dict(parts)).items():
            tensors[target] = getattr(whole, part).detach()
        _replace(program, held, tensors)
        return


def replace_weights(
    program: torch.export.ExportedProgram, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Replaces weights, in a program that the caller owns, as ``open_weight`` does.

    Args:
        program: The program.
        tensors: The new ones, by the name of the parameter, buffer or constant.
    """
    for held in (program.state_dict, program.constants):
        changed = {name: tensor for name, tensor in tensors.items() if name in held}
        if changed:
            _replace(program, held, {**held, **changed})


def missing_fake_kernels(program: torch.export.ExportedProgram) -> list[str]:
    """Names of custom operators without a fake kernel, for which draft export ran the real one."""
    report = private_attribute(program, f"{_PROGRAM}._report")
    failures = getattr(report, "failures", ())
    missing = [f for f in failures if str(f.failure_type) == "MISSING_FAKE_KERNEL"]
    return list(dict.fromkeys(str(failure.data.get("op")) for failure in missing))
