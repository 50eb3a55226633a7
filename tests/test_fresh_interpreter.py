"""Effects of an import and of an export on a process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any


def run(script: str) -> Any:
    """Runs a script in a new interpreter, and parses its last line as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_export_uses_no_other_exporter() -> None:
    modules = run(
        """
        import json, sys, warnings
        import onnx_aot
        from benchmarks.models import MODELS

        warnings.simplefilter("ignore")
        for name in ("mlp", "word_language_model_lstm", "resnet18", "bert", "t5"):
            case = MODELS[name]
            args, kwargs = case.example()
            onnx_aot.export(
                case.make(),
                args,
                kwargs=kwargs,
                dynamic_shapes=case.dynamic_shapes,
                verify=True,
            )
        print(json.dumps(sorted(sys.modules)))
        """
    )
    assert "onnx_aot.translate.walker" in modules
    assert "torch.onnx._internal.exporter._core" not in modules
    assert not [name for name in modules if name.startswith("onnxscript.function_libs")]


def test_importing_brings_nothing_that_takes_long() -> None:
    modules = run(
        """
        import json, sys, torch
        before = set(sys.modules)
        import onnx_aot
        new = set(sys.modules) - before  # a folder by itself holds nothing but its docstring
        print(json.dumps(sorted(n for n in new if not hasattr(sys.modules[n], "__path__"))))
        """
    )
    heavy = ("onnx", "onnx_ir", "onnxscript", "onnxruntime", "rich", "typer", "sympy", "ml_dtypes")
    assert not [name for name in modules if name.partition(".")[0] in heavy]
    # The table of patches has a file per question; nothing else may grow with it.
    assert len([name for name in modules if not name.startswith("onnx_aot.torch_compat.")]) < 17


def test_exporting_needs_no_onnx_runtime() -> None:
    modules = run(
        """
        import io, json, sys, torch, onnx_aot
        onnx_aot.export(torch.nn.ReLU(), (torch.randn(2),), io.BytesIO())
        print(json.dumps(sorted(sys.modules)))
        """
    )
    assert "onnx_ir" in modules
    assert "onnxruntime" not in modules
