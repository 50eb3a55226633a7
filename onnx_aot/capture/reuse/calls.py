"""Decides for each call of a module whether it is traced, recorded or copied."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from onnx_aot.capture.reuse.alike import Alike, Attribute
from onnx_aot.capture.reuse.exchanges import Exchanges, unwrap_own
from onnx_aot.capture.reuse.parts import (
    Operands,
    Part,
    UnsuitableError,
    describe_operands,
    record_part,
)
from onnx_aot.capture.reuse.splicing import Position, describe_difference, splice
from onnx_aot.capture.reuse.state import (
    Attributes,
    Writes,
    context_of,
    reads_watched,
    submodules,
    weights_of,
)
from onnx_aot.capture.reuse.surroundings import Surroundings
from onnx_aot.capture.reuse.usage import Usage
from onnx_aot.capture.sizes.known_values import KnownValues
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import (
    can_copy,
    has_foreign_modes,
    has_hooks,
    last_node,
    nodes_after,
    registered_in,
    traced_module,
    users_lines,
)

__all__ = ["Reuse"]

logger = logging.getLogger(__name__)

_FEWEST_NODES = 4  # a copy of fewer saves little
_TOO_SMALL = "it has few nodes"
_MOST_TRIES = 6  # calls with alike arguments that are compared before these are given up
_MOST_GROUPS = 12  # different arguments of one kind of module, none of which were copied


@dataclasses.dataclass
class _Sample:
    """A call that was traced.

    Attributes:
        part: What it recorded.
        position: Where it took place.
        gradients: Which of its arguments require a gradient.
        attributes: Attributes of the module before the call.
        ignored: Attributes in which modules that are alike differ, and that it did not read.
        surroundings: Values outside of the module at the time.
        counts: How often it called modules, by path, and functions of torch.
        is_confirmed: Whether an equal part was recorded for another call.
    """

    part: Part
    position: Position
    gradients: tuple[bool, ...]
    attributes: Attributes
    ignored: frozenset[Attribute]
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


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a module.

    Attributes:
        number: The number that the module shares with those that are alike.
        module: The module.
        given: The arguments.
        operands: What it works on.
        attributes: The module's attributes.
        surroundings: Values outside of the module that it may read.
        position: Where it takes place.
        trace: Makes the call.
    """

    number: int
    module: torch.nn.Module
    given: Any
    operands: Operands
    attributes: Attributes
    surroundings: dict[Any, Any]
    position: Position
    trace: Callable[[], Any]


class Reuse:
    """Copies what was recorded for calls of modules in place of tracing them again.

    Args:
        root: The model.
        known: Values of tensors that the capture knows.
        only_compares: Whether all calls are traced, and compared with their copies.

    Attributes:
        failed: Whether a copy could not be completed, so that the capture is of no use. The model
            may have caught the exception.
    """

    def __init__(
        self, root: torch.nn.Module, known: KnownValues, only_compares: bool = False
    ) -> None:
        self._root, self._known, self.only_compares = root, known, only_compares
        self.failed = False
        self._alike: Alike | None = None
        self._is_off = False
        self._tracer: Any = None
        self._is_recording = False
        self._called: Counter[int] = Counter()
        self._groups: dict[Any, _Group] = {}
        self._unsuitable: set[int] = set()
        self._refused: list[Usage] = []

    @property
    def usage(self) -> list[Usage]:
        """The calls that were copied, or could not be."""
        groups = [
            group
            for group in self._groups.values()
            if group.copied or group.reason not in ("", _TOO_SMALL)
        ]
        found = [Usage(g.name, g.tries, g.copied, g.reason) for g in groups]
        return found + self._refused

    def call(
        self,
        tracer: Any,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Callable[[], Any],
    ) -> Any:
        """Makes the call of a module, with ``trace()`` or by a copy.

        Raises:
            CaptureError: A copy would have differed, and all calls are compared.
        """
        if self._is_recording or not self._is_outermost(tracer) or has_foreign_modes():
            return trace()
        module = traced_module(module, tracer)
        number = self._find(module)
        if number is None:
            return trace()
        try:
            path = tracer.path_of_module(module)
            operands = describe_operands(args, kwargs, dict(weights_of(module)), tracer)
        except UnsuitableError as error:
            self._refuse(number, module, str(error))
            return trace()
        except NameError:  # not a part of the model
            return trace()
        group = self._find_group(number, module, operands)
        if group is None or group.reason:
            return trace()
        position = Position.now(tracer, path, users_lines(tracer))
        held = Attributes(module), group.surroundings.read()
        call = _Call(number, module, (args, kwargs), operands, *held, position, trace)
        for sample in group.samples:
            if sample.is_confirmed and _fits(sample, call):
                group.copied += 1
                if self.only_compares:
                    return self._compare(sample, call)
                return self._splice(sample, call)
        group.tries += 1
        result, reason, traced = self._record(call)
        if traced is not None:
            self._add(group, traced)
        if reason:
            group.reason = reason
            self._unsuitable.add(number)
        return result

    def _refuse(self, number: int, module: torch.nn.Module, reason: str) -> None:
        self._unsuitable.add(number)
        self._refused.append(Usage(type(module).__name__, 0, 0, reason))

    def _is_outermost(self, tracer: Any) -> bool:
        if self._tracer is None and can_copy(tracer):
            self._tracer = tracer
        return tracer is self._tracer

    def _find(self, module: torch.nn.Module) -> int | None:
        """The number of modules that are alike; None if they are not called often enough."""
        if self._alike is None:
            try:
                self._alike = Alike(self._root)
            except Exception:  # a module that is no module in all respects; nothing is lost
                logger.warning("layers that repeat are not looked for", exc_info=True)
                self._is_off = True
        if self._is_off or self._alike is None:
            return None
        number = self._alike.find(module)
        if number is None or number in self._unsuitable or not _has_several_nodes(module):
            return None
        self._called[number] += 1
        return number if max(self._alike.count(number), self._called[number]) > 2 else None

    def _find_group(
        self, number: int, module: torch.nn.Module, operands: Operands
    ) -> _Group | None:
        """The group of a call; None if these modules are never called with alike arguments."""
        key = (number, context_of(), operands.key)
        group = self._groups.get(key)
        if group is None:
            assert self._alike is not None
            others = [other for (kind, *_), other in self._groups.items() if kind == number]
            if len(others) >= _MOST_GROUPS and not any(other.copied for other in others):
                self._refuse(number, module, "its arguments differ from call to call")
                return None
            surroundings = Surroundings(module, self._alike.differing(number))
            group = self._groups[key] = _Group(type(module).__name__, surroundings)
        return group

    def _splice(self, sample: _Sample, call: _Call) -> Any:
        tracer = self._tracer
        origin, position = sample.position, call.position
        owners = dict(submodules(call.module))

        def find(attribute: Attribute) -> Any:
            path, name = attribute
            return vars(owners[path])[name]

        try:
            result = splice(sample.part, origin, position, call.operands, find, tracer)
        except Exception:
            self.failed = True
            raise
        calls, functions = sample.counts
        for path, count in calls.items():
            own = position.path + path[len(origin.path) :]
            tracer.num_calls[own] = tracer.num_calls.get(own, 0) + count
        for function, count in functions.items():
            tracer.torch_fn_counts[function] = tracer.torch_fn_counts.get(function, 0) + count
        return result

    def _compare(self, sample: _Sample, call: _Call) -> Any:
        """Traces a call that could be copied.

        Raises:
            CaptureError: It is not what the copy would have been.
        """
        result, reason, traced = self._record(call)
        if traced is not None:
            reason = describe_difference(sample.part, traced.part, sample.position, call.position)
        if reason:
            raise CaptureError(
                f"the call of {call.position.path} ({type(call.module).__name__}) differs from its "
                f'copy: {reason}. Export with reuse="off", which traces all calls, and report '
                "this model",
                code="OA126",
            )
        return result

    def _record(self, call: _Call) -> tuple[Any, str, _Sample | None]:
        """Traces a call, and returns its result, why it cannot be copied, and what it recorded."""
        assert self._alike is not None
        tracer, module = self._tracer, call.module
        last = last_node(tracer.graph)
        reads_before = self._known.reads
        before = Counter(tracer.num_calls), Counter(tracer.torch_fn_counts)
        writes = Writes(module, call.given)
        objects = call.operands.objects
        exchanges = Exchanges(objects, tracer, users_lines)
        differing = self._alike.differing(call.number)
        self._is_recording = True
        try:
            with reads_watched(module, differing, bool(objects)) as reads, exchanges.watching():
                result = unwrap_own(call.trace())
        except TypeError:  # perhaps of a function that takes an int, and not an ``Own``
            self.failed = bool(objects and differing)
            raise
        finally:
            self._is_recording = False
        reason = "hooks run" if has_hooks(module) else exchanges.reason or writes.describe()
        if reason is None and self._known.reads != reads_before:
            reason = "it reads a number from a tensor"
        if reason is not None:
            return result, reason, None
        try:
            nodes = list(nodes_after(last, tracer.graph))
            part = record_part(nodes, exchanges.found, call.operands, result, tracer)
        except UnsuitableError as error:
            return result, str(error), None
        except Exception as error:  # what was traced is right nevertheless
            logger.warning("a call of %s was not recorded", call.position.path, exc_info=True)
            return result, f"it could not be recorded ({type(error).__name__})", None
        if any(self._known.is_known(tensor, tracer) for tensor in part.tensors):
            return result, "it returns a tensor whose value is known", None
        if len(part.nodes) < _FEWEST_NODES:
            return result, _TOO_SMALL, None
        counts = Counter(tracer.num_calls) - before[0], Counter(tracer.torch_fn_counts) - before[1]
        sample = _Sample(
            part,
            call.position,
            call.operands.gradients,
            call.attributes,
            differing - reads,
            call.surroundings,
            counts,
        )
        return result, "", sample

    def _add(self, group: _Group, sample: _Sample) -> None:
        for i, other in enumerate(group.samples):
            if (
                other.part.form == sample.part.form
                and other.surroundings == sample.surroundings
                and other.ignored == sample.ignored
                and other.attributes.agree(sample.attributes, sample.ignored)
            ):
                sample.is_confirmed = True
                group.samples[i] = sample
                return
        group.samples.append(sample)
        if group.tries >= _MOST_TRIES and not any(s.is_confirmed for s in group.samples):
            group.reason = "its calls differ"


def _fits(sample: _Sample, call: _Call) -> bool:
    """True if a call adds what a recorded one did."""
    return (
        sample.gradients == call.operands.gradients
        and not has_hooks(call.module)
        and sample.surroundings == call.surroundings
        and sample.attributes.agree(call.attributes, sample.ignored)
    )


def _has_several_nodes(module: torch.nn.Module) -> bool:
    """False for torch's own layers, which are one operator."""
    return bool(registered_in(module, "modules")) or not type(module).__module__.startswith(
        "torch.nn"
    )
