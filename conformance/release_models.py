"""Runs the catalogue's models in releases of ONNX Runtime that they were exported for.

    python -m conformance.release_models --release 1.16 --release 1.20
    python -m conformance.release_models --release 1.16 resnet18 bert

Each model is exported with ``target="onnxruntime==RELEASE"``, run in that release at two sizes, and
compared with PyTorch. ``python -m nox -s targets`` makes the environments of the releases. With
--output, the results are written to a JSON file, where they replace those of the same release and
model.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.results import machine
from benchmarks.subjects import case_of, catalogue
from conformance.other_releases import OtherSession, Release, find_release
from onnx_aot.errors import OnnxExporterWarning

__all__ = ["judge_model"]

RIGHT = "right"


def main() -> None:
    """Runs what the command line asks for, and exits with 1 if a model is not right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all by default")
    parser.add_argument("--release", action="append", required=True, help="may be repeated")
    parser.add_argument("--output", type=Path, help="JSON file that the results are put into")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"releases": {}}
    if arguments.output and arguments.output.exists():
        results = json.loads(arguments.output.read_text(encoding="utf-8"))
    results["machine"] = machine()
    failed = 0
    for text in arguments.release:
        release = find_release(text)
        rows = results["releases"].setdefault(text, {})
        for name in arguments.names or catalogue():
            rows[name] = judge_model(name, release)
            if rows[name] != RIGHT:
                failed += 1
                print(f"{text} {name}: {rows[name]}", flush=True)
            if arguments.output:
                arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        right = sum(row == RIGHT for row in rows.values())
        print(f"onnxruntime {text}: {right} of {len(rows)} models are right", flush=True)
    sys.exit(bool(failed))


def judge_model(name: str, release: Release) -> str:
    """Returns ``right``, or the reason why the model of a name is not right in a release."""
    import onnx_aot
    from onnx_aot.inspection.verify import verify_against

    case = case_of(name)
    model = case.make()
    args, kwargs = case.example()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", OnnxExporterWarning)
            program = onnx_aot.export(
                model,
                args,
                kwargs=kwargs,
                dynamic_shapes=case.dynamic_shapes,
                on_specialized="allow",
                target=release.target,
            )
            create: Any = functools.partial(OtherSession, release)
            program.initialize_inference_session(initializer=create)
            for index in range(len(case.sizes)):
                args, kwargs = case.example(index)
                wrong = [d for d in verify_against(program, model, args, kwargs) if not d.right]
                if wrong:
                    return f"at {case.sizes[index]}: {wrong[0].name}: {wrong[0].details}"
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n", 1)[0][:300]
    return RIGHT


if __name__ == "__main__":
    main()
