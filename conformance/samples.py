"""Takes samples from PyTorch's operator and module databases, as modules with tensor inputs."""

from __future__ import annotations

import dataclasses
import functools
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

__all__ = ["DTYPES", "Call", "Case", "Sample", "all_cases", "samples_of"]

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "uint8",
    "bool",
    "complex64",
)
POOL = 60  # samples to choose from
OTHERS = 2  # calls of a dynamic model at other sizes


@dataclasses.dataclass(frozen=True)
class Case:
    """One operator or module with one data type.

    Attributes:
        name: Name in the database, variant included: ``"std_mean.unbiased"``, ``"nn.Linear"``.
        dtype: One of ``DTYPES``.
        group: ``"static"``, ``"dynamic"`` (every dimension of 2 and more is symbolic), or
            ``"modules"``.
    """

    name: str
    dtype: str
    group: str


@dataclasses.dataclass
class Sample:
    """One call of an operator: a module, and the tensors to call it with.

    Attributes:
        module: Takes the tensors, returns a tuple of the tensors and numbers of the answer.
        inputs: The tensors, in the order in which they occur in the call.
        constants: Description of everything else that is in the call.
        others: Tensors of at most two other samples that differ in sizes only.
        captured: The captured program and eager's answer, once the sample has been judged.
    """

    module: Call
    inputs: tuple[torch.Tensor, ...]
    constants: str
    others: list[tuple[torch.Tensor, ...]] = dataclasses.field(default_factory=list)
    captured: tuple[torch.export.ExportedProgram, list[torch.Tensor | complex]] | None = None

    def is_empty(self) -> bool:
        """True if a tensor has no elements."""
        return any(x.numel() == 0 for x in self.inputs)

    def describe(self) -> str:
        """Describes types and shapes of the tensors, and the rest of the call."""
        shown = ", ".join(
            f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in self.inputs
        )
        return f"{shown}; {self.constants}" if self.constants else shown


class Call(torch.nn.Module):
    """Calls a function with tensors at their original places in the arguments."""

    def __init__(self, function: Any, arguments: Any) -> None:
        super().__init__()
        self.function = function
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Calls the function; returns the tensors and numbers of its answer, flat."""
        args, kwargs = self.rebuild_arguments(inputs)
        returned = self.function(*args, **kwargs)
        symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
        numbers = (torch.Tensor, bool, int, float, complex, *symbolic)
        return tuple(x for x in pytree.tree_leaves(returned) if isinstance(x, numbers))

    def rebuild_arguments(
        self, inputs: Sequence[torch.Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the positional and keyword arguments of the call."""
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, inputs, strict=True):
            leaves[place] = tensor
        arguments: tuple[tuple[Any, ...], dict[str, Any]]
        arguments = pytree.tree_unflatten(leaves, self.structure)
        return arguments


@functools.cache
def _load_operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {_name(op): op for op in op_db}


@functools.cache
def _load_modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def _name(op: Any) -> str:
    variant = getattr(op, "variant_test_name", "")
    return f"{op.name}.{variant}" if variant else str(op.name)


def all_cases(dtypes: Iterable[str], groups: Iterable[str]) -> list[Case]:
    """Lists the cases that PyTorch supports on the CPU according to the databases, in order."""
    wanted = [(name, getattr(torch, name)) for name in dtypes]
    cases = []
    for group in groups:
        database = _load_modules() if group == "modules" else _load_operators()
        for name, entry in database.items():
            supported = entry.supported_dtypes("cpu")
            cases += [Case(name, dtype, group) for dtype, t in wanted if t in supported]
    return cases


def samples_of(case: Case, count: int) -> list[Sample]:
    """Returns at most ``count`` samples, spread over the first sixty, the same in every process.

    At most one of them has an empty tensor, unless all of the sixty have one.
    """
    seed = zlib.crc32(case.name.encode())
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    of_group = _module_samples if case.group == "modules" else _operator_samples
    pool = []
    for sample in of_group(case):
        pool.append(sample)
        if len(pool) == POOL:
            break
    chosen = [pool[i] for i in _spread_indices(len(pool), count)]
    empty = [sample for sample in chosen if sample.is_empty()]
    full = [sample for sample in pool if not sample.is_empty()]
    if len(empty) > 1 and full:
        chosen = [full[i] for i in _spread_indices(len(full), count - 1)] + empty[:1]
    if case.group == "dynamic":
        for sample in chosen:
            sample.others = _other_sizes(sample, pool)
    return chosen


def _other_sizes(sample: Sample, pool: list[Sample]) -> list[tuple[torch.Tensor, ...]]:
    def kind_of(of: Sample) -> Any:  # only dimensions of 2 and more are dynamic
        sizes = [[size if size < 2 else "any" for size in x.shape] for x in of.inputs]
        return of.constants, [x.dtype for x in of.inputs], sizes

    def sizes(inputs: tuple[torch.Tensor, ...]) -> list[torch.Size]:
        return [x.shape for x in inputs]

    different = [
        other.inputs
        for other in pool
        if kind_of(other) == kind_of(sample) and sizes(other.inputs) != sizes(sample.inputs)
    ]
    return different[:OTHERS]


def _spread_indices(length: int, count: int) -> list[int]:
    if length <= count:
        return list(range(length))
    step = (length - 1) / max(count - 1, 1)
    return sorted({round(i * step) for i in range(count)})


def _operator_samples(case: Case) -> Iterator[Sample]:
    op = _load_operators()[case.name]
    dtype = getattr(torch, case.dtype)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        arguments = ((sample.input, *sample.args), dict(sample.kwargs))
        yield _sample(op.op, arguments)


def _module_samples(case: Case) -> Iterator[Sample]:
    info = _load_modules()[case.name]
    dtype = getattr(torch, case.dtype)
    given = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=False, training=False
    )
    for sample in given:
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).eval()
        called = sample.forward_input
        if info.is_lazy:
            module(*called.args, **called.kwargs)
        yield _sample(module, (tuple(called.args), dict(called.kwargs)))


def _sample(function: Any, arguments: Any) -> Sample:
    module = Call(function, arguments).eval()
    leaves = pytree.tree_leaves(arguments)
    inputs = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    args, kwargs = pytree.tree_map(lambda x: "T" if isinstance(x, torch.Tensor) else x, arguments)
    shown = [str(x).replace("'T'", "T") for x in args]
    shown += [f"{key}={value}" for key, value in kwargs.items()]
    return Sample(module, inputs, ", ".join(shown).replace("torch.", ""))
