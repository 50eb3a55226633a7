"""More images and videos: masks, maps of lines, flow, larger pictures and codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.field.case import IMAGE_SHAPES, FieldCase, call, images

__all__ = ["CASES"]

GROUP = "images"
DIFFUSION = "diffusion"
BATCHES = ({"batch": 1}, {"batch": 3})
BATCH = ({0: "batch"},)
SMALL = (
    {"batch": 1, "height": 64, "width": 64},
    {"batch": 2, "height": 96, "width": 128},
)


def _row(name: str, package: str, build: Any, **more: Any) -> FieldCase:
    """Returns a row whose input is images with three dynamic dimensions, or ``more``."""
    more = {"inputs": images(), "dynamic_shapes": IMAGE_SHAPES, "sizes": SMALL, **more}
    return FieldCase(name=name, package=package, build=build, **{"group": GROUP, **more})


class _Flow(nn.Module):
    """Optical flow of RAFT between two pictures, after a few iterations."""

    def __init__(self) -> None:
        super().__init__()
        import ptlflow

        self.model = ptlflow.get_model("raft_small")
        self.model.iters = 3

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.model({"images": pictures})["flows"]


class _Autoencoder(nn.Module):
    """Reconstructions and codes of Pythae's autoencoder, which takes a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        from pythae.models import AE, AEConfig

        self.model = AE(AEConfig(input_dim=(1, 28, 28), latent_dim=8))

    def forward(self, data: torch.Tensor) -> Any:
        found = self.model({"data": data})
        return found.recon_x, found.z


CASES = (
    _row("u2net", "backgroundremover", call("backgroundremover.u2net.u2net:U2NETP", 3, 1)),
    _row("lineart", "controlnet-aux", call("controlnet_aux.lineart:Generator", 3, 1, 3)),
    _row(
        "open_pose_body",
        "controlnet-aux",
        call("controlnet_aux.open_pose.model:bodypose_model"),
    ),
    _row(
        "raft_small",
        "ptlflow",
        _Flow,
        inputs=lambda batch, height, width: ((torch.rand(batch, 2, 3, height, width),), {}),
        dynamic_shapes=({0: "batch", 3: "height", 4: "width"},),
        sizes=(
            {"batch": 1, "height": 128, "width": 128},
            {"batch": 2, "height": 136, "width": 160},
        ),
    ),
    _row("ninasr", "torchsr", call("torchsr.models:ninasr_b0", scale=2, pretrained=False)),
    _row(
        "pythae",
        "pythae",
        _Autoencoder,
        inputs=lambda batch: ((torch.rand(batch, 1, 28, 28),), {}),
        dynamic_shapes=BATCH,
        sizes=BATCHES,
        group=DIFFUSION,
    ),
)
