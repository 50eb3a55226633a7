"""Models that need one change to torch each, with which they are exported correctly."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.onnx.operators import shape_as_tensor

__all__ = ["MODELS", "SIZE_FUNCTIONS", "Example"]


@dataclasses.dataclass(frozen=True)
class Example:
    """A model, with the arguments of its export and its calls.

    Attributes:
        model: Function that makes the model.
        args: Function that makes the inputs for a size.
        sizes: The example's size, and other sizes for calls of the exported model.
        dynamic_shapes: Argument of ``export``.
        kwargs: Function that makes the keyword inputs for a size.
        options: Other arguments of ``export``.
    """

    model: Callable[[], Any]
    args: Callable[[int], tuple[Any, ...]]
    sizes: tuple[int, ...] = (4, 7)
    dynamic_shapes: Any = ({0: "n"},)
    kwargs: Callable[[int], dict[str, Any]] = lambda n: {}
    options: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"strategies": ("non-strict",)}
    )


def rows(n: int) -> tuple[Tensor]:
    return (torch.linspace(-1, 2, 3 * n).reshape(n, 3) * 0.9137,)


def signed_rows(n: int) -> tuple[Tensor]:
    """Rows whose sum is positive for odd sizes."""
    return (rows(n)[0] * (1 if n % 2 else -1),)


def function(call: Callable[[Tensor], Any]) -> Callable[[], Any]:
    """Wraps a function in a module, so that lines and names are those of a module."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return call(x)

    return Model


# --- the export path of a model ------------------------------------------------------------------


class AsksTorch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if torch.onnx.is_in_onnx_export() else x.clone().mul_(2)


class Asks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        import onnx_aot

        return x * 2 if onnx_aot.is_in_onnx_export() else x.clone().mul_(2)


class Moves(nn.Module):
    """Moves a layer to the device of its input, which the layer is on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.to(x.device)(x)


# --- sizes ---------------------------------------------------------------------------------------


def at_least_one(x: Tensor) -> Tensor:
    return x.new_zeros(max(x.shape[0], 1)) + x.sum()


def at_most_one(x: Tensor) -> Tensor:
    return x.new_ones(min(x.shape[0], 1)) + x.sum()


def compared(name: str, bound: int) -> Callable[[Tensor], Tensor]:
    """Makes a function whose result is different for size 0."""

    def ask(x: Tensor) -> Tensor:
        return x.sum() + (2.0 if getattr(x.shape[0], name)(bound) else 3.0)

    return ask


def number_of_data(x: Tensor) -> Tensor:
    for _ in range(x.sum().to(torch.int64).item()):
        x = x + 1
    return x


def branch_on_data(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def ensemble(x: Tensor) -> Tensor:
    """Applies one matrix per member, and returns the members along the last axis."""
    weights = torch.arange(18.0).reshape(3, 3, 2).sin()
    return torch.vmap(lambda weight: x @ weight, out_dims=-1)(weights)


def transposed_branch(x: Tensor) -> Tensor:
    """Branches on a tensor whose strides contain the dynamic size."""
    x = x.T[:, :, None] * torch.ones(2)
    return x * 2 if x.sum() > 0 else x + 1


def unread_number(x: Tensor) -> Tensor:
    """Computes a number that one side of the branch needs."""
    n = (x > 0).sum().item() * 2
    return x + n if x.sum() > 0 else x


def stated_number(x: Tensor) -> Tensor:
    n = (x > 0).sum().item()
    torch._check(n < 12)
    return x + n if x.sum() > 0 else x


def stated_on_one_side(x: Tensor) -> Tensor:
    n = (x > 0).sum().item()
    if x.sum() > 0:
        return x * 2
    torch._check(n < 6)
    return x + n


def fixed(x: Tensor) -> Tensor:
    return x + torch.arange(12.0).reshape(4, 3)


def unsolvable(x: Tensor) -> Tensor:
    rows, columns = x.shape
    return x * 2 if (rows * columns) % 7 != rows**2 % 5 else x * 2.0


def validated(x: Tensor) -> Tensor:
    if x.min() < -10:
        raise ValueError
    return x * 2


def selected(x: Tensor) -> Tensor:
    chosen = x[x > 0]
    return chosen * 2 if chosen.shape[0] > 1 else chosen.long()


def as_tensor(x: Tensor) -> Tensor:
    return x * torch.as_tensor(x.shape[0])


def assigned_data(x: Tensor) -> Tensor:
    y = x * 2
    y.data = x + 1
    return y.data * 3


class AssignedState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.held.data = self.held + 1
        return x * self.held


def data_in_branch(x: Tensor) -> Tensor:
    chosen: Tensor = torch.cond(x.sum() > 0, lambda x: x.data * 2, lambda x: x * 3, (x,))
    return chosen


def spectrum_of_rows(x: Tensor) -> Tensor:
    return torch.stft(x[:, 0].repeat(16), 8, return_complex=True)


SIZE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "torch:istft": lambda x: torch.istft(spectrum_of_rows(x), 8, length=16 * x.shape[0]),
    "torch:linspace": lambda x: torch.linspace(0.0, 1.0, x.shape[0]),
    "torch:logspace": lambda x: torch.logspace(0.0, 1.0, x.shape[0]),
    "torch:affine_grid_generator": lambda x: nn.functional.affine_grid(
        torch.eye(2, 3)[None] * 0.9, [1, 1, x.shape[0], 3], align_corners=False
    ),
    "torch.fft:fftfreq": lambda x: torch.fft.fftfreq(x.shape[0]),
    "torch.fft:rfftfreq": lambda x: torch.fft.rfftfreq(x.shape[0], 0.5),
    "torch:hann_window": lambda x: torch.hann_window(x.shape[0]),
    "torch:hamming_window": lambda x: torch.hamming_window(x.shape[0], False),
    "torch:blackman_window": lambda x: torch.blackman_window(x.shape[0]),
    "torch:bartlett_window": lambda x: torch.bartlett_window(x.shape[0]),
    "torch:kaiser_window": lambda x: torch.kaiser_window(x.shape[0], False, 9.0),
    "torch.nn.functional:one_hot": lambda x: nn.functional.one_hot(
        torch.tensor([0, 1]), num_classes=x.shape[0] + 2
    ),
    "torch:tril_indices": lambda x: torch.tril_indices(x.shape[0], 3, -1),
    "torch:Tensor.unfold": lambda x: torch.ones(1, 12).unfold(1, x.shape[0], x.shape[0]),
    "torch:triu_indices": lambda x: torch.triu_indices(x.shape[0], x.shape[0]),
    "torch:vander": lambda x: torch.vander(x[:, 0], x.shape[0]),
}
"""Models that call a function of torch that reads a size as a number, by its place."""


class MethodsName(nn.Module):
    """Has a submodule with the name of a method of ``nn.Module``."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.parameters = nn.ParameterList(self.linear.parameters())  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class Smallest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.sum().item(), x.mean().item()
        return x + min(a, b)


class Masked(nn.Module):
    def forward(self, past: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        if mask.shape[0] > past.shape[0] + x.shape[0]:
            mask = mask[: past.shape[0] + x.shape[0]]
        return torch.cat([past, x]) * mask


class Padded(nn.Module):
    """Computes padding with tensors, as in audio codecs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(4, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.ceil((x.shape[0] + 0 * self.stride) / self.stride).to(torch.int64)
        more = steps * self.stride - x.shape[0]
        return nn.functional.pad(x, (0, more)) if more >= 0 else x.long()


def negate_every_second(x: Tensor) -> Tensor:
    y = x.clone()
    y[1::2, 1:] *= -1
    return y


def by_int(x: Tensor) -> Tensor:
    return x.reshape(int(x.shape[0]), -1, 1)


def by_float(x: Tensor) -> Tensor:
    return x / float(x.shape[0])


def by_root(x: Tensor) -> Tensor:
    return x[: int(np.sqrt(x.shape[0]))] / np.sqrt(x.shape[0] * 0.5)


def by_root_of_product(x: Tensor) -> Tensor:
    return x / math.sqrt(x.shape[0] * (x.shape[0] + 1))


class Catching(nn.Module):
    """Calls a layer with an argument that it does not take, as speech toolkits do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.layer(x, x.shape[0])  # type: ignore[no-any-return]
        except TypeError:
            return self.layer(x) + 1  # type: ignore[no-any-return]


def causal_above_one(x: Tensor) -> Tensor:
    q = x[None, :, None, :]
    return nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), is_causal=x.shape[0] > 1
    )


def by_length(x: Tensor) -> Tensor:
    return x.new_ones(len(x)).cumsum(0) + x[:, 0]


def one_chunk(x: Tensor) -> Tensor:
    size = x.shape[0]
    return torch.cat([x[start : start + size] * 2 for start in range(0, size, size)])


# --- operators -----------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer: Any = kind(3, 5, **options)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)[0]
        return result


class Packed(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer: Any = kind(3, 5, batch_first=True, **options)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result: Tensor = pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]
        return result


def recurrent(kind: type[nn.RNNBase], **options: Any) -> Example:
    return Example(lambda: Recurrent(kind, **options), lambda n: (torch.ones(n, 2, 3) / n,))


def packed(kind: type[nn.RNNBase], **options: Any) -> Example:
    return Example(
        lambda: Packed(kind, **options),
        lambda n: (torch.ones(2, n, 3) / n, torch.tensor([n, n - 2])),
        dynamic_shapes=({1: "n"}, None),
    )


def signal(n: int) -> tuple[Tensor]:
    return (torch.linspace(0, 9, 8 * n).sin(),)


def spectrum(x: Tensor) -> Tensor:
    window = torch.ones(16)
    return torch.view_as_real(torch.stft(x, 16, 8, window=window, return_complex=True))


def restored(x: Tensor) -> Tensor:
    return torch.istft(torch.view_as_complex(x), 16, 8, window=torch.ones(16))


def quantized(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)


def quantized_by(x: Tensor) -> Tensor:
    scale, zero = torch.tensor([0.1]), torch.tensor([0], dtype=torch.int32)
    return torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)


def quantized_columns(x: Tensor) -> Tensor:
    zero = torch.zeros(3, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, torch.full((3,), 0.1), zero, 1, -128, 127)


# --- the model itself ----------------------------------------------------------------------------


class Kind(enum.Enum):
    DOUBLE = 2


class Scales(nn.Module):
    def forward(self, x: Tensor, kind: Kind) -> Tensor:
        return x * kind.value


def returns() -> nn.Module:
    """Returns a model whose result class is not registered yet."""

    @dataclasses.dataclass
    class Result:
        doubled: Tensor

    class Returns(nn.Module):
        def forward(self, x: Tensor) -> Result:
            return Result(x * 2)

    return Returns()


class Collects(nn.Module):
    def forward(self, **tensors: Tensor) -> Tensor:
        return tensors["x"] * 2


class Multiplies(nn.Module):
    def forward(self, x: Tensor, by: float) -> Tensor:
        if not isinstance(by, (float, torch.SymFloat)):
            raise TypeError("by is a float")
        return x * by


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(nn.Linear(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.part(x)
        return result


def observed() -> nn.Module:
    from torch.ao.quantization import FakeQuantize, disable_observer

    layer = FakeQuantize()
    layer(torch.linspace(-1, 2, 12))
    return nn.Sequential(layer.apply(disable_observer))


def fused_observed() -> nn.Module:
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize, disable_observer

    layer = FusedMovingAvgObsFakeQuantize()
    layer(torch.linspace(-1, 2, 12))
    return nn.Sequential(layer.apply(disable_observer))


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clamp(0, 1)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Relu", x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, _: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Add", x, x)


class Joined(nn.Module):
    """A parameter without elements beside a nonempty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, device="meta"))
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight * self.scale)


MODELS: dict[str, Example] = {
    "asks": Example(Asks, rows),
    "asks torch": Example(AsksTorch, rows),
    "moves": Example(Moves, rows),
    "linear": Example(lambda: nn.Linear(3, 2), rows),
    "batch of one": Example(lambda: nn.Linear(3, 2), rows, sizes=(1, 5)),
    "at least one": Example(function(at_least_one), rows, sizes=(4, 7, 0)),
    **{
        name: Example(function(compared(name, bound)), rows)
        for name, bound in (
            ("__eq__", 0),
            ("__ne__", 0),
            ("__lt__", 1),
            ("__le__", 0),
            ("__gt__", 0),
            ("__ge__", 1),
        )
    },
    "at most one": Example(function(at_most_one), rows, sizes=(4, 7, 0)),
    "number of data": Example(function(number_of_data), rows),
    "branch on data": Example(function(branch_on_data), signed_rows),
    "ensemble": Example(function(ensemble), rows),
    "transposed branch": Example(function(transposed_branch), signed_rows),
    "unread number": Example(function(unread_number), signed_rows),
    "stated number": Example(function(stated_number), rows, sizes=(4, 5)),
    "stated on one side": Example(function(stated_on_one_side), signed_rows),
    "fixed": Example(function(fixed), rows),
    "selected": Example(function(selected), rows),
    "validated": Example(function(validated), rows),
    "as tensor": Example(function(as_tensor), rows),
    "data": Example(function(lambda x: x.data * 2), rows),
    "shape as a tensor": Example(function(lambda x: shape_as_tensor(x) * 1), rows),
    "assigned data": Example(function(assigned_data), rows),
    "data in a branch": Example(function(data_in_branch), rows),
    **{
        name: Example(function(call), rows, sizes=(4, 7, 1, 2))
        for name, call in SIZE_FUNCTIONS.items()
    },
    "smallest": Example(Smallest, rows),
    "promised": Example(
        Masked,
        lambda n: (torch.ones(3), torch.ones(n), torch.ones(n + 3)),
        dynamic_shapes=({0: "past"}, {0: "n"}, {0: "past + n"}),
    ),
    "padded": Example(Padded, lambda n: (torch.ones(n),), sizes=(6, 9)),
    "catching": Example(Catching, rows),
    "method's name": Example(MethodsName, rows),
    "causal": Example(function(causal_above_one), rows),
    "int": Example(function(by_int), rows),
    "every second": Example(
        function(negate_every_second),
        lambda n: (torch.ones(n, 3),),
        dynamic_shapes=({0: torch.export.Dim("n")},),
    ),
    "float of a size": Example(function(by_float), rows),
    "root": Example(function(by_root), rows, sizes=(4, 9)),
    "root of a product": Example(function(by_root_of_product), rows, sizes=(4, 9)),
    "length": Example(function(by_length), rows),
    "range": Example(function(one_chunk), rows),
    "lstm": recurrent(nn.LSTM),
    "gru": recurrent(nn.GRU),
    "rnn tanh": recurrent(nn.RNN),
    "rnn relu": recurrent(nn.RNN, nonlinearity="relu"),
    "packed lstm": packed(nn.LSTM),
    "packed gru": packed(nn.GRU),
    "packed rnn tanh": packed(nn.RNN),
    "packed rnn relu": packed(nn.RNN, nonlinearity="relu"),
    "max_pool1d": Example(
        lambda: nn.MaxPool1d(2), lambda n: (torch.ones(1, 2, n),), dynamic_shapes=({2: "n"},)
    ),
    "stft": Example(function(spectrum), signal),
    "istft": Example(
        function(restored), lambda n: (spectrum(*signal(n)),), dynamic_shapes=({1: "n"},)
    ),
    "cdist": Example(function(lambda x: torch.cdist(x, x, p=1.0)), rows, sizes=(4, 30)),
    "combinations": Example(
        function(lambda x: torch.combinations(x[0])),
        lambda n: (torch.arange(2.0 * n).reshape(2, n),),
        dynamic_shapes=({1: "n"},),
    ),
    "reflectors": Example(
        function(lambda x: torch.geqrf(x.exp() + x.sin())[0]), rows, sizes=(4, 3)
    ),
    "histogram": Example(function(lambda x: torch.histogram(x, 3).hist), rows),
    "histogram between": Example(
        function(lambda x: torch.histogram(x, torch.tensor([-1.0, 0.0, 2.0])).hist), rows
    ),
    "histogramdd": Example(function(lambda x: torch.histogramdd(x, [2, 3, 2]).hist), rows),
    "histogramdd of one number": Example(function(lambda x: torch.histogramdd(x, 2).hist), rows),
    "histogramdd between": Example(
        function(lambda x: torch.histogramdd(x, [torch.linspace(-1, 2, 3)] * 3).hist), rows
    ),
    "equal": Example(function(lambda x: x * torch.equal(x, x + 0)), rows),
    "kron": Example(function(lambda x: torch.kron(x, x[:1])), rows),
    "taken": Example(function(lambda x: x.take_along_dim(x.argsort(1), 1)), rows),
    "covariance": Example(function(lambda x: torch.cov(x.T)), rows),
    "least squares": Example(
        function(lambda x: torch.linalg.lstsq(x, x.sum(1))[0]),
        lambda n: (torch.arange(3.0 * n).sin().reshape(n, 3),),
    ),
    "ctc": Example(
        function(lambda x: ctc_loss(x, torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]))),
        lambda n: (torch.full((n, 1, 3), -1.0),),
    ),
    "ctc of numbers": Example(
        function(lambda x: ctc_loss(x, torch.tensor([1]), [2], [1])),
        lambda n: (torch.full((n, 3), -1.0),),
    ),
    "tensor_split": Example(function(lambda x: torch.tensor_split(x, 3)), rows, sizes=(4, 6)),
    "quantized": Example(function(quantized), rows),
    "quantized by tensors": Example(function(quantized_by), rows),
    "quantized columns": Example(function(quantized_columns), rows),
    "constant": Example(
        Scales,
        lambda n: (*rows(n), Kind.DOUBLE),
        dynamic_shapes=({0: "n"}, None),
    ),
    "dataclass": Example(returns, rows),
    "collected": Example(
        Collects,
        lambda n: (),
        dynamic_shapes={"x": {0: "n"}},
        kwargs=lambda n: {"x": rows(n)[0]},
    ),
    "float": Example(
        Multiplies,
        lambda n: (*rows(n), n / 2),
        dynamic_shapes=({0: "n"}, torch.export.Dim.DYNAMIC),
    ),
    "scripted": Example(Scripted, rows),
    "observed": Example(observed, rows),
    "fused observed": Example(fused_observed, rows),
    "symbolic": Example(function(lambda x: Clipped.apply(x / 9)), rows),
    "symbolic with setup": Example(function(Doubled.apply), rows),
}
