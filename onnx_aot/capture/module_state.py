"""Restores the user's module after a capture, even if the capture fails halfway."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from onnx_aot.capture.inputs import Inputs
from onnx_aot.capture.scripted.attributes import save_attributes
from onnx_aot.capture.scripted.children import is_scripted
from onnx_aot.pytrees.containers import has_parts, unwrap_constants
from onnx_aot.torch_compat import REGISTRIES, has_elements, pytree, registered_in, restored

__all__ = ["Change", "Snapshot", "initialize_lazy_modules", "preserved_state", "run_model"]


@dataclasses.dataclass(frozen=True)
class Change:
    """An attribute of a module that was assigned or deleted, or whose contents changed.

    Attributes:
        owner: The module.
        name: The attribute.
        path: Its path from the model.
        is_registered: Whether it is a parameter, buffer or submodule.
        is_filled: Whether it is a buffer that was None and is a tensor now, as caches are.
    """

    owner: torch.nn.Module
    name: str
    path: str
    is_registered: bool
    is_filled: bool = False

    def read(self, default: Any = None) -> Any:
        """The present value of the attribute, or of the buffer."""
        held = registered_in(self.owner, "buffers") if self.is_filled else vars(self.owner)
        return held.get(self.name, default)


@contextlib.contextmanager
def preserved_state(
    module: torch.nn.Module, elements: bool = True
) -> Iterator[Callable[[], list[Change]]]:
    """Restores every attribute of every submodule afterwards.

    Tracing runs ``forward``, which may count calls, fill caches or replace attributes, and leaves
    fake tensors in them. Parameters and buffers themselves are never written during a capture. In
    scripted modules, attributes that are set are restored.
    Tensors that are plain attributes are written, and get their elements back, as do lists, dicts,
    sets, dataclasses and key-value caches, including nested ones. Of other objects only fake
    tensors are taken back (``patches.memories``). Lazy modules stay initialized, as after any first
    call.

    Args:
        module: The module.
        elements: Whether tensors get their elements back too, which cannot be done while a model
            is traced.

    Yields:
        A function that lists the attributes that differ from before: those that were assigned, and
        those whose lists, dicts and the like have other contents.
    """
    scripts, owners = _find_owners(module)
    saved = [(owner, Snapshot(owner, elements)) for owner in owners]
    undone = [save_attributes(script) for script in scripts]

    def restore() -> None:
        for owner, snapshot in saved:
            snapshot.restore(owner)
        for undo in undone:
            undo()

    def list_changes() -> list[Change]:
        paths = {id(owner): f"{path}." if path else "" for path, owner in module.named_modules()}
        return [
            Change(
                *(owner, name, paths.get(id(owner), "") + name, is_registered),
                is_filled=is_registered and snapshot.is_filled(owner, name),
            )
            for owner, snapshot in saved
            for name, is_registered in snapshot.list_changes(owner).items()
        ]

    with restored(restore):
        yield list_changes


def _find_owners(module: torch.nn.Module) -> tuple[list[Any], list[torch.nn.Module]]:
    """Finds the outermost scripted modules, and modules with Python attributes."""
    root: Any = module._script if is_scripted(module) else module
    scripts: list[Any] = [root] if isinstance(root, torch.jit.ScriptModule) else []
    owners = []
    for owner in module.modules():
        if not isinstance(owner, torch.jit.ScriptModule):
            owners.append(owner)
            children = owner.children()
            scripts += (child for child in children if isinstance(child, torch.jit.ScriptModule))
    return [script for script in scripts if hasattr(script, "inlined_graph")], owners


def initialize_lazy_modules(module: torch.nn.Module, inputs: Inputs) -> None:
    """Runs a model once if it has lazy modules, which then have their weights as after any call."""
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        with contextlib.suppress(Exception):  # the capture fails too, and is explained
            run_model(module, inputs)


def run_model(module: torch.nn.Module, inputs: Inputs, writes_weights: bool = True) -> Any:
    """Runs a model on copies of its inputs, without gradients, and restores its state.

    Parameters are restored, for which they are copied, unless ``writes_weights`` is False.
    """
    args, kwargs = unwrap_constants(
        pytree.tree_map(
            lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (inputs.args, inputs.kwargs)
        )
    )
    state = [*module.buffers(), *(module.parameters() if writes_weights else ())]
    saved = [(tensor, tensor.detach().clone()) for tensor in state if type(tensor) in PLAIN]
    with preserved_state(module), torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            return module(*args, **kwargs)
        finally:
            for tensor, before in saved:
                tensor.copy_(before)


def error_of_model(module: torch.nn.Module, inputs: Inputs) -> Exception | None:
    """The error that a model raises without any capture, if any. Its state is restored."""
    given = pytree.tree_leaves((inputs.args, inputs.kwargs))
    tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    if any(tensor.is_meta for tensor in (*tensors, *module.parameters())):
        return None  # without values the model fails for other reasons
    try:
        run_model(module, inputs)
    except Exception as error:
        return error
    return None


PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Types of tensors that a model may write to; those of quantized and lazy weights are others."""

_WITHOUT_CONTENTS = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype})
"""Types of most attributes of modules."""

Container = list[Any] | dict[Any, Any] | set[Any]


class Snapshot:
    """Attributes of one module, with the contents of containers and tensors in them.

    Args:
        owner: The module.
        elements: Whether tensors are kept with their elements.
    """

    def __init__(self, owner: torch.nn.Module, elements: bool) -> None:
        self._class = type(owner)
        self._elements = elements
        self._attributes = dict(owner.__dict__)
        self._containers: dict[int, tuple[Container, Container]] = {}
        self._names: dict[int, str] = {}  # of the attributes that containers are in
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, value in self._attributes.items():
            # parameters, buffers and submodules are not examined
            if type(value) not in _WITHOUT_CONTENTS and name not in REGISTRIES:
                self._keep(value, name)
        for name in REGISTRIES & self._attributes.keys():
            registry = self._attributes[name]
            self._containers[id(registry)] = (registry, registry.copy())

    def _keep(self, value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            dense = value.layout == torch.strided  # others cannot be compared
            if self._elements and id(value) not in self._tensors and dense and has_elements(value):
                self._tensors[id(value)] = (value, value.detach().clone())
        elif isinstance(value, (list, dict, set)):
            if id(value) in self._containers:
                return
            self._containers[id(value)] = (value, value.copy())
            self._names[id(value)] = name
            for item in value.values() if isinstance(value, dict) else value:
                if type(item) not in _WITHOUT_CONTENTS:
                    self._keep(item, name)
        elif has_parts(value) and hasattr(value, "__dict__"):
            self._keep(value.__dict__, name)

    def list_changes(self, owner: torch.nn.Module) -> dict[str, bool]:
        """Attributes that are other objects now, or whose contents are, and if they are registered.

        Of torch's own modules only parameters, buffers and submodules, because ``LSTM`` renews the
        list of its weights at every call.
        """
        found: dict[str, bool] = {}
        for name in REGISTRIES & self._attributes.keys():
            registry, before = self._containers[id(self._attributes[name])]
            if isinstance(registry, dict) and isinstance(before, dict):
                names = {**before, **registry}
                found |= {key: True for key in names if not _is_kept(key, before, registry)}
        if not type(owner).__module__.startswith("torch."):
            present, before = owner.__dict__, self._attributes
            names = {**before, **present}
            found |= {name: False for name in names if not _is_kept(name, before, present)}
            for key, name in self._names.items():
                if not _holds_same_objects(*self._containers[key]):
                    found[name] = False
        return found

    def is_filled(self, owner: torch.nn.Module, name: str) -> bool:
        """True if a buffer was None and is a tensor now."""
        held = registered_in(owner, "buffers")
        before: Any = self._containers.get(id(held), ({}, {}))[1]
        was_none = name in before and before[name] is None
        return was_none and isinstance(held.get(name), torch.Tensor)

    def restore(self, owner: torch.nn.Module) -> None:
        """Gives the module its attributes and their contents back."""
        if type(owner) is not self._class:
            return  # a lazy module, which its first call has made an ordinary one
        present = owner.__dict__
        for name in [name for name in present if name not in self._attributes]:
            del present[name]
        for name, value in self._attributes.items():
            if name not in present or present[name] is not value:
                present[name] = value
        for container, before in self._containers.values():
            if not _holds_same_objects(container, before):
                container.clear()
                if isinstance(container, list):
                    container.extend(before)
                else:
                    container.update(before)
        for tensor, elements in self._tensors.values():
            if not torch.equal(tensor, elements):
                with torch.no_grad():
                    tensor.copy_(elements)


def _is_kept(name: str, before: dict[str, Any], present: dict[str, Any]) -> bool:
    """True if an entry is the same object as before, or an equal number or text."""
    if name not in before or name not in present:
        return False
    old, new = before[name], present[name]
    plain = (bool, int, float, str)
    return old is new or (isinstance(new, plain) and type(old) is type(new) and bool(old == new))


def _holds_same_objects(left: Container, right: Container) -> bool:
    """True if two containers hold the same objects in the same order."""
    if len(left) != len(right):
        return False
    if isinstance(left, set):
        return left == right
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = zip((*left, *left.values()), (*right, *right.values()), strict=True)
    else:
        pairs = zip(left, right, strict=True)
    return all(itertools.starmap(operator.is_, pairs))
