"""Writes adapter files: weights that are inputs of a model, which ONNX Runtime feeds by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization.atomic import check_destination, written_beside

__all__ = ["write_adapter"]


def write_adapter(
    path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], version: int
) -> None:
    """Writes tensors, keyed by input name, in the format of ``onnxruntime.LoraAdapter``.

    Raises:
        InvalidOptionError: ``tensors`` is empty.
        SaveError: The file cannot be written; an existing file is untouched.
    """
    import tempfile

    import onnxruntime

    from onnx_aot.program.session import to_ort

    if not tensors:
        raise InvalidOptionError(
            "the model has no weights as inputs, which an adapter replaces. Export it with "
            "weights_as_inputs=[...], with patterns of their names such as '*.lora_*'",
            code="OA011",
        )
    check_destination(path)
    adapter = onnxruntime.AdapterFormat()
    adapter.set_adapter_version(version)
    adapter.set_model_version(version)
    adapter.set_parameters({name: to_ort(tensor) for name, tensor in tensors.items()})
    try:
        with tempfile.TemporaryDirectory() as folder, written_beside(os.fspath(path)) as file:
            made = os.path.join(folder, "adapter")  # ONNX Runtime writes to a path only
            adapter.export_adapter(made)
            with open(made, "rb") as source:
                file.write(source.read())
    except OSError as error:
        raise SaveError(f"could not write {path}: {error}") from error
