"""Reads and writes arrays for a client in another environment. Needs nothing but NumPy.

A *case* is a folder with ``case.json``, which lists the inputs of a model at each size, in the
order of its inputs, and their bytes in files of their own. JavaScript reads these files too, unlike
those of NumPy.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ANSWER", "CASE", "Case", "answer_sizes", "load_arrays", "load_case", "store_arrays"]

CASE, ANSWER = "case.json", "answer.json"

Arrays = list[np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and its inputs.

    Attributes:
        name: Name of the model.
        inputs: Names of the model's inputs.
        outputs: Names of its outputs.
        sizes: Inputs at each size, in the order of their names.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Arrays, ...]

    def feeds(self, index: int) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs at a size, by name."""
        return dict(zip(self.inputs, self.sizes[index], strict=True))


def store_arrays(folder: Path, prefix: str, arrays: Sequence[Any]) -> list[dict[str, Any]]:
    """Writes the bytes of arrays, and returns what JSON says about them."""
    entries = []
    for index, array in enumerate(arrays):
        held = np.ascontiguousarray(array)
        file = f"{prefix}-{index}.bin"
        (folder / file).write_bytes(held.tobytes())
        entries.append({"dtype": held.dtype.name, "shape": list(np.shape(array)), "file": file})
    return entries


def load_arrays(folder: Path, entries: Sequence[dict[str, Any]]) -> Arrays:
    """Reads arrays that ``store_arrays`` wrote."""
    return [
        np.frombuffer((folder / entry["file"]).read_bytes(), entry["dtype"]).reshape(entry["shape"])
        for entry in entries
    ]


def load_case(folder: Path) -> Case:
    """Reads the case of a folder."""
    held = json.loads((folder / CASE).read_text(encoding="utf-8"))
    sizes = tuple(load_arrays(folder, size) for size in held["sizes"])
    return Case(held["name"], tuple(held["inputs"]), tuple(held["outputs"]), sizes)


def answer_sizes(
    folder: Path, load: Callable[[], Callable[[int], Sequence[Any]]], **remarks: Any
) -> None:
    """Loads a model, runs it at every size of a case, and writes the outputs or the reasons.

    Args:
        folder: Folder of the case, which gets ``answer.json``.
        load: Loads the model and returns a function that runs it at the size of an index.
        remarks: Further entries of the answer; ``load`` may change them if they are mutable.
    """
    answer: dict[str, Any] = {"loaded": False, "sizes": [], **remarks}
    count = len(json.loads((folder / CASE).read_text(encoding="utf-8"))["sizes"])
    try:
        run = load()
        answer["loaded"] = True
    except Exception as error:
        answer["reason"] = _describe(error)
    for index in range(count if answer["loaded"] else 0):
        try:
            outputs = store_arrays(folder, f"output-{index}", run(index))
            answer["sizes"].append({"outputs": outputs})
        except Exception as error:
            answer["sizes"].append({"reason": _describe(error)})
        _write(folder, answer)  # a crash at the next size does not lose this one
    _write(folder, answer)


def _write(folder: Path, answer: dict[str, Any]) -> None:
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def _describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"
