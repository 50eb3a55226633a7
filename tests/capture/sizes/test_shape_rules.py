"""Shape rules agree with torch, and leave unusual cases to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from onnx_aot.capture.patches import capture_conditions
from onnx_aot.capture.sizes.shape_rules import SHAPE_RULES
from onnx_aot.torch_compat import OpOverload, Settings, applied, shape_rule_patches

F = nn.functional
HALF = torch.float16


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def recorded(function: Callable[..., Any], args: tuple[Tensor, ...], dynamic: bool) -> list[Any]:
    """Shape, strides, dtype and device of every captured value; symbols by name."""
    axes = tuple({0: Dim.DYNAMIC, 2: Dim.DYNAMIC} if a.dim() > 2 else None for a in args)
    with capture_conditions(Settings(dynamic=dynamic)):
        program = torch.export.export(Call(function), args, dynamic_shapes=(axes,))
    values = [node.meta.get("val") for node in program.graph.nodes]
    flat = [v for value in values for v in (value if isinstance(value, tuple) else [value])]
    return [
        (str(v.shape), str(v.stride()), v.dtype, v.device)
        for v in flat
        if isinstance(v, torch.Tensor)
    ]


X = torch.rand(2, 3, 4, 5)
CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    **{
        name: (getattr(F, name), (X,))
        for name in ("elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish")
    },
    "in place": (lambda x: F.hardtanh(x.clone(), inplace=True) + F.silu(x + 1, inplace=True), (X,)),
    "of integers": (lambda x: torch.sin(x) + torch.sqrt(x), (X.long(),)),
    "transposed": (lambda x: F.gelu(x.transpose(1, 3)).contiguous(), (X,)),
    "strided": (lambda x: torch.tanh(x[:, :, :, ::2]).exp(), (X,)),
    "channels last": (
        lambda x: F.silu(x.contiguous(memory_format=torch.channels_last)).clone(),
        (X,),
    ),
    "half": (lambda x: F.gelu(x).mean(2), (X.half(),)),
    "power": (lambda x: x**2 + x.pow(0.5) + x.pow(x), (X,)),
    "power of integers": (lambda x: x**2, (X.int(),)),
    "softmax": (lambda x: x.softmax(-1) + x.softmax(1, torch.float64), (X,)),
    "softmax to a wider type": (lambda x: x.softmax(-1, torch.float32), (X.half(),)),
    "mean": (lambda x: (x.mean(2), x.mean((0, -1)), x.mean((1, 2), keepdim=True)), (X,)),
    "mean of all and of another type": (lambda x: (x.mean(), x.mean(2, dtype=HALF)), (X,)),
    "mean of transposed": (lambda x: x.transpose(1, 2).mean(2), (X,)),
    "batch norm": (nn.BatchNorm2d(3).eval(), (X,)),
    "batch norm of transposed": (lambda x: F.batch_norm(x.mT, torch.ones(3), torch.ones(3)), (X,)),
    "batch norm in another type": (
        lambda x: F.batch_norm(x, torch.ones(3), torch.ones(3)),
        (X.half(),),
    ),
    "layer norm": (nn.LayerNorm(5), (X,)),
    "layer norm over two": (
        lambda x: F.layer_norm(x.transpose(1, 2), (3, 5), torch.ones(3, 5)),
        (X,),
    ),
    "layer norm in another type": (
        lambda x: F.layer_norm(x, (5,), torch.ones(5), torch.ones(5)),
        (X.half(),),
    ),
    "linear": (nn.Linear(5, 6), (X,)),
    "linear without bias": (nn.Linear(5, 6, bias=False), (X,)),
    "addmm": (lambda x: torch.addmm(torch.ones(1), x[0, 0], torch.ones(5, 2)), (X,)),
    "views": (
        lambda x: (
            x.view(-1),
            x.view(x.shape[0], -1),
            x.view(-1, x.shape[2], 5),
            x.view(x.shape[0], 3, -1, 1, 5),
            x.view(x.shape[0], 1, 3, x.shape[2] * 5),
            x.view(-1, 15),
            x.flatten(1, 2).unflatten(1, (3, -1)),
            (x @ torch.ones(5, 4)).view(x.shape[0], -1, 2, 2),
        ),
        (X,),
    ),
    "views of transposed": (
        lambda x: (
            x.transpose(0, 1).view(3, x.shape[0], x.shape[2], 1, 5),
            x.transpose(0, 1).view(3, x.shape[0], -1),
            x.transpose(1, 3).unflatten(1, (5, 1)).view(x.shape[0], 1, 5, 1, x.shape[2], 3),
            x[:, :, :, ::2].view(1, x.shape[0], 3, x.shape[2], 3),
            x[..., :1].view(x.shape[0], 3, x.shape[2]),
        ),
        (X,),
    ),
    "permuted": (
        lambda x: (
            x.permute(2, 0, -1, 1),
            x.mT,
            x.transpose(-1, 0),
            x[0, 0].t(),
            x.mean((1, 2)).t(),
        ),
        (X,),
    ),
    "unsqueezed": (
        lambda x: (x[None], x[:, None], x.unsqueeze(-1), x.unsqueeze(3), x[None].squeeze(0)),
        (X,),
    ),
    "squeezed": (lambda x: (x.squeeze(1), x[:, :1].squeeze(1), x.squeeze(0)), (X,)),
    "selected": (lambda x: (x[:, 1], x[:, -1], x[..., 2] + 1, x[0], x.mT[:, 1, 0]), (X,)),
    "sliced": (
        lambda x: (x[:, 1:], x[:, 5:], x[:, 2:1], x[:, -9:2], x[:, :-1, :], x[..., 1::3], x[1:]),
        (X,),
    ),
    "expanded": (
        lambda x: (
            x[:, :1].expand(-1, 4, -1, -1),
            x[:, :1].expand(x.shape[0], 0, -1, 5),
            x.expand(2, -1, -1, -1, -1),
            x[..., :1].mT.expand(-1, -1, 7, x.shape[2]),
            x.mean(0, keepdim=True).expand(x.shape[0], -1, -1, -1),
        ),
        (X,),
    ),
    "added windows": (
        lambda x: torch.ops.aten.unfold_backward(x, [x.shape[0], 3, x.shape[2] + 4], 2, 5, 1),
        (X,),
    ),
    "of two": (
        lambda x: (
            x + x,
            x - x[0],
            x * x.mean(3, keepdim=True),
            x[0] / x,
            torch.sub(x, torch.ones(5), alpha=3),
            x[:, :1] + torch.ones(2, 1, 1, 1, 5),
            x.mean(3, keepdim=True) * x.mean((2, 3), keepdim=True),
            x + torch.ones(()),
        ),
        (X,),
    ),
    "of one and a number": (lambda x: (x + 1, x * 2.5, 3 - x, x / True, x.mT - 1), (X,)),
    "of two types": (lambda x: (x + x.double(), x.long() * x, x.long() + 1, x.half() * x), (X,)),
    "of two transposed": (
        lambda x: (
            x.transpose(1, 2) * torch.ones(5),
            x.transpose(1, 2) + x.transpose(1, 2),
            x.transpose(1, 2) * x.permute(0, 2, 1, 3).contiguous(),
            x.mT + x.mT.mean(1, keepdim=True),
            x[:, :1].mT * 2 + x[:, :1].mT,
            x + x.permute(0, 2, 1, 3).contiguous().transpose(1, 2),
        ),
        (X,),
    ),
    "negative": (
        lambda x: (-x, -x.transpose(1, 2), -x[..., 2:], -x.transpose(1, 2)[..., :3], -x.long()),
        (X,),
    ),
    "transforms of a spectrum": (
        lambda x: (
            torch.fft.irfft(x, 8),
            torch.fft.irfft(x.mT, 4, dim=1),
            torch.fft.irfft2(x),
            torch.fft.irfftn(x, dim=(2, 0, 1)),
            torch.fft.irfft(torch.fft.ifft(x, dim=2)),
            torch.fft.irfft(x.transpose(0, 1), x.shape[0], dim=0),
        ),
        (X.to(torch.complex64),),
    ),
    "addmm of a matrix": (
        lambda x: torch.addmm(x[0, 0], x[0, 0], torch.ones(5, 5), beta=2, alpha=3),
        (X,),
    ),
}


@pytest.mark.parametrize(("function", "args"), CASES.values(), ids=CASES)
def test_what_torch_works_out(function: Callable[..., Any], args: tuple[Tensor, ...]) -> None:
    with torch.no_grad():
        assert recorded(function, args, dynamic=True) == recorded(function, args, dynamic=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.layer_norm(x, (5,), torch.ones(4)),
        lambda x: torch.addmm(torch.ones(3), x[0, 0], torch.ones(5, 2)),
        lambda x: torch.addmm(torch.ones(2), x[0, 0], torch.ones(4, 2)),
        lambda x: F.batch_norm(x, torch.ones(4), torch.ones(3)),
        lambda x: x.mean(7),
        lambda x: x.view(x.shape[0], 4, -1, 7),
        lambda x: x.view(-1, -1),
        lambda x: x.transpose(1, 3).view(-1),
        lambda x: x.permute(0, 1, 2),
        lambda x: x.permute(0, 1, 2, 2),
        lambda x: x.transpose(0, 4),
        lambda x: x.unsqueeze(5),
        lambda x: x.select(1, 3),
        lambda x: x[:, :, :, None].squeeze(7),
        lambda x: x.expand(-1, 4, -1, -1),
        lambda x: x + torch.ones(4),
        lambda x: F.hardtanh(x.bool()),
    ],
)
def test_what_torch_refuses(function: Callable[..., Any]) -> None:
    for dynamic in (True, False):
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            recorded(function, (X,), dynamic)


def test_each_rule_is_applied_by_some_case() -> None:
    used: set[OpOverload] = set()

    def watched(operator: OpOverload, rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            found = rule(*args, **kwargs)
            if found is not None:
                used.add(operator)
            return found

        return run

    axes = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC},)
    functions = [case for case, args in CASES.values() if args[0] is X]
    functions += [
        torch.cos,
        torch.erf,
        torch.neg,
        torch.rsqrt,
        torch.sigmoid,
        torch.sin,
        torch.relu,
    ]
    functions += [F.softplus, lambda x: F.elu(x.clone(), inplace=True)]
    functions += [lambda x: torch.fft.irfft2(torch.complex(x, x))]
    functions += [torch.tanh, torch.sqrt, F.silu, lambda x: torch.ops.aten._safe_softmax(x, -1)]
    functions += [lambda x: F.hardswish(x + 1, True) + F.leaky_relu(x + 1, 0.1, True).relu_()]
    rules = {operator: watched(operator, rule) for operator, rule in SHAPE_RULES.items()}
    with (
        torch.no_grad(),
        capture_conditions(),
        applied(shape_rule_patches(rules), Settings(dynamic=True)),
    ):
        for function in functions:
            torch.export.export(Call(function), (X,), dynamic_shapes=(axes,))
    assert set(SHAPE_RULES) - used == set()
