"""Weights that are computed from other weights only when they are written."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from onnx_aot import dtypes
from onnx_aot.ir_passes.tensors import in_memory

__all__ = ["FoldedTensor", "contents_of", "set_sources", "sources_of"]

Tensor = torch.Tensor  # within the class the name `torch` is a method's

PART = 4 * 1024 * 1024
"""Bytes of a transposed weight that are copied at a time while it is written."""


class FoldedTensor(ir.LazyTensor):
    """A tensor that replaces nodes on weights; computed each time its content is read.

    So nothing is held in memory twice, and weights that are replaced later are folded again.

    Attributes:
        sources: Initializers that it is computed from; they need not be in a graph any more.
    """

    def __init__(
        self,
        compute: Callable[..., torch.Tensor],
        sources: Sequence[ir.Value],
        dtype: ir.DataType,
        shape: Sequence[int],
    ) -> None:
        """Stores ``compute``, which gets the ``sources`` as torch tensors and must not change them.

        The tensors are passed in the order of ``sources``.
        """
        super().__init__(self._materialize, dtype, ir.Shape(tuple(shape)))
        self._compute = compute
        self.sources = tuple(sources)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.dtype},{self.shape}>(name={self.name!r})"

    def torch(self) -> torch.Tensor:
        """Returns the current contents: a tensor with its own memory, or a view of a source."""
        with torch.no_grad():
            return self._compute_each_once()

    def _compute_each_once(self) -> Tensor:
        """Computes each folded tensor that this one needs once, and holds it until its last use.

        Writes in a loop to a constant, ``count[i : i + 4] += 1``, read each of its states twice: if
        every read computed it anew, twenty writes would take 2**20 computations.
        """
        order = _sort_by_use(self)
        uses = collections.Counter(id(s) for folded in order for s in folded._find_folded_sources())
        held: dict[int, Tensor] = {}
        for folded in order:
            tensors = [source.const_value for source in folded.sources]
            arguments = [
                held[id(tensor)] if id(tensor) in held else contents_of(source)
                for tensor, source in zip(tensors, folded.sources, strict=True)
            ]
            held[id(folded)] = folded._compute(*arguments)
            for tensor in folded._find_folded_sources():
                uses[id(tensor)] -= 1
                if not uses[id(tensor)]:
                    del held[id(tensor)]
        return held[id(self)]

    def _find_folded_sources(self) -> list[FoldedTensor]:
        """The sources that are folded themselves; one that is read twice is listed twice."""
        tensors = (source.const_value for source in self.sources)
        return [tensor for tensor in tensors if isinstance(tensor, FoldedTensor)]

    def tofile(self, file: Any) -> None:
        """Writes the bytes to a binary file object; a view is copied in parts, never as a whole."""
        packs = self.dtype in dtypes.FOUR_BITS
        for part in _split_into_parts(self._compute_contents(), packs):
            file_part = _make_contiguous(part)
            if packs:
                file_part = dtypes.pack_int4(file_part)
            tensor_adapters.TorchTensor(file_part, name=self.name).tofile(file)

    def _materialize(self) -> ir.TensorProtocol:
        tensor = _make_contiguous(self._compute_contents())
        if self.dtype in dtypes.FOUR_BITS:
            held = dtypes.pack_int4(tensor).numpy()
            return ir.PackedTensor(held, self.dtype, shape=self.shape, name=self.name)
        return tensor_adapters.TorchTensor(tensor, name=self.name)

    def _compute_contents(self) -> Tensor:
        tensor = self.torch()
        assert tuple(tensor.shape) == tuple(self.shape), (tensor.shape, self.shape)
        return tensor


def _sort_by_use(wanted: FoldedTensor) -> list[FoldedTensor]:
    """Lists a folded tensor and those that it is computed from, each once, sources first."""
    order: dict[int, FoldedTensor] = {}
    pending = [wanted]
    while pending:
        missing = [s for s in pending[-1]._find_folded_sources() if id(s) not in order]
        if missing:
            pending += missing
        else:
            folded = pending.pop()
            order[id(folded)] = folded
    return list(order.values())


def contents_of(value: ir.Value) -> torch.Tensor:
    """Returns the current contents of an initializer.

    Raises:
        ValueError: It is not in memory.
    """
    tensor = value.const_value
    compute = getattr(tensor, "torch", None)  # folded and cast tensors have it
    found = in_memory(tensor) if compute is None else compute()
    if found is None:
        raise ValueError(f"the weight {value.name} has no contents that are in memory")
    return found


def _split_into_parts(tensor: torch.Tensor, packs: bool) -> Sequence[torch.Tensor]:
    """Splits a tensor into rows to write one part at a time; one part if nothing is copied.

    Packed elements are copied; two share a byte, so each part has an even number of them.
    """
    if tensor.ndim == 0 or tensor.nbytes <= PART or (tensor.is_contiguous() and not packs):
        return (tensor,)
    step = max(1, PART * tensor.shape[0] // tensor.nbytes)
    step += step % 2 if packs else 0
    return [tensor[start : start + step] for start in range(0, tensor.shape[0], step)]


def _make_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Like ``contiguous()``, but several times faster for rows of a transposed matrix.

    torch is fast at transposing a whole matrix, so the part is copied into one first.
    """
    if tensor.ndim == 2 and tensor.stride(0) == 1:
        tensor = tensor.t().contiguous().t()
    return tensor.contiguous()


def sources_of(values: Iterable[ir.Value]) -> Iterator[ir.Value]:
    """Yields the initializers that the given ones are computed from, each once."""
    seen: set[ir.Value] = set()
    pending = list(values)
    while pending:
        tensor = pending.pop().const_value
        if isinstance(tensor, FoldedTensor):
            for source in tensor.sources:
                if source not in seen:
                    seen.add(source)
                    yield source
                    pending.append(source)


def set_sources(values: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
    """Initializers of a graph by name, including those that folded ones were computed from.

    Folded initializers themselves are left out: they do not hold a weight of the module.
    """
    found = {
        name: value
        for name, value in values.items()
        if not isinstance(value.const_value, FoldedTensor)
    }
    for source in sources_of(values.values()):
        if not isinstance(source.const_value, FoldedTensor):
            found.setdefault(str(source.name), source)
    return found
