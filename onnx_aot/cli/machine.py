"""``doctor``: checks that the installed packages work together."""

from __future__ import annotations

import dataclasses
import platform
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated, Any

import typer

from onnx_aot.cli.console import (
    EXIT_FAILED,
    AsJson,
    errors_as_messages,
    escape_for_stream,
    print_json,
)
from onnx_aot.inspection.text import align_columns

__all__ = ["doctor"]

DISTRIBUTION = "onnx-aot"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        subject: Name of the check.
        found: State of the installation.
        ok: Whether it works.
        advice: Fix if it does not work.
    """

    subject: str
    found: str
    ok: bool
    advice: str = ""


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help="An ONNX file: tells which releases of runtimes load it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the installed versions, and export and run a small model. Exits with 1 on a problem.

    With a model, tell instead which releases of ONNX Runtime, onnxruntime-web, OpenVINO and OpenCV
    load it, and what stops the others.
    """
    if model is not None:
        _show_releases(model, as_json)
        return
    findings = [
        Finding("python", platform.python_version(), True),
        Finding("platform", f"{platform.system()} {platform.machine()}", True),
        *_check_packages(),
        *_check_torch(),
        *_check_runtime(),
        _try_export(),
    ]
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        rows = [(f.subject, "ok" if f.ok else "PROBLEM", f.found, f.advice) for f in findings]
        typer.echo(escape_for_stream("\n".join(align_columns(rows))))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _show_releases(path: str, as_json: bool) -> None:
    """Prints a line per release; exits with 1 if the installed ONNX Runtime does not load it."""
    from onnx_ir.passes.common import ShapeInferencePass

    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.targets import RUNTIME, find_obstacles, find_release

    with errors_as_messages():
        model = ONNXProgram.load(path).model
        if any(value.type is None for node in model.graph.all_nodes() for value in node.outputs):
            ShapeInferencePass()(model)  # kernels are chosen by types
        found = find_obstacles(model)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        rows = [
            (one.target, "does not load" if one.reasons else "loads", "; ".join(one.reasons))
            for one in found
        ]
        typer.echo(escape_for_stream("\n".join(align_columns(rows))))
    installed = f"{RUNTIME}=={find_release(RUNTIME)}"
    if any(one.reasons for one in found if one.target == installed):
        raise typer.Exit(EXIT_FAILED)


def _check_packages() -> Iterator[Finding]:
    """Compares the installed versions with the requirements of this package."""
    from packaging.requirements import Requirement

    try:
        requires = metadata.requires(DISTRIBUTION) or []
        yield Finding(DISTRIBUTION, metadata.version(DISTRIBUTION), True)
    except metadata.PackageNotFoundError:
        yield Finding(DISTRIBUTION, "not installed", False, "python -m pip install .")
        return
    wanted: dict[str, tuple[Any, bool]] = {}
    for requirement in map(Requirement, requires):
        optional = requirement.marker is not None  # requirement of an extra
        wanted.setdefault(requirement.name, (requirement.specifier, optional))
    for name, (specifier, optional) in wanted.items():
        advice = f"python -m pip install '{name}{specifier}'"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if not optional:
                yield Finding(name, "not installed", False, advice)
            continue
        fits = specifier.contains(version, prereleases=True)
        yield Finding(name, version, fits, "" if fits else advice)


def _check_torch() -> Iterator[Finding]:
    """Checks that the torch release is tested, and lists the features that are switched off."""
    try:
        from onnx_aot.capture.patches import capabilities
        from onnx_aot.ops.families import import_all_families
        from onnx_aot.torch_compat import TESTED, describe_untested

        import_all_families()  # looks up the operators
        found = capabilities()
    except Exception as error:  # every failure is a finding
        yield Finding("torch", f"{type(error).__name__}: {error}", False, "reinstall torch")
        return
    releases = f"tested with {TESTED[0]} to {TESTED[-1]}"
    yield Finding("torch release", releases, True, "" if found.tested else describe_untested())
    for off in found.off:
        yield Finding("switched off", f"{off.name}: {off.reason}", True, off.without)
    if found.operators:
        yield Finding("operators it lacks", ", ".join(found.operators), True)


def _check_runtime() -> Iterator[Finding]:
    """Lists the execution providers, and checks that onnx supports the default opset."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        yield Finding("onnxruntime", str(error), False, "reinstall onnx and onnxruntime")
        return
    from onnx_aot.options import DEFAULT_OPSET

    yield Finding("providers", ", ".join(onnxruntime.get_available_providers()), True)
    newest = onnx.defs.onnx_opset_version()
    fits = newest >= DEFAULT_OPSET
    advice = "" if fits else f"export with opset_version={newest}, or install a newer onnx"
    yield Finding("opsets", f"{DEFAULT_OPSET} by default, onnx knows {newest}", fits, advice)


def _try_export() -> Finding:
    """Exports a small model with a dynamic dimension and runs it at another size."""
    subject = "small export"
    try:
        import torch

        import onnx_aot

        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = onnx_aot.export(model, (torch.randn(2, 4),), dynamic_shapes=({0: "n"},))
            x = torch.randn(5, 4)
            torch.testing.assert_close(program(x)[0], model(x))
    except Exception as error:  # every failure is a finding
        line = str(error).strip().partition("\n")[0]
        found = f"{type(error).__name__}: {line}"
        return Finding(subject, found, False, "see onnx-aot explain")
    return Finding(subject, "exported, and right at another size", True)
