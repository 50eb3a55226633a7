"""Modules for ``torch.jit.script``: attributes, buffers, submodules, classes."""

# TorchScript reads annotations literally: no `from __future__ import annotations`.

from typing import Final, NamedTuple, Optional

import torch
from torch import Tensor, nn


class ListAndCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        out: list[Tensor] = []
        for part in x.split(1, 0):
            out.append(part * 2)
            self.count += 1
        return torch.stack(out), self.count


class BufferCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(x.size(0)):
            self.seen += i
        self.seen = self.seen + 1
        return x + self.seen


class BufferInBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("best", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.max() > self.best):
            self.best = x.max()
        return x - self.best


class AttributeInLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        self.scale = 1.0
        for _ in range(int(n)):
            self.scale = self.scale * 0.5
        return x * self.scale


class AttributeInBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flag = False

    def forward(self, x: Tensor) -> Tensor:
        self.flag = bool(x.sum() > 0)
        return x * 2 if self.flag else x


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) + i
        return self.norm(x)


class Shared(nn.Module):
    """A single layer, used in each step of a loop that depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = torch.tanh(self.layer(x))
        return x


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU())
        self.head = nn.Linear(2, 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x.unsqueeze(1)).mean(-1)
        return self.drop(self.head(y))


class Constants(nn.Module):
    steps: Final[int]
    sizes: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.steps = 3
        self.sizes = [1, 2]
        self.names = {"a": 2.0, "b": 3.0}
        self.table = [torch.ones(3), torch.zeros(3)]

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.steps):
            x = x + self.table[i % 2]
        for size in self.sizes:
            x = x * size
        return x * self.names["b"]


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h = torch.zeros(x.size(1), 4)
        c = torch.zeros(x.size(1), 4)
        outs: list[Tensor] = []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
            outs.append(h)
        return torch.stack(outs), (h, c)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, bidirectional=True)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        out, last = self.gru(x, h)
        return out.sum(0) + last.sum()


class Methods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def scaled(self, x: Tensor, k: int) -> Tensor:
        return x * self.weight * k

    def forward(self, x: Tensor) -> Tensor:
        total = self.scaled(x, 1)
        for i in range(3):
            total = total + self.scaled(x, i)
        return total


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.inner(x)


class OptionalLayer(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(3)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias
        if bias is not None:
            return x + bias
        return x


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class ReturnsNamedTuple(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        pair = Pair(x, x + 1)
        return Pair(pair.second, pair.first * 2)


@torch.jit.script
class Accumulator:
    def __init__(self, start: Tensor) -> None:
        self.total = start
        self.count = 0

    def add(self, x: Tensor) -> None:
        self.total = self.total + x
        self.count += 1


class UsesClass(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = Accumulator(torch.zeros_like(x[0]))
        for i in range(3):
            total.add(x[i])
        return total.total / total.count


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.heads = 2

    def forward(self, x: Tensor, causal: bool = True) -> Tensor:
        b, t, d = x.shape
        split = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        if causal:
            mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
            scores = scores.masked_fill(mask, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)


class KeepsList(nn.Module):
    cache: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.cache = [torch.zeros(3)]

    def forward(self, x: Tensor) -> Tensor:
        self.cache.append(x[0])
        return torch.stack(self.cache)


class ByTrainingFlag(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x * 0
        return x + 1


class MakesState(nn.Module):
    """Makes its state at the first call, and anew if the batch changes."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros([0])
        self.rows = 0

    def forward(self, x: Tensor) -> Tensor:
        if bool(self.rows) and self.rows != x.shape[0]:
            self.total = torch.zeros([0])
        if not self.total.numel():
            self.total = torch.zeros([2, x.shape[0], 3])
        self.total = self.total + x
        self.rows = x.shape[0]
        return self.total * 2


class HasState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = MakesState()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.part(x))


class Decoder(nn.Module):
    """Its loop is in another method than ``forward``, which the model around it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)

    @torch.jit.export
    def infer(self, x: Tensor, scale: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        if isinstance(scale, Tensor):
            x = x * scale
        steps: list[Tensor] = []
        for _ in range(6):
            x = self.step(x).tanh() + torch.tensor([0.5, 0.25, 0.125])
            steps.append(x)
            if bool((x > 0.9).any()):
                break
        return torch.stack(steps)


class CallsInfer(nn.Module):
    """Calls the method of a scripted part."""

    def __init__(self, scales: bool) -> None:
        super().__init__()
        self.scales = scales
        self.part = torch.jit.script(Decoder().eval())

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.full((3,), 2.0) if self.scales else None
        return self.part.infer(x, scale) + self.part.step.weight.sum()


class LaterRows(nn.Module):
    """Attends with torch's function, and multiplies a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        attended = nn.functional.scaled_dot_product_attention(x, x, x)
        return self.linear(attended[:, 1:])
