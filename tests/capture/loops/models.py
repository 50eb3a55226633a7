"""Models with Python loops over a dynamic size, which become one loop of the ONNX model."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

X = torch.randn(2, 7, 4)


class StackedRnn(nn.Module):
    """A list of states, joined with ``torch.stack``."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h, outs = torch.zeros(x.shape[0], 5), []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1)


class WrittenGru(nn.Module):
    """Writes the states into a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, steps, _ = x.shape
        h = torch.zeros(batch, 5)
        out = torch.zeros(batch, steps, 5)
        for t in range(steps):
            h = self.cell(x[:, t, :], h)
            out[:, t] = h
        return out * 2, h


class NoneFirst(StackedRnn):
    """The state is None before the first step."""

    def forward(self, x: Tensor) -> Tensor:
        h, outs = None, []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outs.append(h.unsqueeze(1))
        return torch.cat(outs, dim=1)


class TwoStates(nn.Module):
    """An LSTM with two states, of which the last ones are results too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = c = x.new_zeros(x.shape[0], 5)
        outs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outs += [h]
        return torch.stack(outs).transpose(0, 1), h, c


class BothDirections(StackedRnn):
    """Goes forwards, then backwards in three ways of writing it."""

    def forward(self, x: Tensor) -> Tensor:
        steps, joined = x.shape[1], []
        for order in (range(steps), range(steps - 1, -1, -1), reversed(range(steps))):
            h, outs = torch.zeros(x.shape[0], 5), []
            for t in order:
                h = self.cell(x[:, t], h)
                outs.append(h)
            joined.append(torch.stack(outs, 1))
        first, second, third = joined
        return torch.cat([first, second.flip(1), third], -1)


class ReversedList(StackedRnn):
    """Turns the list around, and fills another one from its front."""

    def forward(self, x: Tensor) -> Tensor:
        h, outs, others = torch.zeros(x.shape[0], 5), [], []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outs.append(h)
            others.insert(0, h * t)
        return torch.stack(outs[::-1], 1) + torch.stack(others, 1)


class FirstAndLast(StackedRnn):
    """Takes the first and the last element of the list, its length, and the list with a start."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = torch.zeros(x.shape[0], 5)
        outs, starts = [], [h]
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outs.append(h)
            starts.append(h)
        return outs[0] - outs[-1], torch.stack(starts, 1), h / len(outs)


class BeforeUpdate(StackedRnn):
    """Keeps the state before each step."""

    def forward(self, x: Tensor) -> Tensor:
        h, outs = torch.zeros(x.shape[0], 5), []
        for t in range(x.shape[1]):
            outs.append(h)
            h = self.cell(x[:, t], h)
        return torch.stack(outs, 1)


class Crf(nn.Module):
    """The forward algorithm, and the score of given tags, with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(4))
        self.end = nn.Parameter(torch.randn(4))
        self.moves = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x, mask = x.transpose(0, 1), mask.transpose(0, 1)
        steps = x.size(0)
        score = self.start + x[0]
        for i in range(1, steps):
            summed = score.unsqueeze(2) + self.moves + x[i].unsqueeze(1)
            score = torch.where(mask[i].unsqueeze(1), summed.logsumexp(1), score)
        return (score + self.end).logsumexp(1)


class Viterbi(Crf):
    """Keeps the best tags of each step in a list."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        score, history = self.start + x[:, 0], []
        for i in range(1, x.shape[1]):
            summed = score[:, :, None] + self.moves + x[:, i, None]
            score, best = summed.max(dim=1)
            history.append(best)
        tags = [(score + self.end).argmax(1)]
        joined = torch.stack(history)
        for back in reversed(joined):
            tags.append(back.gather(1, tags[-1][:, None])[:, 0])
        tags.reverse()
        return torch.stack(tags, 1), joined


class Spiking(nn.Module):
    """A leaky integrator that fires, and is reset by a write."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        potential, spikes = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            potential = 0.9 * potential + x[:, step]
            fired = (potential > 0.5).float()
            potential = potential - fired * 0.5
            spikes.append(fired)
        return torch.stack(spikes, dim=1), potential


class WrittenState(nn.Module):
    """Changes its state in place."""

    def forward(self, x: Tensor) -> Tensor:
        state, outs = torch.zeros(x.shape[0], x.shape[2]), []
        for t in range(x.shape[1]):
            state.mul_(0.5).add_(x[:, t])
            outs.append(state.clone())
        return torch.stack(outs, 1)


class SmoothedLater(nn.Module):
    """Does something else in the first step."""

    def forward(self, x: Tensor) -> Tensor:
        outs = []
        for t in range(x.shape[1]):
            if t > 0:  # noqa: SIM108
                y = 0.5 * y + x[:, t]  # noqa: F821
            else:
                y = x[:, t]
            outs.append(y)
        return torch.stack(outs, 1)


class RunningMaximum(nn.Module):
    """Keeps the largest values, from the first step on."""

    def forward(self, x: Tensor) -> Tensor:
        best, outs = x[:, 0], []
        for t in range(x.shape[1]):
            best = torch.maximum(best, x[:, t])
            outs.append(best)
        return torch.stack(outs, 1)


class Comprehension(nn.Module):
    """A list comprehension, and one over the slices of the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        one = torch.stack([self.linear(x[:, t]) for t in range(x.shape[1])], 1)
        two = torch.stack([self.linear(row).relu() for row in x.unbind(1)], 1)
        return one + two


class OverTensors(nn.Module):
    """Goes through tensors themselves, with their numbers and together."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        total, outs = torch.zeros_like(x[0]), []
        for row in x:
            total = total + row.exp()
        for index, row in enumerate(x.unbind(0)):
            outs.append(row * index)
        for one, two in zip(x, torch.stack(outs), strict=True):
            total = total + one * two
        return total


class OverLists(nn.Module):
    """Goes through lists that loops have filled, with their numbers, together and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = nn.RNNCell(4, 4), nn.RNNCell(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = x.unbind(1)
        h, ahead = torch.zeros_like(x[:, 0]), []
        for row in rows:
            h = self.forwards(row, h)
            ahead.append(h)
        h, back = torch.zeros_like(x[:, 0]), []
        for row in reversed(ahead):
            h = self.backwards(row, h)
            back.append(h)
        both = [torch.cat([one, two], 1) for one, two in zip(ahead, back[::-1], strict=True)]
        total = torch.zeros_like(both[0])
        for index, each in enumerate(both):
            total = total * 0.5 + each * index
        return torch.stack(both, 1), total, torch.stack(list(reversed(back)))


class OverNeighbours(nn.Module):
    """Goes through a list with the next elements, and with those from the end."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = [x[:, t].exp() for t in range(x.shape[1])]
        change, both = torch.zeros_like(rows[0]), torch.zeros_like(rows[0])
        for one, two in zip(rows[:-1], rows[1:], strict=True):  # noqa: RUF007
            change = change + (two - one).abs()
        for one, two in zip(rows, reversed(rows), strict=True):
            both = both * 0.5 + one / two
        return change, both


class TwiceCalled(nn.Module):
    """Calls a module with a loop twice, and has a static loop around them and one inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([WrittenGru() for _ in range(2)])
        self.back = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (*self.layers, self.layers[0]):
            x = self.back(layer(x)[0])
        outs = []
        for t in range(x.shape[1]):
            y = x[:, t]
            for k in range(3):
                y = y + y[:, k : k + 1]
            outs.append(y)
        return torch.stack(outs, 1)


class Delayed(nn.Module):
    """Uses the state of two steps before."""

    def forward(self, x: Tensor) -> Tensor:
        one = two = torch.zeros_like(x[:, 0])
        outs = []
        for t in range(x.shape[1]):
            one, two = 0.5 * one - 0.2 * two + x[:, t], one
            outs.append(one)
        return torch.stack(outs, 1)


class IndexedLists(nn.Module):
    """Takes the states of the step before, and of this step, from lists by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.unbind(x, 1)
        self.states, cells, sums = [x.new_zeros(x.shape[0], 5)], [x.new_zeros(x.shape[0], 5)], []
        for t in range(len(rows)):
            h, c = self.cell(rows[t], (self.states[t], cells[t]))
            self.states.append(h)
            cells.append(c)
            sums.append(self.states[t + 1] + self.states[t])
        return torch.stack(sums, 1) * cells[-1][:, None], torch.stack(self.states[1:], 1)


class LastStates(nn.Module):
    """Joins the last states of several loops."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.RNNCell(4, 4) for _ in range(3)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lasts = []
        for cell in self.cells:
            h, outs = torch.zeros(x.shape[0], 4), []
            for t in range(x.shape[1]):
                h = cell(x[:, t], h)
                outs.append(h)
            x = torch.stack(outs, 1)
            lasts.append(h)
        return x, torch.stack(lasts)


class StateSpace(nn.Module):
    """A selective scan that is written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.rand(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        decay = torch.exp(-self.rate * x.sigmoid().unsqueeze(-1))
        state = x.new_zeros(x.shape[0], 4, 3)
        ys = []
        for i in range(x.shape[1]):
            state = decay[:, i] * state + x[:, i, :, None]
            ys.append(torch.einsum("bdn,dn->bd", state, self.rate))
        return torch.stack(ys, dim=1)


class WritesToOwn(nn.Module):
    """A step writes to the state that it makes, before and after it is put into the list."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x[:, 0] * 1
        states = [state]
        for t in range(x.shape[1]):
            state = state + x[:, t]
            state[:, 2] = state[:, 2].sin()
            states.append(state)
            state[:, 3] *= 0.5
        return torch.stack(states, 1), state


class SeveralInOne(nn.Module):
    """Each step adds several tensors to a list, at its end or its beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        both, turned, widths = [], [x[:, 0], x[:, 0] * 2, x[:, 0] * 3], [x[:, 0]]
        ended, last = [], x[:, 0]
        for t in range(x.shape[1]):
            both.append(x[:, t])
            both.append(self.linear(x[:, t]))
            for row in (x[:, t].sin(), x[:, t].cos()):
                turned.insert(0, row)
            widths += [x[:, t, :3], both[-1], both[-2].exp()]
            last = last * 0.5 + x[:, t]
            ended += [last, last * 2]
        ended.append(last)  # of the last step too
        joined = torch.cat(widths, 1) * len(both)
        return torch.stack(both, 1), torch.stack(turned), joined, torch.stack(ended)


class Chain(nn.Module):
    """Places three points per step, each by those before it, after three that are given."""

    def forward(self, x: Tensor) -> Tensor:
        points = [x[:, 0] * k for k in (1, 2, 3)]
        for t in range(x.shape[1]):
            for k in (0.3, 0.5, 0.7):
                one, two, three = points[-3:]
                points.append(torch.tanh(one - k * two + three * x[:, t]))
        return torch.stack(points, 1).view(x.shape[0], x.shape[1] + 1, 3, 4)


class Sliced(nn.Module):
    """Goes over all rows but the first, the last, or both."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = x.unbind(1)
        level, levels, changes, pairs = rows[0], [rows[0]], [], []
        for row in rows[1:]:
            level = 0.3 * row + 0.7 * level
            levels.append(level)
        for row, after in zip(rows, rows[1:], strict=False):  # noqa: RUF007
            changes.append(after - row)
        for row, after in zip(x.unbind(1)[:-1], torch.unbind(x.exp(), 1)[1:], strict=True):
            pairs.append(after * row)
        total = torch.zeros_like(level)
        for row, count in zip(rows[1:], range(x.shape[1]), strict=False):
            total = total * 0.5 + row * count
        results = [torch.stack(items, 1) for items in (levels, [level, *changes], [level, *pairs])]
        return (*results, total)


MODELS: dict[str, nn.Module] = {
    kind.__name__: kind()
    for kind in (
        StackedRnn,
        WrittenGru,
        NoneFirst,
        TwoStates,
        BothDirections,
        ReversedList,
        FirstAndLast,
        BeforeUpdate,
        Viterbi,
        Spiking,
        WrittenState,
        SmoothedLater,
        RunningMaximum,
        Comprehension,
        OverTensors,
        OverLists,
        OverNeighbours,
        TwiceCalled,
        Delayed,
        *([IndexedLists] if sys.version_info >= (3, 11) else []),
        LastStates,
        StateSpace,
        WritesToOwn,
        SeveralInOne,
        Chain,
        Sliced,
    )
}
"""Models that take ``X``."""
