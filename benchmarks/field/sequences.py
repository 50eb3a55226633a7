"""State spaces, mixtures of experts, forecasts, more recommendations, policies and densities."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import FieldCase, call, noise, tokens

__all__ = ["CASES"]

SERIES = "time series"
TEXT = "text and attention"
TABLES = "tables"
RECOMMEND = "recommendation"
POLICIES = "policies"
FLOWS = "normalizing flows"
SPIKES = "spiking networks"

BATCH = ({0: "batch"},)
BATCHES = ({"batch": 1}, {"batch": 5})
SEQUENCE = ({0: "batch", 1: "length"},)
LENGTHS = ({"batch": 1, "length": 24}, {"batch": 3, "length": 37})
VECTORS = noise("batch", "length", 32)


def _row(name: str, package: str, group: str, build: Any, inputs: Any, **more: Any) -> FieldCase:
    """Returns a row with a dynamic batch and length, or with the shapes and sizes in ``more``."""
    more = {"dynamic_shapes": SEQUENCE, "sizes": LENGTHS, **more}
    return FieldCase(name=name, package=package, group=group, build=build, inputs=inputs, **more)


def _batches(name: str, package: str, group: str, build: Any, inputs: Any) -> FieldCase:
    """Returns a row with a dynamic batch only."""
    shapes = {"dynamic_shapes": BATCH, "sizes": BATCHES}
    return _row(name, package, group, build, inputs, **shapes)


class _First(nn.Module):
    """Returns the first of the module's results, as a network around the layer uses it."""

    def __init__(self, build: Any) -> None:
        super().__init__()
        self.layer = build()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def _build_mamba() -> nn.Module:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=32, n_layers=2))


def _build_soft_moe() -> nn.Module:
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=32, num_experts=4, seq_len=64)


def _build_chronos() -> nn.Module:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    config = T5Config(
        vocab_size=2,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=0,
        decoder_start_token_id=0,
        chronos_config={
            "context_length": 128,
            "prediction_length": 16,
            "input_patch_size": 16,
            "input_patch_stride": 16,
            "quantiles": [0.1, 0.5, 0.9],
            "use_reg_token": True,
        },
    )
    return ChronosBoltModelForForecasting(config)


class _Quantiles(nn.Module):
    """Quantiles of a forecast by Chronos-Bolt."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _build_chronos()

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        return self.model(context).quantile_preds


class _TinyTimeMixer(nn.Module):
    """Forecasts of IBM's TinyTimeMixer for several channels."""

    def __init__(self) -> None:
        super().__init__()
        from tsfm_public.models.tinytimemixer import (
            TinyTimeMixerConfig,
            TinyTimeMixerForPrediction,
        )

        config = TinyTimeMixerConfig(num_input_channels=3, decoder_num_layers=2)
        self.model = TinyTimeMixerForPrediction(config)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        return self.model(past_values=past, return_loss=False).prediction_outputs


class _Recommender(nn.Module):
    """A network of torch-rechub, which takes a dictionary of features."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from torch_rechub.basic.features import DenseFeature, SequenceFeature, SparseFeature
        from torch_rechub.models import ranking

        user, item = SparseFeature("user", 20, 8), SparseFeature("item", 30, 8)
        mlp = {"dims": [16, 8]}
        if name == "DeepFM":
            features = [user, item, DenseFeature("price")]
            self.model = ranking.DeepFM(features, [user, item], mlp)
        else:
            history = SequenceFeature("history", 30, 8, pooling="concat", shared_with="item")
            attention = {"dims": [16, 8], "activation": "dice"}
            self.model = ranking.DIN([user], [history], [item], mlp, attention)

    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(x)


def _features(batch: int) -> Any:
    user, item = torch.randint(0, 20, (batch,)), torch.randint(0, 30, (batch,))
    return ({"user": user, "item": item, "price": torch.rand(batch)},), {}


def _clicks(batch: int, length: int) -> Any:
    user, item = torch.randint(0, 20, (batch,)), torch.randint(0, 30, (batch,))
    return ({"user": user, "item": item, "history": torch.randint(0, 30, (batch, length))},), {}


class _TabIcl(nn.Module):
    """Logits of the rows of a table after examples with labels, by in-context learning."""

    def __init__(self) -> None:
        super().__init__()
        from tabicl._model.tabicl import TabICL

        self.model = TabICL(
            max_classes=3,
            embed_dim=16,
            col_num_blocks=1,
            col_nhead=2,
            col_num_inds=8,
            row_num_blocks=1,
            row_nhead=2,
            row_num_cls=2,
            icl_num_blocks=2,
            icl_nhead=2,
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(x, labels)


def _table_with_labels(batch: int, rows: int, known: int) -> Any:
    return (torch.randn(batch, rows, 6), torch.randint(0, 3, (batch, known)).float()), {}


class _QuantilePolicy(nn.Module):
    """Actions of a QR-DQN, as the documentation of stable-baselines3 wraps it for an export."""

    def __init__(self) -> None:
        super().__init__()
        import gymnasium
        import numpy as np
        from sb3_contrib.qrdqn.policies import QRDQNPolicy

        seen = gymnasium.spaces.Box(-np.inf, np.inf, (8,))
        self.policy = QRDQNPolicy(seen, gymnasium.spaces.Discrete(4), lambda _: 1e-3)

    def forward(self, observation: torch.Tensor) -> Any:
        return self.policy.quantile_net(observation).mean(dim=1)


class _GaussianProcess(nn.Module):
    """Mean and variance of a Gaussian process, as GPyTorch's notebook wraps it for tracing."""

    def __init__(self) -> None:
        super().__init__()
        import gpytorch

        class Model(gpytorch.models.ExactGP):
            def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
                super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, x: torch.Tensor) -> Any:
                mean, covariance = self.mean_module(x), self.covar_module(x)
                return gpytorch.distributions.MultivariateNormal(mean, covariance)

        x = torch.linspace(0, 1, 20)
        self.model = Model(x, torch.sin(6 * x))

    def forward(self, x: torch.Tensor) -> Any:
        import gpytorch

        with gpytorch.settings.fast_pred_var(), gpytorch.settings.trace_mode():
            found = self.model(x)
            return found.mean, found.variance


class _PyroFlow(nn.Module):
    """Log density under Pyro's inverse autoregressive transform of a normal distribution."""

    def __init__(self) -> None:
        super().__init__()
        from pyro.distributions.transforms import spline_coupling

        self.transform = spline_coupling(4, hidden_dims=[16])
        self.register_buffer("zeros", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import pyro.distributions as dist

        base = dist.Normal(self.zeros, torch.ones_like(self.zeros))
        return dist.TransformedDistribution(base, [self.transform]).log_prob(x)


def _build_gpt() -> nn.Module:
    from litgpt import GPT, Config

    return GPT(
        Config(
            block_size=64,
            vocab_size=100,
            padded_vocab_size=100,
            n_layer=2,
            n_head=4,
            n_query_groups=2,
            n_embd=32,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
            intermediate_size=64,
            bias=False,
        )
    )


def _build_phonemes() -> nn.Module:
    from dp.model.model import ForwardTransformer

    return ForwardTransformer(30, 40, d_model=32, d_fft=64, layers=2, heads=2)


CASES = (
    _row("mambapy", "mambapy", TEXT, _build_mamba, VECTORS),
    _row(
        "min_gru",
        "minGRU-pytorch",
        TEXT,
        call("minGRU_pytorch.minLM:minLM", num_tokens=100, dim=32, depth=2),
        tokens(100),
    ),
    _row("s5", "s5-pytorch", SERIES, call("s5:S5Block", 32, 16, False), VECTORS),
    _row(
        "titans_memory",
        "titans-pytorch",
        TEXT,
        lambda: _First(call("titans_pytorch:NeuralMemory", dim=32, chunk_size=8)),
        VECTORS,
        sizes=({"batch": 1, "length": 24}, {"batch": 3, "length": 40}),
    ),
    _row("soft_moe", "soft-moe-pytorch", TEXT, _build_soft_moe, VECTORS),
    _row(
        "st_moe",
        "st-moe-pytorch",
        TEXT,
        lambda: _First(call("st_moe_pytorch:MoE", dim=32, num_experts=4)),
        VECTORS,
    ),
    _row("litgpt", "litgpt", TEXT, _build_gpt, tokens(100)),
    _row(
        "deep_phonemizer",
        "deep-phonemizer",
        TEXT,
        _build_phonemes,
        lambda batch, length: (({"text": torch.randint(1, 30, (batch, length))},), {}),
        dynamic_shapes=({"text": {0: "batch", 1: "length"}},),
    ),
    _row(
        "ncps_cfc",
        "ncps",
        SERIES,
        call("ncps.torch:CfC", 8, 16),
        noise("batch", "length", 8),
    ),
    _row("chronos_bolt", "chronos-forecasting", SERIES, _Quantiles, noise("batch", "length")),
    _batches("tiny_time_mixer", "granite-tsfm", SERIES, _TinyTimeMixer, noise("batch", 64, 3)),
    _row(
        "rechub_deepfm",
        "torch-rechub",
        RECOMMEND,
        lambda: _Recommender("DeepFM"),
        _features,
        dynamic_shapes=({name: {0: "batch"} for name in ("user", "item", "price")},),
        sizes=BATCHES,
    ),
    _row(
        "rechub_din",
        "torch-rechub",
        RECOMMEND,
        lambda: _Recommender("DIN"),
        _clicks,
        dynamic_shapes=({"user": BATCH[0], "item": BATCH[0], "history": SEQUENCE[0]},),
        sizes=({"batch": 1, "length": 6}, {"batch": 4, "length": 11}),
    ),
    _row(
        "tabicl",
        "tabicl",
        TABLES,
        _TabIcl,
        _table_with_labels,
        dynamic_shapes=({0: "batch", 1: "rows"}, {0: "batch", 1: "known"}),
        sizes=(
            {"batch": 1, "rows": 20, "known": 15},
            {"batch": 2, "rows": 33, "known": 23},
        ),
    ),
    _batches("sb3_qrdqn", "sb3-contrib", POLICIES, _QuantilePolicy, noise("batch", 8)),
    _row(
        "gpytorch_exact",
        "gpytorch",
        FLOWS,
        _GaussianProcess,
        lambda points: ((torch.rand(points),), {}),
        dynamic_shapes=({0: "points"},),
        sizes=({"points": 7}, {"points": 12}),
    ),
    _batches("pyro_spline", "pyro-ppl", FLOWS, _PyroFlow, noise("batch", 4)),
)
