"""``int`` and ``float`` of dynamic sizes, exact at every size."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import DynamicShapeError

SIZES = (*range(1, 34), 63, 64, 65, 99, 100, 101, 127, 128, 150, 151, 255, 256, 257, 300)

COUNTS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "ceil": lambda n: int(math.ceil(n / 4)),  # noqa: RUF046
    "floor": lambda n: math.floor(n / 3),
    "trunc": lambda n: math.trunc(n / 7),
    "half to even": lambda n: round(n * 0.5),
    "round": lambda n: int(round(n * 0.3)),  # noqa: RUF046
    "quotient": lambda n: int(n / 3),
    "three quarters": lambda n: int(n * 0.75),
    "a tenth": lambda n: int(n * 0.1),
    "more": lambda n: int(n * 1.1) + 1,
    "half up": lambda n: int(n / 2 + 0.5),
    "power": lambda n: int(n**0.5),
    "square root": lambda n: int(math.sqrt(n)),
    "float": lambda n: int(float(n) / 2),
    "at least one": lambda n: max(int(n * 0.3), 1),
    "negative": lambda n: -int(-n / 2),
    "given a base": lambda n: n + int("11", 2),
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS.keys())
def test_numbers_computed_from_sizes(count: Callable[[Any], Any]) -> None:
    def repeat(x: Tensor) -> Tensor:
        return x[:1, :1].expand(count(x.shape[1]), -1)

    program = onnx_aot.export(repeat, (torch.ones(1, 12),), dynamic_shapes=({1: "n"},))
    for size in SIZES:
        assert program(torch.ones(1, size))[0].shape == (count(size), 1), size


def reshape_by_all(x: Tensor) -> Tensor:
    assert isinstance(x.dim(), int)
    sizes = [int(size) for size in x.shape]
    scale = 1 / float(sizes[0])
    assert not isinstance(sizes, float)
    return x.reshape(sizes[0], sizes[1], -1) * scale


def pad_to_strides(x: Tensor) -> Tensor:
    """Pads so that a chain of strided layers gives back the length, as audio codecs do."""
    length: Any = x.shape[1]
    for _ in range(5):
        length = max(math.ceil((length - 8) / 4) + 1, 1)
    for _ in range(5):
        length = (length - 1) * 4 + 8
    return torch.nn.functional.pad(x, (0, int(math.ceil(length / 1)) - x.shape[1]))  # noqa: RUF046


def test_long_expressions_become_symbols_of_their_own() -> None:
    program = onnx_aot.export(pad_to_strides, (torch.ones(1, 9000),), dynamic_shapes=({1: "n"},))
    for length in (3000, 8192, 9001, 40000):
        x = torch.ones(1, length)
        assert program(x)[0].shape == pad_to_strides(x).shape, length


class StridedCodec(torch.nn.Module):
    """An encoder and a decoder of strided layers, as of Demucs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.ModuleList(torch.nn.Conv1d(1, 1, 8, 4) for _ in range(3))
        self.decoder = torch.nn.ModuleList(torch.nn.ConvTranspose1d(1, 1, 8, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        length: Any = x.shape[-1]
        for _ in self.encoder:
            length = max(1, math.ceil((length - 8) / 4) + 1)
        for _ in self.decoder:
            length = (length - 1) * 4 + 8
        more = int(length) - x.shape[-1]
        y = torch.nn.functional.pad(x, (more // 2, more - more // 2))
        skipped = []
        for encode in self.encoder:
            y = encode(y)
            skipped.append(y)
        for decode in self.decoder:
            y = decode(y + trim_to(skipped.pop(), y.shape[-1]))
        return trim_to(y, x.shape[-1])


def trim_to(x: Tensor, length: Any) -> Tensor:
    more = x.shape[-1] - length
    if more < 0:
        raise ValueError(f"too short by {more}")
    if more:
        x = x[..., more // 2 : -(more - more // 2)]
    return x


def test_sizes_computed_in_several_steps() -> None:
    model = StridedCodec().eval()
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="if more:"):
        program = onnx_aot.export(
            model, (torch.rand(2, 1, 1000),), dynamic_shapes=({0: "batch", 2: "n"},)
        )
    for size in (*range(1, 34), 63, 85, 99, 150, 256, 300, 999, 1001, 2000, 5000):
        x = torch.rand(1, 1, size)
        torch.testing.assert_close(program(x)[0], model(x))


def test_several_conversions_in_one_module() -> None:
    program = onnx_aot.export(reshape_by_all, (torch.rand(2, 3),), dynamic_shapes=("n",))
    for n in (1, 4):
        x = torch.rand(n, 3)
        torch.testing.assert_close(program(x)[0], reshape_by_all(x))


def mask_of_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    longest = int(torch.max(lengths).item())
    mask = torch.arange(longest)[None] < lengths[:, None]
    return x[:, :longest] * mask


def test_numbers_computed_from_data() -> None:
    x = torch.rand(2, 9)
    program = onnx_aot.export(
        mask_of_lengths, (x, torch.tensor([4, 6])), dynamic_shapes=({1: "n"}, None)
    )
    for lengths in ([9, 1], [0, 0], [3, 4]):
        given = x, torch.tensor(lengths)
        torch.testing.assert_close(program(*given)[0], mask_of_lengths(*given))


COUNTED: dict[str, Callable[[Tensor], Any]] = {
    "largest": lambda lengths: int(lengths.max()),
    "largest float": lambda lengths: int(lengths.max() * 1.5),
    "any": lambda lengths: int((lengths > 2).any()) + 1,
    "half": lambda lengths: int(float(lengths.max()) / 2),
    "known": lambda lengths: int(torch.tensor([2, 3]).max()),
}


@pytest.mark.parametrize("count", COUNTED.values(), ids=COUNTED.keys())
def test_elements_of_tensors(count: Callable[[Tensor], Any]) -> None:
    def make_mask(lengths: Tensor) -> Tensor:
        return torch.arange(count(lengths)) < lengths[:, None]

    program = onnx_aot.export(
        make_mask,
        (torch.tensor([4, 7]),),
        dynamic_shapes=({0: "n"},),
        strategies=("non-strict",),
    )
    for lengths in ([9, 1], [2, 2, 1], [3, 4]):
        given = torch.tensor(lengths)
        torch.testing.assert_close(program(given)[0], make_mask(given))


def pair_neighbors(x: Tensor) -> Tensor:
    """Lists the pairs of elements with equal values, as triples of atoms are found."""
    counts = torch.unique_consecutive(x, return_counts=True)[1]
    pairs = counts * (counts - 1) // 2
    group = torch.repeat_interleave(pairs)
    most = int(counts.max())
    found = torch.tril_indices(most, most, -1)
    used = torch.arange(found.shape[1]) < pairs[:, None]
    first = torch.cat((counts.new_zeros(1), counts)).cumsum(0)
    return found.repeat(1, len(pairs))[:, used.flatten()] + first[group]


def test_the_largest_count_as_a_size() -> None:
    x = torch.tensor([1, 1, 1, 4, 4, 5, 5, 5, 5])
    program = onnx_aot.export(pair_neighbors, (x,), dynamic_shapes=({0: "n"},))
    for given in (torch.randint(0, 6, (30,)).sort().values, torch.arange(5), x[:1]):
        torch.testing.assert_close(program(given)[0], pair_neighbors(given))


def log_of_size(x: Tensor) -> Tensor:
    return x * int(math.log(x.shape[0]))


def test_functions_without_a_symbolic_form() -> None:
    with pytest.raises(DynamicShapeError, match=r"fixed at 4[\s\S]*math\.log\("):
        onnx_aot.export(log_of_size, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))


@dataclasses.dataclass
class Sized:
    count: int


def is_a_type(x: Tensor) -> Tensor:
    kinds = {int: 1, float: 2}
    held = Sized(int(x.shape[0]))
    return x * kinds[int] + torch.zeros(held.count, 1, dtype=torch.long)


def test_the_types_stay_types() -> None:
    program = onnx_aot.export(is_a_type, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},))
    x = torch.rand(5, 3)
    torch.testing.assert_close(program(x)[0], x)
    assert isinstance(int, type)


def pad_by_remainder(x: Tensor) -> Tensor:
    return x.new_ones(2, int(x.shape[1] * 0.3) + x.shape[1]).cumsum(1) + x[:, :1]


@pytest.mark.filterwarnings("ignore:the model asks for the larger:onnx_aot.OnnxExporterWarning")
def test_a_number_seen_before_an_attempt_that_failed() -> None:
    """The capture from zero on fails for ``x[:, :1]``; the one before it converted the size."""
    program = onnx_aot.export(pad_by_remainder, (torch.rand(2, 100),), dynamic_shapes=({1: "n"},))
    for size in SIZES:
        x = torch.rand(2, size)
        torch.testing.assert_close(program(x)[0], pad_by_remainder(x))


def pool_half(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool1d(x[None], x.shape[1] // 2)


def test_a_number_read_by_torch() -> None:
    """No replacement keeps it symbolic, so that other sizes would be wrong."""
    with pytest.raises(DynamicShapeError, match="right for 6 to 7 only") as caught:
        onnx_aot.export(pool_half, (torch.rand(2, 6),), dynamic_shapes=({1: "n"},))
    assert "avg_pool1d" in caught.value.places[0].code
    with pytest.warns(onnx_aot.OnnxExporterWarning, match="right for 6 to 7 only"):
        program = onnx_aot.export(
            pool_half, (torch.rand(2, 6),), dynamic_shapes=({1: "n"},), on_specialized="warn"
        )
    assert program.inputs[0].shape[1] == 6


@pytest.mark.parametrize(
    ("name", "needs"),
    [("given", "torch.zeros(1, dtype=int)"), ("compared", "(type(2) in (int, float))")],
)
def test_modules_that_need_the_type_keep_it(
    name: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may run the code while it is captured, and torch takes no other type."""
    (tmp_path / f"typed_model_{name}.py").write_text(
        f"import torch\n\n\ndef forward(x):\n    return x.reshape(int(x.shape[0]), -1) + {needs}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    forward = importlib.import_module(f"typed_model_{name}").forward
    with pytest.raises(DynamicShapeError, match=r"fixed at 4[\s\S]*int\("):
        onnx_aot.export(
            forward, (torch.rand(4, 3),), dynamic_shapes=({0: "n"},), strategies=("non-strict",)
        )
