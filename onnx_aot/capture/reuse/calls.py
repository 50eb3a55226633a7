"""Decides for each call of a module whether it is traced, recorded or copied."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.alike import Alike, Attribute, are_equal, has_hooks
from onnx_aot.capture.reuse.parts import (
    Arguments,
    Part,
    UnsuitableError,
    describe_arguments,
    record_part,
)
from onnx_aot.capture.reuse.splicing import Position, splice
from onnx_aot.capture.reuse.state import (
    Surroundings,
    Writes,
    context_of,
    reads_watched,
    values_of,
    weights_of,
)
from onnx_aot.capture.sizes.known_values import KnownValues
from onnx_aot.torch_compat import can_copy, node_of, traced_module, users_lines

__all__ = ["Reuse", "Usage"]

_FEWEST_NODES = 4  # a copy of fewer takes as long as tracing them
_MOST_TRIES = 6  # calls of one kind that are compared before it is given up


@dataclasses.dataclass(frozen=True)
class Usage:
    """What became of the calls of modules of one class.

    Attributes:
        kind: The class.
        traced: The number of calls that were traced.
        copied: The number of calls that were copied.
        reason: Why calls were not copied, or an empty string.
    """

    kind: str
    traced: int
    copied: int
    reason: str = ""


@dataclasses.dataclass
class _Sample:
    """A call that was traced.

    Attributes:
        part: What it recorded.
        position: Where it took place.
        read: Attributes that it read, in which modules that are alike differ, with the values.
        surroundings: Values outside of the module at the time.
        counts: How often it called modules, by path, and functions of torch.
        is_confirmed: Whether an equal part was recorded for another call.
    """

    part: Part
    position: Position
    read: dict[Attribute, Any]
    surroundings: dict[Any, Any]
    counts: tuple[Counter[str], Counter[Any]]
    is_confirmed: bool = False


@dataclasses.dataclass
class _Group:
    """Calls of modules that are alike, with alike arguments.

    Attributes:
        name: The class of the modules.
        surroundings: What the modules may read outside of them.
        samples: Calls that were traced, the last one of each form.
        tries: The number of calls that were traced.
        copied: The number of calls that were copied.
        reason: Why calls are not copied.
    """

    name: str
    surroundings: Surroundings
    samples: list[_Sample] = dataclasses.field(default_factory=list)
    tries: int = 0
    copied: int = 0
    reason: str = ""


class Reuse:
    """Copies what was recorded for calls of modules in place of tracing them again.

    Args:
        root: The model.
        known: Values of tensors that the capture knows.
    """

    def __init__(self, root: torch.nn.Module, known: KnownValues) -> None:
        self._root, self._known = root, known
        self._alike: Alike | None = None
        self._tracer: Any = None
        self._is_recording = False
        self._called: Counter[int] = Counter()
        self._groups: dict[Any, _Group] = {}
        self._unsuitable: dict[int, str] = {}

    @property
    def usage(self) -> Iterator[Usage]:
        """What became of the calls, by class of modules."""
        for group in self._groups.values():
            yield Usage(group.name, group.tries, group.copied, group.reason)

    def call(
        self,
        tracer: Any,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Callable[[], Any],
    ) -> Any:
        """Makes the call of a module, with ``trace()`` or by a copy."""
        if self._is_recording or not self._is_outermost(tracer):
            return trace()
        module = traced_module(module, tracer)
        number = self._find(module)
        if number is None:
            return trace()
        try:
            path = tracer.path_of_module(module)
            arguments = describe_arguments(args, kwargs, tracer)
        except UnsuitableError as error:
            self._unsuitable.setdefault(number, str(error))
            return trace()
        except NameError:  # not a part of the model
            return trace()
        weights = dict(weights_of(module))
        group = self._find_group(number, module, arguments, weights)
        if group.reason:
            return trace()
        position = Position.now(tracer, path, users_lines(tracer))
        surroundings = group.surroundings.read()
        for sample in group.samples:
            if sample.is_confirmed and _fits(sample, module, surroundings):
                group.copied += 1
                return self._splice(sample, position, arguments, weights)
        return self._record(
            group, number, module, (args, kwargs), arguments, position, surroundings, trace
        )

    def _is_outermost(self, tracer: Any) -> bool:
        if self._tracer is None and can_copy(tracer):
            self._tracer = tracer
        return tracer is self._tracer

    def _find(self, module: torch.nn.Module) -> int | None:
        """The number of modules that are alike; None if they are not called often enough."""
        if self._alike is None:
            self._alike = Alike(self._root)
        number = self._alike.find(module)
        if number is None or number in self._unsuitable or not _has_several_nodes(module):
            return None
        self._called[number] += 1
        return number if max(self._alike.count(number), self._called[number]) > 2 else None

    def _find_group(
        self,
        number: int,
        module: torch.nn.Module,
        arguments: Arguments,
        weights: dict[str, torch.Tensor],
    ) -> _Group:
        same: dict[int, int] = {}  # which of the tensors are one and the same
        tensors = (*arguments.tensors, *weights.values())
        tied = tuple(same.setdefault(id(tensor), len(same)) for tensor in tensors)
        key = (number, context_of(), arguments.key, tied)
        group = self._groups.get(key)
        if group is None:
            assert self._alike is not None
            surroundings = Surroundings(module, self._alike.differing(number))
            group = self._groups[key] = _Group(type(module).__name__, surroundings)
        return group

    def _splice(
        self,
        sample: _Sample,
        position: Position,
        arguments: Arguments,
        weights: dict[str, torch.Tensor],
    ) -> Any:
        tracer = self._tracer
        result = splice(sample.part, sample.position, position, arguments, weights, tracer)
        calls, functions = sample.counts
        for path, count in calls.items():
            path = position.path + path[len(sample.position.path) :]
            tracer.num_calls[path] = tracer.num_calls.get(path, 0) + count
        for function, count in functions.items():
            tracer.torch_fn_counts[function] = tracer.torch_fn_counts.get(function, 0) + count
        return result

    def _record(
        self,
        group: _Group,
        number: int,
        module: torch.nn.Module,
        given: Any,
        arguments: Arguments,
        position: Position,
        surroundings: dict[Any, Any],
        trace: Callable[[], Any],
    ) -> Any:
        """Traces a call, records its part, and compares it with those before."""
        assert self._alike is not None
        tracer = self._tracer
        last = tracer.graph._root._prev
        reads_before = self._known.reads
        before = Counter(tracer.num_calls), Counter(tracer.torch_fn_counts)
        writes = Writes(module, given)
        self._is_recording = True
        try:
            with reads_watched(module, self._alike.differing(number)) as reads:
                result = trace()
        finally:
            self._is_recording = False
        group.tries += 1
        try:
            reason = "hooks run" if has_hooks(module) else writes.describe()
            if reason is None and self._known.reads != reads_before:
                reason = "it reads a number from a tensor"
            if reason is not None:
                raise UnsuitableError(reason)
            nodes = list(_nodes_after(last, tracer.graph))
            part = record_part(nodes, arguments, dict(weights_of(module)), result, tracer)
            if any(self._known.is_known(tensor, tracer) for tensor in part.tensors):
                raise UnsuitableError("it returns a tensor whose value is known")
            if len(part.nodes) < _FEWEST_NODES:
                raise UnsuitableError("it has few nodes")
        except UnsuitableError as error:
            group.reason = self._unsuitable[number] = str(error)
            return result
        read = values_of(module, frozenset(reads))
        counts = Counter(tracer.num_calls) - before[0], Counter(tracer.torch_fn_counts) - before[1]
        self._add(group, _Sample(part, position, read, surroundings, counts))
        return result

    def _add(self, group: _Group, sample: _Sample) -> None:
        for i, other in enumerate(group.samples):
            if (
                other.part.form == sample.part.form
                and other.surroundings == sample.surroundings
                and other.read.keys() == sample.read.keys()
                and all(are_equal(other.read[key], sample.read[key]) for key in other.read)
            ):
                sample.is_confirmed = True
                group.samples[i] = sample
                return
        group.samples.append(sample)
        if group.tries >= _MOST_TRIES and not any(s.is_confirmed for s in group.samples):
            group.reason = "its calls differ"


def _fits(sample: _Sample, module: torch.nn.Module, surroundings: dict[Any, Any]) -> bool:
    """True if a module's call adds what a recorded one did."""
    if sample.surroundings != surroundings or has_hooks(module):
        return False
    own = values_of(module, frozenset(sample.read))
    return own.keys() == sample.read.keys() and all(
        are_equal(own[key], value) for key, value in sample.read.items()
    )


def _has_several_nodes(module: torch.nn.Module) -> bool:
    """False for torch's own layers, which are one operator."""
    return bool(vars(module)["_modules"]) or not type(module).__module__.startswith("torch.nn")


def _nodes_after(node: torch.fx.Node, graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    node = node._next
    while node is not graph._root:
        yield node
        node = node._next
