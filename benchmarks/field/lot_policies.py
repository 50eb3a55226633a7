"""Policies of packages for reinforcement learning that were drawn by lot; see ``lot.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import BATCH, BATCHES, LENGTHS, SEQUENCE, FieldCase, call, noise

__all__ = ["CASES"]

OBSERVATIONS = {"policy": 12, "camera": (3, 32, 32)}


def _build_policy(kind: str, **options: Any) -> nn.Module:
    """Builds a policy from observations, as the runner of rsl_rl does."""
    import rsl_rl.models
    from tensordict import TensorDict

    camera = {"camera": torch.zeros(1, *OBSERVATIONS["camera"])} if kind == "CNNModel" else {}
    observations = TensorDict({"policy": torch.zeros(1, 12), **camera}, batch_size=1)
    return getattr(rsl_rl.models, kind)(
        observations,
        {"actor": list(observations.keys())},
        "actor",
        4,
        hidden_dims=(32, 32),
        obs_normalization=True,
        distribution_cfg={"class_name": "rsl_rl.modules.distribution.GaussianDistribution"},
        **options,
    )


class _Policy(nn.Module):
    """A policy of rsl_rl, which takes the observations as a dict of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = _build_policy("MLPModel")

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        from tensordict import TensorDict

        batch = observations.shape[0]
        return self.policy(TensorDict({"policy": observations}, batch_size=batch))


def _build_visual_policy() -> nn.Module:
    filters = {"output_channels": [8, 16], "kernel_size": [4, 3], "stride": [2, 2]}
    return _build_policy("CNNModel", cnn_cfg=filters).as_onnx()


def _build_recurrent_policy() -> nn.Module:
    return _build_policy("RNNModel", rnn_type="lstm", rnn_hidden_dim=32).as_onnx()


def _build_decision_transformer() -> nn.Module:
    from torchrl.modules import DecisionTransformer, DTActor

    config = DecisionTransformer.DTConfig(
        n_embd=32, n_layer=2, n_head=4, n_inner=64, n_positions=256
    )
    return DTActor(4, 2, transformer_config=config)


def _build_dueling_network() -> nn.Module:
    from torchrl.modules import DuelingCnnDQNet

    model = DuelingCnnDQNet(4)
    model(torch.zeros(1, 3, 64, 64))  # gives the layers their sizes
    return model


def _trajectories(batch: int, length: int) -> Any:
    return (
        torch.randn(batch, length, 4),
        torch.randn(batch, length, 2),
        torch.randn(batch, length, 1),
    ), {}


class _Actor(nn.Module):
    """The mean action of a Gaussian policy that is written as the package's guide says."""

    def __init__(self) -> None:
        super().__init__()
        from gymnasium.spaces import Box
        from skrl.models.torch import GaussianMixin, Model

        class Policy(GaussianMixin, Model):
            def __init__(self, **spaces: Any) -> None:
                Model.__init__(self, **spaces, device="cpu")
                GaussianMixin.__init__(self, clip_actions=True, clip_mean_actions=True)
                self.net = nn.Sequential(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 2), nn.Tanh())
                self.log_std_parameter = nn.Parameter(torch.zeros(2))

            def compute(self, inputs: Any, _role: str) -> Any:
                return self.net(inputs["observations"]), {"log_std": self.log_std_parameter}

        spaces = {
            "observation_space": Box(-1, 1, (8,)),
            "state_space": Box(-1, 1, (8,)),
            "action_space": Box(-1, 1, (2,)),
        }
        self.policy = Policy(**spaces)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        _, outputs = self.policy.act({"observations": observations}, role="policy")
        return outputs["mean_actions"]


def _row(name: str, package: str, group: str, build: Any, **more: Any) -> FieldCase:
    return FieldCase(name=name, package=package, group=group, build=build, **more)


CASES = (
    _row(
        "rsl_policy",
        "rsl-rl-lib",
        "policies",
        _Policy,
        inputs=noise("batch", 12),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "rsl_visual_policy",
        "rsl-rl-lib",
        "policies",
        _build_visual_policy,
        inputs=lambda batch: ((torch.randn(batch, 12), torch.rand(batch, 3, 32, 32)), {}),
        dynamic_shapes={"obs_1d": {0: "batch"}, "obs_2d": ({0: "batch"},)},
        sizes=BATCHES,
    ),
    _row(
        "rsl_recurrent_policy",
        "rsl-rl-lib",
        "policies",
        _build_recurrent_policy,
        inputs=lambda batch: (
            (torch.randn(batch, 12), torch.randn(1, batch, 32), torch.randn(1, batch, 32)),
            {},
        ),
        dynamic_shapes=({0: "batch"}, {1: "batch"}, {1: "batch"}),
        sizes=BATCHES,
    ),
    _row(
        "decision_transformer",
        "torchrl",
        "policies",
        _build_decision_transformer,
        inputs=_trajectories,
        dynamic_shapes=SEQUENCE * 3,
        sizes=LENGTHS,
    ),
    _row(
        "dueling_network",
        "torchrl",
        "policies",
        _build_dueling_network,
        inputs=noise("batch", 3, 64, 64),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
    _row(
        "multi_agent",
        "torchrl",
        "policies",
        call(
            "torchrl.modules:MultiAgentMLP",
            n_agent_inputs=6,
            n_agent_outputs=2,
            n_agents=3,
            centralized=False,
            share_params=False,
            depth=2,
            num_cells=32,
        ),
        inputs=noise("batch", 3, 6),
        dynamic_shapes={"inputs": BATCH},
        sizes=BATCHES,
    ),
    _row(
        "skrl_policy",
        "skrl",
        "policies",
        _Actor,
        inputs=noise("batch", 8),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
    ),
)
