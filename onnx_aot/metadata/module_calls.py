"""Finds the module calls around each node of a captured graph."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.fx

from onnx_aot.errors import InvalidOptionError

__all__ = ["ModuleCall", "module_calls", "wanted_classes"]


@dataclasses.dataclass(frozen=True)
class ModuleCall:
    """One call of a module.

    Attributes:
        path: The module's name in the model.
        class_name: Its class, qualified with the Python module.
        number: Number of earlier calls of the same module.
    """

    path: str
    class_name: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.path}@{self.number}" if self.number else self.path


def module_calls(graph: torch.fx.Graph) -> dict[str, tuple[ModuleCall, ...]]:
    """The calls of modules around each node, outermost first and without the model itself.

    The capture records which modules a node is in, but not in which call of a module. A node
    outside the module separates two calls; calls that follow each other directly count as one.
    """
    calls: dict[str, tuple[ModuleCall, ...]] = {}
    begun: dict[str, int] = {}
    before: dict[str, ModuleCall] = {}
    for node in graph.nodes:
        stack = _stack(node)
        if node.op != "call_function" or stack is None:
            continue
        now = {}
        for path, class_name in stack.items():
            call = before.get(path)
            if call is None:
                call = ModuleCall(path, class_name, begun.get(path, 0))
                begun[path] = call.number + 1
            now[path] = call
        before = now
        calls[node.name] = tuple(now.values())
    return calls


def class_name(module_class: type[Any] | str) -> str:
    """Name of a class as the capture records it: ``"torch.nn.modules.linear.Linear"``."""
    if isinstance(module_class, str):
        return module_class
    return f"{module_class.__module__}.{module_class.__qualname__}"


def _stack(node: torch.fx.Node) -> dict[str, str] | None:
    """Classes by path; None for nodes that torch adds itself, such as look-ups of sizes."""
    recorded: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    named = {path: class_name(kind) for path, kind in recorded.values()}
    if not named or any(path == kind for path, kind in named.items()):
        return None
    named.pop("", None)
    return named


CONTAINERS = frozenset({"ModuleDict", "ModuleList", "Sequential"})


def wanted_classes(
    option: bool | Collection[type[Any] | str], calls: Mapping[str, tuple[ModuleCall, ...]]
) -> frozenset[str]:
    """The classes of ``export_modules_as_functions``, by name.

    ``True`` selects repeated blocks: classes with modules inside and with at least two called
    modules, except those that occur inside another such class.

    Raises:
        InvalidOptionError: No module that is called has one of the classes.
    """
    if option is False:
        return frozenset()
    if option is True:
        return _find_repeated_blocks(set(calls.values()))
    present = {call.class_name for stack in set(calls.values()) for call in stack}
    wanted = frozenset(map(class_name, option))
    if absent := sorted(wanted - present):
        raise InvalidOptionError(
            f"export_modules_as_functions has {', '.join(absent)}, but the model calls no module "
            f"of this class. It calls modules of {', '.join(sorted(present)) or 'no class'}",
            code="OA012",
        )
    return wanted


def _find_repeated_blocks(stacks: Collection[tuple[ModuleCall, ...]]) -> frozenset[str]:
    paths: dict[str, set[str]] = collections.defaultdict(set)
    above: dict[str, set[str]] = collections.defaultdict(set)
    with_modules: set[str] = set()
    for stack in stacks:
        for depth, call in enumerate(stack):
            outer = [other.class_name for other in stack[:depth]]
            paths[call.class_name].add(call.path)
            above[call.class_name].update(outer)
            with_modules.update(outer)
    blocks = {
        name
        for name in with_modules
        if len(paths[name]) > 1 and name.rpartition(".")[2] not in CONTAINERS
    }
    return frozenset(name for name in blocks if not above[name] & (blocks - {name}))
