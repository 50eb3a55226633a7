"""Values that do not depend on the inputs: ``onnx_aot/capture/sizes/known_values.py``."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import onnx_aot
from onnx_aot.capture.sizes.known_sources import LIMIT
from onnx_aot.errors import CaptureError
from tests.tolerances import assert_close

GLOBAL = torch.tensor([2, 1])


class Model(nn.Module):
    """Buffers and tensor attributes, and a function of this module and an input."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("flag", torch.tensor(True))
        self.register_buffer("flags", torch.tensor([1, 0, 1], dtype=torch.uint8))
        self.register_buffer("axis", torch.tensor(1))
        self.register_buffer("numbers", torch.tensor([1, 2], dtype=torch.int32))
        self.register_buffer("ratio", torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("lengths", torch.tensor([1, 3]))
        self.register_buffer("nothing", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("count", torch.tensor(2))
        self.amounts = torch.tensor([1, 2])
        self.listed = [torch.tensor(3), torch.tensor(0.25)]

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of a ``Model`` and an input ``[n, 4, 1]``."""

    name: str
    call: Callable[[Any, Tensor], Any]


def flagged(m: Any, x: Tensor) -> Tensor:
    if m.flag:
        x = x * 2
    for index, flag in enumerate(m.flags):
        if flag:
            x = x + index
    return x if not m.flag else -x


def flagged_by_attribute(m: Any, x: Tensor) -> Tensor:
    for index, amount in enumerate(m.amounts):
        if amount > 1:
            x = x + index
    return x * 2 if m.amounts[0] == 1 else x


def loop(m: Any, x: Tensor) -> Tensor:
    for end in torch.cumsum(torch.as_tensor([1, 2, 1]), 0):
        x = x + x[:, : int(end)].sum()
    return x


def written_literal(m: Any, x: Tensor) -> Tensor:
    counts = torch.zeros(3, dtype=torch.int64)
    counts[1:] += 2
    counts[0] = m.count
    counts[None, 2].mul_(m.lengths[1])
    return x.repeat(*counts.tolist()[:2], 1) * counts[2].item()


def resized(m: Any, x: Tensor) -> Tensor:
    size = torch.tensor([x.shape[0], x.shape[1]]) // 2
    rows, columns = size.tolist()
    return x[:rows, :columns] * 2 + rows


def symbolic_total(m: Any, x: Tensor) -> Tensor:
    sizes = torch.stack([torch.tensor(x.shape[0]), m.count]) + torch.tensor([1, 2])
    ends = torch.cumsum(sizes, 0).tolist()
    return pad(x, (0, 0, 0, ends[1] - ends[0], 0, int(sizes.max() > 3)))


def clamped(m: Any, x: Tensor) -> Tensor:
    rows = (torch.tensor(x.shape[0]) % 3).clamp(1, 2)
    half = torch.div(torch.tensor(x.shape[0]), 2, rounding_mode="trunc")
    return x * rows.item() + half.item()


CASES = (
    Case("flags", flagged),
    Case("item", lambda m, x: x * m.ratio.item() + m.numbers[1].item()),
    Case("float", lambda m, x: x * float(m.ratio) ** 2),
    Case("int", lambda m, x: x[:, int(m.numbers[0]) :]),
    Case("tolist", lambda m, x: x.repeat(1, *m.numbers.tolist())),
    Case("attribute", lambda m, x: pad(x, (0, 0, *m.amounts.tolist()))),
    Case("views of an attribute", flagged_by_attribute),
    Case("index", lambda m, x: x[:, m.listed[0]] * m.listed[1].item()),
    Case("index of a list", lambda m, x: [x, x + 1, x + 2][m.count]),
    Case("slice from", lambda m, x: x[:, m.count :]),
    Case("slice to", lambda m, x: x[..., : m.numbers[0], :]),
    Case("squeeze", lambda m, x: torch.squeeze(x, dim=m.axis + 1)),
    Case("axes", lambda m, x: x.mean(dim=torch.arange(1, x.dim()).tolist())),
    Case("loop", loop),
    Case("range", lambda m, x: sum(x + i for i in range(m.count))),
    Case("full", lambda m, x: x + torch.full((m.count,), m.ratio.item()).sum()),
    Case("full of a tensor", lambda m, x: x + torch.full((4, 1), m.ratio)),
    Case("pad", lambda m, x: pad(x, (m.count, 0, m.amounts[0], m.amounts[1]))),
    Case("view", lambda m, x: x.view(-1, m.count, 2)),
    Case("split", lambda m, x: torch.split(x, m.lengths.tolist(), 1)[1]),
    Case("split by literals", lambda m, x: x.split(torch.tensor([3, 1]).tolist(), 1)),
    Case("no elements", lambda m, x: x * 3 if m.nothing.tolist() == [] else x),
    Case("nothing to repeat", lambda m, x: x + sum(int(i) for i in m.nothing)),
    Case("equal", lambda m, x: x * 2 if torch.equal(m.lengths, torch.tensor([1, 3])) else x),
    Case("any", lambda m, x: x * 2 if (m.lengths > 2).any() else x),
    Case("outside", lambda m, x: x.repeat(1, *GLOBAL.tolist()) * int(GLOBAL[0])),
    Case("filled", lambda m, x: x + x.new_full((2,), 3).sum().item()),
    Case("zeros", lambda m, x: x[:, torch.zeros(1, dtype=torch.int64).item() :]),
    Case("of a dtype", lambda m, x: x[:, m.ratio.mul(4).to(torch.int32).item() :]),
    Case("selected", lambda m, x: x[:, m.flags[:2].nonzero().flatten().tolist()]),
    Case("written literal", written_literal),
    Case("symbolic sizes", resized),
    Case("symbolic total", symbolic_total),
    Case("symbolic remainder", clamped),
    Case("symbolic float", lambda m, x: x * torch.tensor(x.shape[0], dtype=torch.float32).item()),
)


def compare(model: nn.Module, sizes: tuple[int, ...] = (5, 2, 7), **options: Any) -> Any:
    example = torch.randn(sizes[0], 4, 1)
    shapes = ({0: "n"},)
    program = onnx_aot.export(model, (example,), dynamic_shapes=shapes, **options)
    for size in sizes:
        x = torch.randn(size, 4, 1)
        before = GLOBAL.clone()
        expected = copy.deepcopy(model)(x)
        GLOBAL.copy_(before)
        expected = expected if isinstance(expected, (tuple, list)) else [expected]
        for actual, wanted in zip(program(x)[: len(expected)], expected, strict=True):
            assert_close(actual, wanted)
    return program


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_known_is_read(case: Case) -> None:
    compare(Model(case.call))


# --- writes --------------------------------------------------------------------------------------


def read_then_added(m: Any, x: Tensor) -> Tensor:
    y = x[:, m.count.item() :]
    m.count += 1
    return y


def added_then_read(m: Any, x: Tensor) -> Tensor:
    m.count += 1
    return x[:, m.count.item() :]


def read_then_written_by_a_view(m: Any, x: Tensor) -> Tensor:
    y = x[:, m.lengths[0].item() :]
    m.lengths.view(2)[1:].add_(1)
    return y


def read_then_written_outside(m: Any, x: Tensor) -> Tensor:
    y = x[:, GLOBAL[0].item() :]
    GLOBAL.add_(1)
    return y


def read_then_written_attribute(m: Any, x: Tensor) -> Tensor:
    y = x[:, m.amounts[0].item() :]
    m.amounts.add_(1)
    return y


def read_by_a_view_then_written_attribute(m: Any, x: Tensor) -> Tensor:
    y = x[:, m.amounts[0].item() :]
    m.amounts[1].add_(1)
    return y


def added_by_a_view_then_read_attribute(m: Any, x: Tensor) -> Tensor:
    m.amounts[0].add_(1)
    return x[:, m.amounts[0].item() :]


def data_in_a_literal(m: Any, x: Tensor) -> Tensor:
    count = torch.tensor(1)
    count[None].add_((x.sum() > -1e9).long())
    return x[:, : count.item()]


def data_in_a_copy(m: Any, x: Tensor) -> Tensor:
    count = m.count * 1
    count.copy_((x.sum() > -1e9).long())
    return x[:, : count.item()]


def size_in_a_literal(m: Any, x: Tensor) -> Tensor:
    counts = torch.tensor([1, 2])
    counts[0] = x.shape[0]
    return x[: counts[0].item()]


def assigned_data(m: Any, x: Tensor) -> Tensor:
    count = torch.tensor(1)
    count.data = (x.sum() > -1e9).long() + 2
    return x[:, : count.item()]


def written_in_vmap(m: Any, x: Tensor) -> Tensor:
    y = x * m.lengths[0].item()
    torch.vmap(lambda length: length.add_(1))(m.lengths)
    return y


def normalized(m: Any, x: Tensor) -> Tensor:
    mean = m.ratio.float().reshape(1)
    torch.nn.functional.batch_norm(x.reshape(-1, 1), mean, torch.ones(1), training=True)
    return x * mean.item()


WRITES = (
    read_then_added,
    added_then_read,
    read_then_written_by_a_view,
    read_then_written_outside,
    read_then_written_attribute,
    read_by_a_view_then_written_attribute,
    added_by_a_view_then_read_attribute,
    data_in_a_literal,
    data_in_a_copy,
    size_in_a_literal,
    assigned_data,
    written_in_vmap,
    normalized,
)


@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
@pytest.mark.parametrize("call", WRITES)
def test_what_is_written_is_not_known(call: Callable[[Any, Tensor], Any]) -> None:
    program = compare(Model(call), state="drop")
    assert "reads numbers from its buffers" not in "".join(program.report.notes)


def branch_then_assigned(m: Any, x: Tensor) -> Tensor:
    y = x * 2 if m.flag else x
    m.flag = torch.tensor(False)
    return y


def branch_then_filled(m: Any, x: Tensor) -> Tensor:
    if m.flag:
        x = x * 2
    m.flag.fill_(False)
    return x


def filled_then_branch(m: Any, x: Tensor) -> Tensor:
    m.flag.fill_(False)
    return x * 2 if m.flag else x


@pytest.mark.parametrize("state", ["outputs", "io"])
def test_a_branch_on_an_assigned_buffer_is_refused(state: Any) -> None:
    with pytest.raises(CaptureError, match=r"needs values of its data(.|\n)*m\.flag"):
        compare(Model(branch_then_assigned), state=state)


@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
@pytest.mark.parametrize("call", [branch_then_filled, filled_then_branch])
def test_a_branch_on_a_written_buffer_follows_it(call: Callable[[Any, Tensor], Any]) -> None:
    model = Model(call)
    program = onnx_aot.export(model, (torch.ones(2, 3),), state="io")
    for _ in range(2):
        x = torch.rand(2, 3)
        torch.testing.assert_close(program(x)[0], model(x))


def listed_then_written(m: Any, x: Tensor) -> Tensor:
    y = x.repeat(1, *m.amounts.tolist())
    m.amounts.add_(1)
    return y


def test_a_list_of_a_written_attribute_is_refused_and_a_buffer_is_the_fix() -> None:
    """Torch makes the list from the elements themselves."""
    model = Model(listed_then_written)
    with pytest.raises(CaptureError, match=r"amounts, to which it also writes(.|\n)*register_buf"):
        compare(model)
    amounts = model.amounts
    del model.amounts
    model.register_buffer("amounts", amounts)
    compare(model, state="drop")


def test_a_body_of_a_loop_knows_its_own_literals() -> None:
    def looped(m: Any, x: Tensor) -> Tensor:
        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            steps = torch.tensor([1, 2])
            steps += 1
            return i + steps[0], y + steps[1].item()

        zero = torch.tensor(0)
        return torch.ops.higher_order.while_loop(lambda i, y: i < 5, body, (zero, x), ())[1]

    compare(Model(looped))


@pytest.mark.filterwarnings("ignore::onnx_aot.OnnxExporterWarning")
def test_a_mapped_function_reads_what_is_outside_of_it() -> None:
    compare(Model(lambda m, x: torch.vmap(lambda row: row * m.numbers[1].item())(x)))


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [LIMIT, LIMIT + 1])
def test_large_tensors_are_not_known(count: int) -> None:
    model = Model(lambda m, x: x.long() if m.many[-1] else x)
    model.register_buffer("many", torch.ones(count))
    if count == LIMIT:
        compare(model)
    else:
        with pytest.raises(CaptureError, match=r"m\.many"):
            compare(model)


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_parameters_are_known(value: float) -> None:
    model = Model(lambda m, x: x.long() if m.weight > 0 else x * m.weight)
    model.weight = nn.Parameter(torch.tensor(value))
    program = compare(model)
    assert "If" not in {node.op_type for node in program.model.graph}


class Holder:
    """Holds a tensor of a model outside of it, as hooks and optimizers do."""

    def __init__(self, held: Tensor) -> None:
        self.held = held


def test_a_tensor_that_is_held_outside_of_the_model_is_the_same() -> None:
    def read(m: Any, x: Tensor) -> Tensor:
        return x.long() if m.holder.held > 0 else x

    def write(m: Any, x: Tensor) -> Tensor:
        m.holder.held.add_(3)
        y = x + 1 if m.count > 4 else x
        m.holder.held.sub_(3)
        return y

    model = Model(read)
    model.weight = nn.Parameter(torch.tensor(1.0))
    model.holder = Holder(model.weight)
    compare(model)
    model = Model(write)
    model.holder = Holder(model.count)
    compare(model, state="drop")


@pytest.mark.parametrize(
    "compute",
    [
        lambda w: torch.kron(w, w),
        lambda w: torch.cdist(w, w),
        torch.cov,
        lambda w: torch.take_along_dim(w, w.argsort(0), 0),
        lambda w: torch.linalg.multi_dot([w, w.T, w]),
        lambda w: torch.combinations(w[:, 0]),
    ],
    ids=["kron", "cdist", "cov", "take_along_dim", "multi_dot", "combinations"],
)
def test_operators_whose_kernels_give_shapes_alone(compute: Callable[[Tensor], Tensor]) -> None:
    """A capture replaces their kernels; known values are computed with those of torch."""
    weight = torch.tensor([[1.0, -2.0], [3.0, 0.0], [-1.0, 2.0]])

    class Selected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight.clone())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            found = compute(self.weight)
            return x + 1, found[found > 0]

    x = torch.rand(3)
    program = onnx_aot.export(Selected(), (x,), dynamic_shapes=({0: "n"},))
    wanted = compute(weight)
    assert_close(program(x)[1], wanted[wanted > 0])


def test_random_numbers_are_not_known() -> None:
    with pytest.raises(CaptureError, match=r"torch\.rand"):
        compare(Model(lambda m, x: x.long() if torch.rand_like(m.ratio) > 2 else x))


# --- records -------------------------------------------------------------------------------------


def test_the_report_lists_what_was_read() -> None:
    program = compare(Model(lambda m, x: x[:, m.lengths[0].item() :] * len(m.flags.tolist())))
    (note,) = [note for note in program.report.notes if "reads numbers" in note]
    assert "lengths = [1, 3] (" in note
    assert "flags = [1, 0, 1] (" in note
    assert "test_known_values.py" in note


def test_inputs_of_the_exported_model_are_not_known() -> None:
    model = Model(lambda m, x: x.long() if m.flag else x)
    for asked in (True, ["fl*"]):
        with pytest.raises(CaptureError, match=r"m\.flag"):
            compare(model, weights_as_inputs=asked)
