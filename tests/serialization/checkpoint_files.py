"""Writes files in the safetensors format by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import torch

Tensor = torch.Tensor
X = torch.tensor([[1, 2, 3], [4, 5, 0]])
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}


def write_safetensors(path: Path, tensors: dict[str, Tensor], first: int = 0) -> None:
    """Writes a file; ``first`` spaces pad the end of the header, as by writers that align data."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        entry = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**entry, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode() + b" " * first
    data = [bytes(t.contiguous().flatten().view(torch.uint8).numpy()) for t in tensors.values()]
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
