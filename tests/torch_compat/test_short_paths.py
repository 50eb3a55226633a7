"""Operators with static sizes are recorded at once, and programs are the same without that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import onnx_aot
from onnx_aot.errors import CaptureError
from onnx_aot.torch_compat import (
    SHORT_PATHS,
    FakeTensor,
    find_capabilities,
    short_paths,
    storage_key,
)
from onnx_aot.torch_compat.short_results import Result
from tests.torch_compat.models import Example, function, rows
from tests.torch_compat.test_spared_work import counted
from tests.torch_compat.without import absent, exported, made, shows

PROXIES = "torch.fx.experimental.proxy_tensor"
COUNTED = f"{PROXIES}:TorchFunctionMetadataMode.__torch_function__"
DISPATCHED = "torch._library.utils:handle_dispatch_mode"
VIEWED = "torch._subclasses.fake_tensor:FakeTensorMode.dispatch"
RECORDED = f"{PROXIES}:proxy_call"


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_paths, "_RESULTS", {})


class Block(nn.Module):
    """Has views, writes, operators that return their argument, and results of several parts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(nn.functional.relu(self.norm(self.linear(x)), inplace=True))
        halves = y.reshape(-1, 2, 3).transpose(0, 1)
        left, right = halves[0], halves[1]
        left = left.contiguous().add_(right.softmax(-1))
        y[:, 0] = left[:, 1]
        result: Tensor = torch.cat([y, left, right], dim=-1)[:, :3] * (
            2.0 if y.requires_grad else 3.0
        )
        return result


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.first(x).detach()


STATIC = Example(Twice, rows, sizes=(4,), dynamic_shapes=None)


def described(program: Any) -> list[Any]:
    """The nodes of the captured graph, with all that is known of them."""
    memory: dict[int, int] = {}

    def describe(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            place = memory.setdefault(storage_key(value), len(memory))
            layout = value.dtype, tuple(value.shape), value.stride(), value.storage_offset()
            attributes = [name for name, held in vars(value).items() if held is not None]
            keys = str(torch._C._dispatch_keys(value))
            return *layout, str(value.device), value.requires_grad, place, attributes, keys
        if isinstance(value, (list, tuple)):
            return [describe(each) for each in value]
        if isinstance(value, dict):
            kept = value.keys() - {"from_node"}  # has the numbers of graphs in the process
            return [(key, describe(each)) for key, each in value.items() if key in kept]
        return repr(value)

    return [
        (n.name, n.op, str(n.target), repr(n.args), repr(n.kwargs), describe(n.meta))
        for n in program.exported_program.graph.nodes
    ]


def is_off(name: str) -> bool:
    return name in {row.name for row in find_capabilities(SHORT_PATHS).off}


def test_programs_are_the_same_for_calls_that_are_known_and_that_are_not() -> None:
    expected = described(exported(STATIC, reuse="off"))
    for _ in range(3):
        program = exported(STATIC)
        assert described(program) == expected
    model, (x,) = made(STATIC), rows(4)
    torch.testing.assert_close(program(x)[0], model(x))  # with gradients, as in the capture


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_those_that_the_model_sees(enabled: bool) -> None:
    def seen(x: Tensor) -> list[Any]:
        y = (x + weight).relu()
        state.append([y.requires_grad, y.is_leaf, y.detach().requires_grad, y._version])
        y.mul_(2)
        state.append([y.requires_grad, y.is_leaf, y._version, y[0]._base is y])
        return y

    weight, state = nn.Parameter(torch.ones(3)), []
    example = Example(function(seen), rows, sizes=(4,), dynamic_shapes=None)
    with torch.set_grad_enabled(enabled):
        for _ in range(3):
            exported(example)
    assert state[:2] == state[2:4] == state[4:6]
    assert state[0][0] is enabled


def test_tensors_that_differ_in_their_dispatch_keys_alone_are_told_apart() -> None:
    def resolve(x: Tensor) -> Tensor:
        z = torch.complex(x, x + 1)
        plain, resolved = z.resolve_conj(), z.conj().resolve_conj()  # the first is z itself
        seen.append((plain.is_conj(), resolved.is_conj()))
        return torch.view_as_real(plain + resolved)

    seen: list[tuple[bool, bool]] = []
    example = Example(function(resolve), rows, sizes=(4,), dynamic_shapes=None)
    expected = outcome(example, reuse="off")
    for _ in range(2):
        assert outcome(example) == expected
    assert {*seen} == {(False, False)}


def test_results_that_depend_on_settings_are_told_apart() -> None:
    """Kernels of attention return results in other orders of their elements."""

    def attend(x: Tensor) -> Tensor:
        x = x.reshape(1, 2, 2, 3).transpose(1, 2)
        with sdpa_kernel(SDPBackend.MATH):
            first = nn.functional.scaled_dot_product_attention(x, x, x)
        second = nn.functional.scaled_dot_product_attention(x, x, x)
        seen.append((first.stride(), second.stride()))
        return first + second

    seen: list[tuple[Any, Any]] = []
    example = Example(function(attend), rows, sizes=(4,), dynamic_shapes=None)
    expected = outcome(example, reuse="off")
    for _ in range(2):
        assert outcome(example) == expected
    assert len({*seen}) == 1
    assert seen[0][0] != seen[0][1]


CALLS = {
    COUNTED: (f"{PROXIES}", "PreDispatchTorchFunctionMode", "__torch_function__"),
    DISPATCHED: (f"{PROXIES}", "ProxyTorchDispatchMode", "__torch_dispatch__"),
    VIEWED: ("torch._subclasses.fake_tensor", "FakeTensorMode", "_cached_dispatch_impl"),
    RECORDED: ("torch._subclasses.fake_tensor", "FakeTensorMode", "__torch_dispatch__"),
}


@shows(*CALLS)
@pytest.mark.parametrize("name", CALLS)
def test_fewer_functions_of_torch_are_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls() -> int:
        exported(STATIC)
        with counted(owner, method, monkeypatch) as found:
            exported(STATIC)
        return found[method]

    module, kind, method = CALLS[name]
    owner = getattr(__import__(module, fromlist=[kind]), kind)
    fewer = calls()
    with absent(name):
        expected, more = described(exported(STATIC)), calls()
    assert described(exported(STATIC)) == expected
    assert is_off(name) or fewer < 0.8 * more


def test_gradients_through_such_operators_are_right() -> None:
    def force(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        energy = ((x * 2).relu_() * x).sum()
        return torch.autograd.grad(energy, x)[0]

    example = Example(function(force), rows, sizes=(4,), dynamic_shapes=None)
    (x,) = rows(4)
    for _ in range(2):
        torch.testing.assert_close(exported(example)(x)[0], force(x))


def test_a_gradient_through_the_engine_of_autograd_is_right() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(_: Any, gradient: Tensor) -> Tensor:
            return gradient * 3  # not the derivative

    def force(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(Doubled.apply(x).exp().sum() + x.sum(), x)[0]

    example = Example(function(force), rows, sizes=(4,), dynamic_shapes=None)
    expected = outcome(example, reuse="off")
    for _ in range(2):
        assert outcome(example) == expected


def outcome(example: Example, **options: Any) -> Any:
    """The program of an example, or the code of the error."""
    try:
        return described(exported(example, **options))
    except CaptureError as error:
        return error.code


@contextmanager
def changed_results() -> Iterator[None]:
    """Makes what is known of results wrong."""
    exported(STATIC)
    for key, found in short_paths._RESULTS.items():
        if found is not None and found.argument is None:
            dtype, size, *others = found.description
            description = (dtype, (*size[:-1], size[-1] + 1), *others)
            short_paths._RESULTS[key] = Result(None, description)
    yield


def test_a_wrong_result_is_found_by_a_check() -> None:
    model, args = STATIC.model().eval(), STATIC.args(4)
    onnx_aot.export(model, args, reuse="check")
    with changed_results(), pytest.raises(CaptureError, match="returns") as raised:
        onnx_aot.export(model, args, reuse="check")
    assert raised.value.code == "OA126"
    assert described(onnx_aot.export(model, args, reuse="off"))


def test_a_tracer_that_records_something_else_keeps_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.fx.experimental.proxy_tensor import PythonKeyTracer

    original = PythonKeyTracer.create_node

    def create_node(*args: Any, **kwargs: Any) -> Any:
        node = original(*args, **kwargs)
        node.meta["of another release"] = True
        return node

    monkeypatch.setattr(short_paths, "_AGREES", {})
    monkeypatch.setattr(PythonKeyTracer, "create_node", create_node)
    for _ in range(2):
        program = described(exported(STATIC))
        assert program == described(exported(STATIC, reuse="off"))
        assert "of another release" in repr(program)
    assert list(short_paths._AGREES.values()) == [False]


class _Slower(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.relu.default:
            func = torch.ops.aten.sigmoid.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["autocast", "inference", "vmap", "own mode"])
def test_operators_under_modes_take_torchs_way(kind: str) -> None:
    def call(x: Tensor) -> Tensor:
        plain = (x @ x.T).relu()
        if kind == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                return plain + (x @ x.T).relu()
        if kind == "inference":
            with torch.inference_mode():
                return plain + (x @ x.T).relu()
        if kind == "vmap":
            return plain + torch.vmap(lambda row: (x @ row).relu())(x)
        with _Slower():
            return plain + (x @ x.T).relu()

    example = Example(function(call), rows, sizes=(4,), dynamic_shapes=None)
    expected = outcome(example, reuse="off")
    for _ in range(2):
        assert outcome(example) == expected
