"""Generates with bundles in onnxruntime-genai, transformers.js and optimum, and with PyTorch.

    python -m benchmarks.bundles [FAMILY ...]

``python -m nox -s bundles`` makes the environments of the three. A cell is right if the tokens are
PyTorch's; with integers as weights, if they are those of ONNX Runtime with the same file, since
rounding of the weights changes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.bundles import NAME
from benchmarks.bundles.models import FAMILIES, PROMPT, SPECIAL, STEPS, make_model, save_source
from benchmarks.bundles.programs import (
    ENVIRONMENTS,
    INSIDE,
    command_in,
    last_error,
    parse_families,
    read_versions,
)
from benchmarks.results import machine, write_json

CLIENTS = {"genai": "onnxruntime-genai", "transformers.js": "transformers.js", "optimum": "optimum"}
WEIGHTS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8", "int4": "q4"}
"""transformers.js's names of the types."""
LIMIT = 120


def main() -> None:
    """Measures the families that the command line names; all of them are written to the results."""
    from benchmarks.models.torchvision_cpu import load_torchvision

    load_torchvision()  # before transformers, which imports it
    families = parse_families(__doc__, FAMILIES)
    rows = []
    for family in families or FAMILIES:
        rows.append(measure_family(family))
        print(json.dumps(rows[-1]), flush=True)
    if not families:
        cells = [cell for row in rows for cell in row["cells"].values()]
        summary = {"cells": len(cells), "right": sum(cell == "right" for cell in cells)}
        content = {"machine": machine(), "clients": read_versions(), "summary": summary}
        write_json(NAME, {**content, "rows": rows})


def measure_family(family: str) -> dict[str, Any]:
    """Returns the outcome in each program with each type of weights: ``right`` or a reason."""
    from onnx_aot.generation import Decoder, bundle

    model, ids = make_model(*FAMILIES[family]), torch.tensor([PROMPT])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=STEPS
    )
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        source = save_source(model, folder)
        for client in CLIENTS:
            for weights in WEIGHTS:
                path = bundle(
                    source, Path(folder, f"{client}-{weights}"), layout=client, weights=weights
                )
                wanted = expected[0].tolist()
                if weights.startswith("int"):
                    # Its cache grows, which buffers of a window do not.
                    whole = bundle(
                        source, Path(folder, "whole"), layout=client, weights=weights, bounded=False
                    )
                    made = Decoder(whole).generate(ids, max_new_tokens=STEPS, eos_token_id=2)
                    wanted = made[0].tolist()
                cells[f"{client}, {weights}"] = _judge(client, weights, path, wanted)
    return {"name": family, "cells": cells}


def _judge(client: str, weights: str, path: Path, wanted: list[int]) -> str:
    command, environment = _command_of(client)
    if not Path(command[0]).exists() and client != "transformers.js":
        return f"missing: {command[0]}"
    folder = path.parent.parent if client == "transformers.js" else path.parent
    arguments = [str(folder), json.dumps(PROMPT), str(STEPS), WEIGHTS[weights]]
    done = subprocess.run(
        [*command, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode != 0:
        return f"fails: {last_error(done.stderr)}"
    tokens = _without_end(json.loads(done.stdout.splitlines()[-1]))
    return "right" if tokens == _without_end(wanted) else f"other tokens: {tokens[len(PROMPT) :]}"


def _without_end(tokens: list[int]) -> list[int]:
    """The tokens before the one that ends a text, which not all programs return."""
    return tokens[:-1] if tokens[-1] == SPECIAL["eos_token_id"] else tokens


def _command_of(client: str) -> tuple[list[str], dict[str, str]]:
    if client == "transformers.js":
        packages = {"PACKAGES": str(ENVIRONMENTS / "bundle-node")}
        return ["node", str(INSIDE / "run_transformers_js.mjs")], packages
    return [command_in(client), str(INSIDE / f"run_{client}.py")], {}


if __name__ == "__main__":
    main()
