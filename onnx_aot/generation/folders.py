"""Opens a model of transformers in a folder, with weights that stay in files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from onnx_aot.capture.fake_weights import enable_fake_mode
from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization.atomic import refuse_full_disk
from onnx_aot.serialization.checkpoints import Given, read_checkpoint
from onnx_aot.serialization.mapped_tensor import MappedFile
from onnx_aot.serialization.progress import Progress

__all__ = ["check_folder", "open_model"]

CASTS = "weights"
"""Name of the file for weights of another type."""

ALIGNMENT = 64
"""Bytes at multiples of which tensors begin in it."""


def open_model(
    folder: str | os.PathLike[str], dtype: torch.dtype, scratch: str | os.PathLike[str]
) -> Any:
    """Returns the model in a folder, in evaluation mode, as transformers would load it.

    Its parameters are mapped from the files, and so take no memory that the system could not use
    otherwise; what is written to them stays in memory. Those of another floating-point type are
    cast one by one into a file, which is mapped. transformers loads weights into memory where it
    has to convert them, because their names or shapes are not those of the model, or because they
    are quantized.

    Args:
        folder: A folder of transformers.
        dtype: Type of the parameters.
        scratch: An existing folder for a file of cast parameters, which is read as long as the
            model is used.

    Raises:
        InvalidOptionError: transformers cannot load the model.
        SaveError: The cast weights do not fit on the disk.
    """
    import transformers

    try:
        model = _open_mapped(folder, dtype, Path(scratch) / CASTS)
        if model is None:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    except SaveError:
        raise
    except Exception as error:  # of code and files of all kinds
        raise InvalidOptionError(
            f"transformers cannot load the model in {os.fspath(folder)}: "
            f"{type(error).__name__}: {error}",
            code="OA701",
        ) from error
    return model.eval()


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Checks that a folder is one of transformers.

    Raises:
        InvalidOptionError: It has no configuration.
    """
    if not (Path(folder) / "config.json").is_file():
        raise InvalidOptionError(
            f"there is no config.json in {os.fspath(folder)}; pass the folder of a model of "
            "transformers, as save_pretrained writes it",
            code="OA701",
        )


def _open_mapped(folder: str | os.PathLike[str], dtype: torch.dtype, casts: Path) -> Any:
    """The model with mapped parameters, or None if transformers has to load them."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    if getattr(config, "quantization_config", None) is not None:
        return None
    try:
        given = read_checkpoint(folder)
    except InvalidOptionError:  # such as weights of another library
        return None
    make: Any = transformers.AutoModelForCausalLM.from_config
    with enable_fake_mode():
        model = make(config, dtype=dtype)
    if not _are_weights_of(model, given):
        return None
    with contextlib.suppress(OSError):  # there need not be any
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    buffers = dict(model.named_buffers())
    parameters = {name: tensor for name, tensor in given.items() if name not in buffers}
    model.load_state_dict(_mapped(parameters, dtype, casts), strict=False, assign=True)
    model.load_state_dict({n: _tensor(given[n]) for n in buffers if n in given}, strict=False)
    model.tie_weights()
    return model


def _are_weights_of(model: torch.nn.Module, given: Mapping[str, Given]) -> bool:
    """True if each parameter is given once, tied ones under one of their names, and no others."""
    weights = model.state_dict(keep_vars=True)
    if any(name not in weights or weights[name].shape != given[name].shape for name in given):
        return False
    filled = [id(weights[name]) for name in given]
    return len(filled) == len({*filled}) and {*filled}.issuperset(map(id, model.parameters()))


def _mapped(given: Mapping[str, Given], dtype: torch.dtype, casts: Path) -> dict[str, torch.Tensor]:
    """Parameters on the bytes of their files, or of a new file if they have another type."""
    found = {name: _tensor(tensor) for name, tensor in given.items()}
    others = {n: t for n, t in found.items() if t.is_floating_point() and t.dtype != dtype}
    if not others:
        return found
    total = sum(tensor.numel() for tensor in others.values()) * dtype.itemsize
    refuse_full_disk(os.fspath(casts), total)
    places: dict[str, int] = {}
    try:
        with open(casts, "wb") as file, Progress("casting", total) as progress:
            for name, tensor in others.items():
                places[name] = file.tell()
                data = tensor.to(dtype).contiguous().view(torch.uint8).numpy().data
                file.write(data)
                progress.add(data.nbytes)
                file.write(bytes(-file.tell() % ALIGNMENT))
    except OSError as error:
        raise SaveError(f"could not write {casts}: {error}") from error
    mapped = MappedFile(os.fspath(casts))
    return found | {
        name: mapped.map_tensor(dtype, others[name].shape, place) for name, place in places.items()
    }


def _tensor(given: Given) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given
    assert isinstance(given.raw, torch.Tensor)
    return given.raw
