"""More graphs: attention over graphs, relations, links; structures and genomes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, call

__all__ = ["CASES"]

GRAPHS = "graphs and molecules"
PROTEINS = "proteins and genes"

GRAPH_SIZES = ({"nodes": 12, "edges": 30}, {"nodes": 19, "edges": 57})
GRAPH_SHAPES = ({0: "nodes"}, {1: "edges"})
SEQUENCE = ({0: "batch", 1: "length"},)


def _row(name: str, package: str, build: Any, inputs: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, build=build, inputs=inputs, **more)


def _graph(nodes: int, edges: int) -> Any:
    return (torch.randn(nodes, 16), torch.randint(0, nodes, (2, edges))), {}


class _GraphTransformer(nn.Module):
    """Two layers of GraphGPS over several graphs, as in the package's example."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv, GPSConv

        def build() -> nn.Module:
            return GINConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)))

        self.layers = nn.ModuleList([GPSConv(16, build(), heads=4) for _ in range(2)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, edges, batch)
        return x


def _graphs(nodes: int, edges: int) -> Any:
    (x, edge_index), _ = _graph(nodes, edges)
    return (x, edge_index, torch.arange(nodes) // 4), {}


def _relations(nodes: int, edges: int) -> Any:
    (x, edge_index), _ = _graph(nodes, edges)
    return (x, edge_index, torch.randint(0, 3, (edges,))), {}


def _links(edges: int, pairs: int) -> Any:
    return (torch.randint(0, 20, (2, edges)), torch.randint(0, 20, (2, pairs))), {}


class _Frames(nn.Module):
    """Invariant point attention of residues with their frames."""

    def __init__(self) -> None:
        super().__init__()
        from invariant_point_attention import InvariantPointAttention

        self.model = InvariantPointAttention(dim=32, heads=4, require_pairwise_repr=False)

    def forward(
        self, x: torch.Tensor, rotations: torch.Tensor, translations: torch.Tensor
    ) -> torch.Tensor:
        return self.model(x, rotations=rotations, translations=translations)


def _frames(batch: int, length: int) -> Any:
    rotations = torch.linalg.qr(torch.randn(batch, length, 3, 3))[0]
    return (torch.randn(batch, length, 32), rotations, torch.randn(batch, length, 3)), {}


def _build_ablang() -> nn.Module:
    from ablang2.models.ablang2.ablang import AbLang

    return AbLang(26, 32, 4, 2, padding_tkn=21, mask_tkn=23, a_fn="swiglu")


def _antibodies(batch: int, length: int) -> Any:
    letters = torch.randint(1, 20, (batch, length))
    letters[-1, length - 2 :] = 21  # padding
    return (letters,), {}


class _Types(nn.Module):
    """Features of degree 0 of atoms, by an SE(3) transformer."""

    def __init__(self) -> None:
        super().__init__()
        from se3_transformer_pytorch import SE3Transformer

        self.model = SE3Transformer(
            dim=16, heads=2, depth=1, dim_head=8, num_degrees=2, num_neighbors=6
        )

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.model(x, positions, mask, return_type=0)


def _points(batch: int, length: int) -> Any:
    features, positions = torch.randn(batch, length, 16), torch.randn(batch, length, 3)
    return (features, positions, torch.ones(batch, length, dtype=torch.bool)), {}


CASES = (
    _row(
        "torch_geometric_gps",
        "torch-geometric",
        _GraphTransformer,
        _graphs,
        group=GRAPHS,
        dynamic_shapes=({0: "nodes"}, {1: "edges"}, {0: "nodes"}),
        sizes=GRAPH_SIZES,
    ),
    _row(
        "torch_geometric_rgcn",
        "torch-geometric",
        call("torch_geometric.nn:RGCNConv", 16, 8, num_relations=3, num_bases=2),
        _relations,
        group=GRAPHS,
        dynamic_shapes=({0: "nodes"}, {1: "edges"}, {0: "edges"}),
        sizes=GRAPH_SIZES,
    ),
    _row(
        "torch_geometric_lightgcn",
        "torch-geometric",
        call("torch_geometric.nn:LightGCN", num_nodes=20, embedding_dim=16, num_layers=2),
        _links,
        group=GRAPHS,
        dynamic_shapes=({1: "edges"}, {1: "pairs"}),
        sizes=({"edges": 30, "pairs": 7}, {"edges": 57, "pairs": 4}),
    ),
    _row(
        "torch_geometric_transformer",
        "torch-geometric",
        call("torch_geometric.nn:TransformerConv", 16, 8, heads=2, beta=True),
        _graph,
        group=GRAPHS,
        dynamic_shapes=GRAPH_SHAPES,
        sizes=GRAPH_SIZES,
    ),
    _row(
        "se3_transformer",
        "se3-transformer-pytorch",
        _Types,
        _points,
        group=GRAPHS,
        dynamic_shapes=SEQUENCE * 3,
        sizes=({"batch": 1, "length": 12}, {"batch": 2, "length": 17}),
    ),
    _row(
        "invariant_point_attention",
        "invariant-point-attention",
        _Frames,
        _frames,
        group=PROTEINS,
        dynamic_shapes=SEQUENCE * 3,
        sizes=({"batch": 1, "length": 16}, {"batch": 2, "length": 23}),
    ),
    _row(
        "ablang2",
        "ablang2",
        _build_ablang,
        _antibodies,
        group=PROTEINS,
        dynamic_shapes=SEQUENCE,
        sizes=({"batch": 1, "length": 24}, {"batch": 3, "length": 37}),
    ),
)
