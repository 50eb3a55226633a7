"""Module calls around the nodes of a captured graph, and the classes that become functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnx_aot.errors import InvalidOptionError
from onnx_aot.metadata.module_calls import module_calls, wanted_classes


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Net(nn.Module):
    """Calls its first block twice, with an operator of its own in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.first(x).exp())).sin()


BLOCK = f"{__name__}.Block"


@pytest.fixture(scope="module")
def graph() -> torch.fx.Graph:
    return torch.export.export(Net(), (torch.ones(2, 3),)).graph


def test_calls_are_told_apart_by_what_stands_between(graph: torch.fx.Graph) -> None:
    found = {name: [str(call) for call in calls] for name, calls in module_calls(graph).items()}
    assert found == {
        "linear": ["first", "first.linear"],
        "relu": ["first"],
        "exp": [],
        "linear_1": ["first@1", "first.linear@1"],
        "relu_1": ["first@1"],
        "linear_2": ["second", "second.linear"],
        "relu_2": ["second"],
        "sin": [],
    }


def test_repeated_blocks_or_the_classes_asked_for(graph: torch.fx.Graph) -> None:
    calls = module_calls(graph)
    assert wanted_classes(False, calls) == frozenset()
    assert wanted_classes(True, calls) == {BLOCK}
    assert wanted_classes([nn.Linear, BLOCK], calls) == {
        BLOCK,
        "torch.nn.modules.linear.Linear",
    }
    with pytest.raises(InvalidOptionError, match=r"Conv2d, .*module.*\.Block"):
        wanted_classes([nn.Conv2d], calls)
