"""Networks of other fields, written out here: points, graphs, a policy and a loop of cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.zoo_models.case import ZooCase

__all__ = ["CASES"]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class PointNetwork(nn.Module):
    """Classifies point clouds ``[batch, points, 3]`` by edges to the four nearest points."""

    def __init__(self, width: int = 32, classes: int = 5, neighbours: int = 4) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.edges = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(points, points).topk(self.neighbours, largest=False).indices
        batch, count, _ = points.shape
        index = nearest.reshape(batch, -1, 1).expand(-1, -1, 3)
        others = points.gather(1, index).reshape(batch, count, self.neighbours, 3)
        centre = points[:, :, None].expand_as(others)
        features = self.edges(torch.cat([centre, others - centre], -1)).amax(2)
        return self.head(torch.cat([features.amax(1), features.mean(1)], -1))


class GraphAttention(nn.Module):
    """Messages along edges ``[2, edges]``, weighted by a softmax over those that reach a node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.score = nn.Linear(2 * width, 1)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        hidden = self.project(nodes)
        pairs = torch.cat([hidden[source], hidden[target]], -1)
        scores = functional.leaky_relu(self.score(pairs), 0.2).squeeze(-1)
        count = nodes.shape[0]
        largest = scores.new_full((count,), float("-inf"))
        largest = largest.scatter_reduce(0, target, scores, "amax")
        weights = torch.exp(scores - largest[target])
        total = torch.zeros(count).index_add(0, target, weights)
        messages = hidden[source] * (weights / total[target]).unsqueeze(-1)
        return nodes + torch.zeros_like(hidden).index_add(0, target, messages)


class GraphNetwork(nn.Module):
    """Maps node features and edges to a number per node and the mean of each graph's nodes."""

    def __init__(self, features: int = 6, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(GraphAttention(width) for _ in range(layers))
        self.last = nn.Linear(width, 1)

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.first(nodes)
        for layer in self.layers:
            hidden = functional.elu(layer(hidden, edges))
        two = torch.zeros(2, hidden.shape[1])
        index = graph[:, None].expand_as(hidden)
        means = two.scatter_reduce(0, index, hidden, "mean", include_self=False)
        return self.last(hidden).squeeze(-1), means


class Policy(nn.Module):
    """Actor and critic: maps observations to the best action, its log-probability and a value."""

    def __init__(self, observed: int = 8, actions: int = 4, width: int = 32) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(observed))
        self.register_buffer("deviation", torch.rand(observed) + 0.5)
        self.body = nn.Sequential(
            nn.Linear(observed, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.memory = nn.GRUCell(width, width)
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(
        self, observation: torch.Tensor, state: torch.Tensor, allowed: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        scaled = ((observation - self.mean) / self.deviation).clamp(-5.0, 5.0)
        state = self.memory(self.body(scaled), state)
        logits = self.actor(state).masked_fill(~allowed, -1e8)
        choice = torch.distributions.Categorical(logits=logits, validate_args=False)
        action = logits.argmax(-1)
        return action, choice.log_prob(action), choice.entropy(), self.critic(state), state


class CellLanguageModel(nn.Module):
    """Two LSTM cells in a Python loop over the words of a sentence."""

    def __init__(self, tokens: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        zeros = embedded.new_zeros(embedded.shape[0], embedded.shape[2])
        states = [(zeros, zeros) for _ in self.cells]
        scores = []
        for word in embedded.unbind(1):
            x = word
            for i, cell in enumerate(self.cells):
                states[i] = cell(x, states[i])
                x = states[i][0]
            scores.append(self.head(x))
        return torch.stack(scores, 1)


def _graph_inputs(nodes: int, edges: int) -> Inputs:
    """Makes a graph in which every node has an edge to itself, so that each gets a message."""
    loops = torch.arange(nodes).expand(2, -1)
    drawn = torch.randint(0, nodes, (2, edges - nodes))
    graph = (torch.arange(nodes) > nodes // 2).long()
    return (torch.randn(nodes, 6), torch.cat([loops, drawn], 1), graph), {}


def _policy_inputs(batch: int) -> Inputs:
    allowed = torch.rand(batch, 4) > 0.3
    allowed[:, 0] = True
    return (torch.randn(batch, 8), torch.randn(batch, 32), allowed), {}


CASES = (
    ZooCase(
        name="point_network",
        build=PointNetwork,
        inputs=lambda batch, points: ((torch.randn(batch, points, 3),), {}),
        dynamic_shapes=({0: "batch", 1: "points"},),
        sizes=({"batch": 2, "points": 12}, {"batch": 1, "points": 30}),
        group="others",
    ),
    ZooCase(
        name="graph_network",
        build=GraphNetwork,
        inputs=_graph_inputs,
        dynamic_shapes=({0: "nodes"}, {1: "edges"}, {0: "nodes"}),
        sizes=({"nodes": 7, "edges": 20}, {"nodes": 12, "edges": 15}),
        group="others",
    ),
    ZooCase(
        name="policy",
        build=Policy,
        inputs=_policy_inputs,
        dynamic_shapes=({0: "batch"}, {0: "batch"}, {0: "batch"}),
        sizes=({"batch": 3}, {"batch": 1}),
        group="others",
    ),
    ZooCase(
        name="lstm_cells",
        build=CellLanguageModel,
        inputs=lambda batch, seq: ((torch.randint(0, 50, (batch, seq)),), {}),
        dynamic_shapes=({0: "batch", 1: "seq"},),
        sizes=({"batch": 2, "seq": 6}, {"batch": 1, "seq": 9}),
        group="others",
    ),
)
