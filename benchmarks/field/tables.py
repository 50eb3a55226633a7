"""Tables, recommendations, time series, policies, flows and spiking networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, Method, call, noise

__all__ = ["CASES"]

TABLES = "tables"
RECOMMEND = "recommendation"
SERIES = "time series"
POLICIES = "policies"
FLOWS = "normalizing flows"
SPIKES = "spiking networks"

BATCH = ({0: "batch"},)
BATCHES = ({"batch": 1}, {"batch": 5})
FIELDS = (10, 20, 5, 8)


def _row(name: str, package: str, group: str, build: Any, inputs: Any, **more: Any) -> FieldCase:
    """Returns a row with a dynamic batch only, or with the shapes and sizes in ``more``."""
    more = {"dynamic_shapes": BATCH, "sizes": BATCHES, **more}
    return FieldCase(name=name, package=package, group=group, build=build, inputs=inputs, **more)


def _mixed(batch: int) -> Any:
    """Numbers and categories of rows of a table."""
    categories = torch.stack([torch.randint(0, 3, (batch,)), torch.randint(0, 4, (batch,))], 1)
    return (torch.randn(batch, 5), categories), {}


def _mixed_categories_first(batch: int) -> Any:
    (numbers, categories), _ = _mixed(batch)
    return (categories, numbers), {}


def _build_ft_transformer() -> nn.Module:
    from rtdl_revisiting_models import FTTransformer

    defaults = FTTransformer.get_default_kwargs(2)
    return FTTransformer(n_cont_features=5, cat_cardinalities=[3, 4], d_out=2, **defaults)


def _build_piecewise() -> nn.Module:
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins

    bins = compute_bins(torch.randn(200, 5), n_bins=6)
    return PiecewiseLinearEmbeddings(bins, 8, activation=False, version="B")


def _choices(batch: int) -> Any:
    return (torch.stack([torch.randint(0, size, (batch,)) for size in FIELDS], 1),), {}


def _build_deepctr(name: str) -> nn.Module:
    import deepctr_torch.models
    from deepctr_torch.inputs import DenseFeat, SparseFeat

    columns = [SparseFeat(f"field{i}", size, 8) for i, size in enumerate(FIELDS)]
    columns += [DenseFeat("price", 1), DenseFeat("age", 1)]
    return getattr(deepctr_torch.models, name)(columns, columns, device="cpu")


def _choices_and_numbers(batch: int) -> Any:
    (choices,), _ = _choices(batch)
    return (torch.cat([choices.float(), torch.rand(batch, 2)], 1),), {}


class _Policy(nn.Module):
    """Actions of a policy, as the package's documentation wraps it for an export."""

    def __init__(self) -> None:
        super().__init__()
        import gymnasium
        import numpy as np
        from stable_baselines3.common.policies import ActorCriticPolicy

        seen = gymnasium.spaces.Box(-np.inf, np.inf, (8,))
        done = gymnasium.spaces.Discrete(4)
        self.policy = ActorCriticPolicy(seen, done, lambda _: 1e-3)

    def forward(self, observation: torch.Tensor) -> Any:
        return self.policy(observation, deterministic=True)


def _build_nflows(spline: bool) -> nn.Module:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import (
        MaskedAffineAutoregressiveTransform,
        MaskedPiecewiseRationalQuadraticAutoregressiveTransform,
    )
    from nflows.transforms.base import CompositeTransform
    from nflows.transforms.permutations import ReversePermutation

    layers = []
    for _ in range(2):
        layers.append(ReversePermutation(features=4))
        if spline:
            made = MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                features=4, hidden_features=16, tails="linear", tail_bound=3.0, num_blocks=1
            )
        else:
            made = MaskedAffineAutoregressiveTransform(features=4, hidden_features=16)
        layers.append(made)
    return Method(Flow(CompositeTransform(layers), StandardNormal([4])), "log_prob")


def _build_normflows() -> nn.Module:
    import normflows

    flows = []
    for _ in range(2):
        parameters = normflows.nets.MLP([1, 16, 16, 2], init_zeros=False)
        flows += [normflows.flows.AffineCouplingBlock(parameters), normflows.flows.Permute(2)]
    base = normflows.distributions.base.DiagGaussian(2)
    return Method(normflows.NormalizingFlow(base, flows), "log_prob")


class _ZukoDensity(nn.Module):
    """Log density of samples under a flow with a context."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import zuko

        flow = getattr(zuko.flows, name)
        self.flow = flow(3, context=2, transforms=2, hidden_features=(16, 16))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return self.flow(context).log_prob(x)


def _build_freia() -> nn.Module:
    import FrEIA.framework
    import FrEIA.modules

    def subnet(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))

    model = FrEIA.framework.SequenceINN(8)
    for _ in range(2):
        model.append(FrEIA.modules.AllInOneBlock, subnet_constructor=subnet, permute_soft=True)
    return model


class _SnnTorch(nn.Module):
    """The network of snnTorch's tutorials: two layers of leaky neurons over some time steps."""

    def __init__(self, steps: int = 5) -> None:
        super().__init__()
        import snntorch

        self.steps = steps
        self.first, self.second = nn.Linear(20, 30), nn.Linear(30, 4)
        self.leaky, self.output = snntorch.Leaky(beta=0.9), snntorch.Leaky(beta=0.9)

    def forward(self, x: torch.Tensor) -> Any:
        first, second = self.leaky.init_leaky(), self.output.init_leaky()
        spikes, potentials = [], []
        for _ in range(self.steps):
            spike, first = self.leaky(self.first(x), first)
            spike, second = self.output(self.second(spike), second)
            spikes.append(spike)
            potentials.append(second)
        return torch.stack(spikes), torch.stack(potentials)


def _build_norse() -> nn.Module:
    import norse.torch as norse

    return norse.SequentialState(
        nn.Conv2d(1, 4, 5),
        norse.LIFCell(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 12 * 12, 10),
        norse.LICell(),
    )


class _SpikingJelly(nn.Module):
    """Firing rates over some time steps; the neurons are reset before, as users do."""

    def __init__(self, steps: int = 16) -> None:
        super().__init__()
        from spikingjelly.activation_based import layer, neuron

        self.steps = steps
        self.network = nn.Sequential(
            layer.Flatten(),
            layer.Linear(64, 32),
            neuron.IFNode(),
            layer.Linear(32, 4),
            neuron.IFNode(),
        )
        for linear in (self.network[1], self.network[3]):
            nn.init.normal_(linear.weight, std=0.5)  # with the default, no output neuron fires

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from spikingjelly.activation_based import functional

        functional.reset_net(self.network)
        return sum(self.network(x) for _ in range(self.steps)) / self.steps


def _build_gluonts() -> nn.Module:
    from gluonts.torch.distributions import StudentTOutput
    from gluonts.torch.model.d_linear.module import DLinearModel

    return DLinearModel(12, 24, 16, StudentTOutput(), kernel_size=5, scaling="mean")


def _build_patch_tst() -> nn.Module:
    from gluonts.torch.distributions import StudentTOutput
    from gluonts.torch.model.patch_tst.module import PatchTSTModel

    return PatchTSTModel(
        prediction_length=12,
        context_length=24,
        num_feat_dynamic_real=0,
        patch_len=6,
        stride=3,
        padding_patch="end",
        d_model=16,
        nhead=2,
        dim_feedforward=32,
        dropout=0.0,
        activation="relu",
        norm_first=False,
        num_encoder_layers=1,
        scaling="mean",
        distr_output=StudentTOutput(),
    )


def _series(batch: int) -> Any:
    return (torch.rand(batch, 24) + 1, torch.ones(batch, 24)), {}


BOTH = ({0: "batch"}, {0: "batch"})
LONG = {
    "dynamic_shapes": ({0: "batch", 2: "length"},),
    "sizes": ({"batch": 1, "length": 48}, {"batch": 3, "length": 65}),
}

CASES = (
    _row(
        "pytorch_tabnet",
        "pytorch-tabnet",
        TABLES,
        call(
            "pytorch_tabnet.tab_network:TabNet",
            8,
            3,
            cat_idxs=[0],
            cat_dims=[4],
            cat_emb_dim=[2],
            group_attention_matrix=torch.eye(8),
        ),
        lambda batch: (
            (torch.cat([torch.randint(0, 4, (batch, 1)), torch.randn(batch, 7)], 1),),
            {},
        ),
    ),
    _row(
        "rtdl_ft_transformer",
        "rtdl-revisiting-models",
        TABLES,
        _build_ft_transformer,
        _mixed,
        dynamic_shapes=BOTH,
    ),
    _row(
        "rtdl_resnet",
        "rtdl-revisiting-models",
        TABLES,
        call(
            "rtdl_revisiting_models:ResNet",
            d_in=5,
            d_out=2,
            n_blocks=2,
            d_block=16,
            d_hidden=None,
            d_hidden_multiplier=2.0,
            dropout1=0.1,
            dropout2=0.1,
        ),
        noise("batch", 5),
    ),
    _row(
        "rtdl_periodic_embeddings",
        "rtdl-num-embeddings",
        TABLES,
        call("rtdl_num_embeddings:PeriodicEmbeddings", 5, 8, lite=False),
        noise("batch", 5),
    ),
    _row(
        "rtdl_piecewise_embeddings",
        "rtdl-num-embeddings",
        TABLES,
        _build_piecewise,
        noise("batch", 5),
    ),
    _row(
        "tabm",
        "tabm",
        TABLES,
        call("tabm:TabM.make", n_num_features=5, cat_cardinalities=[3, 4], d_out=2),
        _mixed,
        dynamic_shapes=BOTH,
    ),
    _row(
        "tab_transformer",
        "tab-transformer-pytorch",
        TABLES,
        call(
            "tab_transformer_pytorch:TabTransformer",
            categories=(3, 4),
            num_continuous=5,
            dim=16,
            depth=2,
            heads=2,
            dim_out=1,
            mlp_act=nn.ReLU(),
        ),
        _mixed_categories_first,
        dynamic_shapes=BOTH,
    ),
    _row(
        "pykan",
        "pykan",
        TABLES,
        call(
            "kan:KAN", width=[4, 5, 1], grid=5, k=3, seed=0, auto_save=False, symbolic_enabled=False
        ),
        noise("batch", 4),
    ),
    _row(
        "deepctr_deepfm",
        "deepctr-torch",
        RECOMMEND,
        lambda: _build_deepctr("DeepFM"),
        _choices_and_numbers,
    ),
    _row(
        "deepctr_xdeepfm",
        "deepctr-torch",
        RECOMMEND,
        lambda: _build_deepctr("xDeepFM"),
        _choices_and_numbers,
    ),
    _row(
        "deepctr_autoint",
        "deepctr-torch",
        RECOMMEND,
        lambda: _build_deepctr("AutoInt"),
        _choices_and_numbers,
    ),
    _row(
        "torchfm_dfm",
        "torchfm",
        RECOMMEND,
        call("torchfm.model.dfm:DeepFactorizationMachineModel", FIELDS, 8, (16, 16), 0.2),
        _choices,
    ),
    _row(
        "torchfm_afi",
        "torchfm",
        RECOMMEND,
        call(
            "torchfm.model.afi:AutomaticFeatureInteractionModel",
            FIELDS,
            8,
            8,
            2,
            2,
            (16,),
            (0.2, 0.2, 0.2),
        ),
        _choices,
    ),
    _row("stable_baselines3", "stable-baselines3", POLICIES, _Policy, noise("batch", 8)),
    _row(
        "nbeats",
        "nbeats-pytorch",
        SERIES,
        call(
            "nbeats_pytorch.model:NBeatsNet",
            forecast_length=5,
            backcast_length=20,
            hidden_layer_units=32,
        ),
        noise("batch", 20),
    ),
    _row(
        "pytorch_tcn",
        "pytorch-tcn",
        SERIES,
        call("pytorch_tcn:TCN", 4, [8, 8], kernel_size=3),
        noise("batch", 4, "length"),
        **LONG,
    ),
    _row(
        "itransformer",
        "iTransformer",
        SERIES,
        call(
            "iTransformer:iTransformer",
            num_variates=5,
            lookback_len=32,
            dim=32,
            depth=1,
            heads=2,
            dim_head=8,
            pred_length=(4, 8),
        ),
        noise("batch", 32, 5),
    ),
    _row("gluonts_d_linear", "gluonts", SERIES, _build_gluonts, _series, dynamic_shapes=BOTH),
    _row("gluonts_patch_tst", "gluonts", SERIES, _build_patch_tst, _series, dynamic_shapes=BOTH),
    _row("nflows_affine", "nflows", FLOWS, lambda: _build_nflows(False), noise("batch", 4)),
    _row("nflows_spline", "nflows", FLOWS, lambda: _build_nflows(True), noise("batch", 4)),
    _row("normflows", "normflows", FLOWS, _build_normflows, noise("batch", 2)),
    _row(
        "zuko_nsf",
        "zuko",
        FLOWS,
        lambda: _ZukoDensity("NSF"),
        lambda batch: ((torch.randn(batch, 3), torch.randn(batch, 2)), {}),
        dynamic_shapes=BOTH,
    ),
    _row(
        "zuko_maf",
        "zuko",
        FLOWS,
        lambda: _ZukoDensity("MAF"),
        lambda batch: ((torch.randn(batch, 3), torch.randn(batch, 2)), {}),
        dynamic_shapes=BOTH,
    ),
    _row("freia", "FrEIA", FLOWS, _build_freia, noise("batch", 8)),
    _row("snntorch", "snntorch", SPIKES, _SnnTorch, noise("batch", 20)),
    _row("norse", "norse", SPIKES, _build_norse, noise("batch", 1, 28, 28)),
    _row(
        "spikingjelly",
        "spikingjelly",
        SPIKES,
        _SpikingJelly,
        lambda batch: ((4 * torch.randn(batch, 1, 8, 8),), {}),
    ),
)
