"""Every task of the project: ``python -m nox -s NAME``. Sessions install all that they need."""

from __future__ import annotations

import random
import tempfile

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["tests"]

# torch comes first and exactly: a range would let another package choose a build of it.
TORCH = "torch==2.13.0"
# Without their dependencies, which would replace torch. torchvision's native operators need the
# stub libraries of benchmarks/models/torchvision_cpu.py where torch is a CPU build. torchao's own
# kernels are for CUDA; without it the tests of what it quantizes are skipped.
WITHOUT_DEPENDENCIES = ("torchvision==0.28.0", "torchao==0.18.0")
FOR_BENCHMARKS = ("timm==1.0.31",)  # what it needs besides torch is in the extra `bench`


def _install(session: nox.Session, *extras: str) -> None:
    session.install(TORCH)
    session.install("-e", f".[{','.join(extras)}]")
    if "dev" in extras:
        session.install("--no-deps", *WITHOUT_DEPENDENCIES)
    if "bench" in extras:
        session.install("--no-deps", *FOR_BENCHMARKS)


@nox.session
def demo(session: nox.Session) -> None:
    """Export a pretrained sentence encoder and compare it with PyTorch. Arguments: a folder."""
    _install(session, "demo")
    session.run("python", "examples/sentence_encoder.py", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests. Arguments go to pytest."""
    _install(session, "dev", "demo")
    parallel = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
    session.run("python", "-m", "pytest", *parallel, *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Format and lint; nothing is changed."""
    session.install("ruff>=0.17,<0.18")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Static types of the package."""
    _install(session, "dev")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Check the generated pages, or write them with ``--write``, and build the site into site/."""
    _install(session, "dev", "docs")
    options = [] if "--write" in session.posargs else ["--check"]
    session.run("python", "-m", "docs.generate", *options)
    # --strict: a warning, such as a link that leads nowhere, is an error. The variable leaves out
    # an advertisement of the theme.
    session.run("mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure everything beside torch.onnx and write results, page and plots. Takes over an hour.

    Arguments go to every script: ``--quick`` takes minutes and writes nothing.
    """
    _install(session, "dev", "bench")
    with tempfile.TemporaryDirectory() as files:  # what is exported once serves the later ones
        for name in (
            "export_time",
            "scaling",
            "memory",
            "big_model",
            "graph_size",
            "latency",
        ):
            module = f"benchmarks.{name}"
            session.run("python", "-m", module, "--files", files, *session.posargs)


@nox.session
def zoo(session: nox.Session) -> None:
    """Export and compare 400 architectures; writes results and docs/models.md.

    Takes hours. Arguments go to ``python -m benchmarks.zoo``: ``--group timm``, ``--jobs 4``.
    """
    _install(session, "dev", "bench")
    session.run("python", "-m", "benchmarks.zoo", *session.posargs)
    session.run("python", "-m", "docs.generate")


@nox.session
def properties(session: nox.Session) -> None:
    """Ten times as many random programs as the tests run, from a random seed.

    Arguments go to pytest: ``--hypothesis-seed=7``.
    """
    _install(session, "dev", "demo")
    _random_programs(session, *session.posargs)


def _random_programs(session: nox.Session, *arguments: str) -> None:
    """Prints how many there were, from which seed, and what became of them."""
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/properties",
        f"--hypothesis-seed={random.randrange(2**32)}",
        *arguments,
        env={"HYPOTHESIS_PROFILE": "conformance"},
    )


@nox.session
def conformance(session: nox.Session) -> None:
    """Export and compare PyTorch's operator database; writes conformance/results. Takes long.

    Without arguments random programs and killed saves come first. Arguments go to
    ``python -m conformance``: ``--match sort``, ``--exporter torch``.
    """
    _install(session, "dev")
    if not session.posargs:
        _random_programs(session)
        crashes = ("python", "-m", "pytest", "tests/program/test_crashes.py")
        session.run(*crashes, env={"ONNX_AOT_KILLS": "100"})
    name = "torch_onnx" if "torch" in session.posargs else "onnx_aot"
    output = f"conformance/results/{name}.json"
    for group in ((), ("--dynamic",), ("--modules",)):
        command = ("python", "-m", "conformance", *group, "--output", output)
        session.run(*command, *session.posargs)
    if name == "onnx_aot":
        opsets = [option for opset in range(17, 26) for option in ("--opset", str(opset))]
        command = ("python", "-m", "conformance", *opsets, "--samples", "2")
        session.run(*command, "--output", "conformance/results/opsets.json", *session.posargs)
