"""Finds what the result of a row depends on: source files, versions of packages, other files."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from onnx_aot.errors import PACKAGE, InvalidOptionError, SweepError
from onnx_aot.sweep.rows import Row

__all__ = ["ALWAYS", "Dependencies", "hash_package"]

ALWAYS = ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy")
"""Distributions whose versions are part of every key."""

READ = 64 << 20
"""Bytes up to which the contents of a file count; of larger files, size and time of change do."""

STANDARD = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib")
)
INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders that hold installed packages, of this environment or of one that it includes."""


class Dependencies:
    """Looks up the dependencies of rows, each file and package once.

    Args:
        search: Folders that are searched for modules before the others.
        interpreters: The interpreter for each release of torch that has one of its own.
    """

    def __init__(self, search: tuple[str, ...] = (), interpreters: dict[str, str] | None = None):
        self._search = search
        self._interpreters = interpreters or {}
        self._modules: dict[str, dict[str, str]] = {}
        self._files: dict[str, tuple[str, frozenset[str]]] = {}

    def of(self, row: Row) -> dict[str, str]:
        """Returns versions and hashes by name."""
        found = {"onnx_aot": hash_package(), **_versions(self._interpreters.get(row.torch, ""))}
        for module in (row.task.partition(":")[0], *row.code):
            found |= self._of_module(module)
        for path in row.files:
            found[f"file:{path}"] = self._of_path(path)
        return found

    def _of_module(self, module: str) -> dict[str, str]:
        if module not in self._modules:
            self._modules[module] = self._walk(module)
        return self._modules[module]

    def _walk(self, module: str) -> dict[str, str]:
        """Hashes a module and those of the user that it imports; versions for all others."""
        found: dict[str, str] = {}
        pending, seen = [module], set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            path = self._find(name)
            if path is None:
                found |= _version_of(name.partition(".")[0])
                continue
            digest, imported = self._read(path, name)
            found[f"module:{name}"] = digest
            pending += imported
            if "." in name:
                pending.append(name.rpartition(".")[0])
        return found

    def _find(self, name: str) -> Path | None:
        """The source file of a module of the user; None if it is installed or does not exist."""
        top, *rest = name.split(".")
        if top == "onnx_aot" or top in sys.stdlib_module_names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(top, [*self._search, *sys.path])
        if spec is None:
            return None
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = importlib.machinery.PathFinder.find_spec(
                part, list(spec.submodule_search_locations)
            )
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        path = Path(os.path.realpath(spec.origin))
        if INSTALLED & set(path.parts) or str(path).startswith(STANDARD):
            return None
        return path

    def _read(self, path: Path, name: str) -> tuple[str, frozenset[str]]:
        if str(path) not in self._files:
            source = path.read_bytes()
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            imported = frozenset(_imports(source, package))
            self._files[str(path)] = hashlib.sha256(source).hexdigest()[:16], imported
        return self._files[str(path)]

    def _of_path(self, path: str) -> str:
        try:
            status = os.stat(path)
            if os.path.isdir(path):
                return _hash_files(sorted(p for p in Path(path).rglob("*") if p.is_file()))
            if status.st_size > READ:
                return f"{status.st_size} {status.st_mtime_ns}"
            return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
        except OSError as error:
            raise InvalidOptionError(
                f"the plan names the file {path}, which cannot be read: {error.strerror}. Correct "
                "the path, which is relative to the folder of the plan",
                code="OA801",
            ) from None


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yields the modules that a source imports anywhere; a source with errors imports none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            if base:
                yield base
                for alias in node.names:  # names that are no modules are not found
                    yield f"{base}.{alias.name}"


@functools.cache
def hash_package() -> str:
    """Hash of the source of onnx_aot and of its data files."""
    root = Path(PACKAGE)
    return _hash_files(sorted([*root.rglob("*.py"), *root.rglob("*.json")]), root)


def _hash_files(paths: list[Path], root: Path | None = None) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(root) if root else path).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


@functools.cache
def _version_of(top: str) -> dict[str, str]:
    if top in sys.stdlib_module_names:
        return {}
    found = {}
    for name in _distributions().get(top, ()):
        found[f"package:{name}"] = metadata.version(name)
    return found


VERSIONS = """
import platform, sys
from importlib import metadata
print("python", platform.python_version())
for name in sys.argv[1:]:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


@functools.cache
def _versions(interpreter: str) -> dict[str, str]:
    """Versions of Python and of the packages of every key, in an environment."""
    if interpreter:
        try:
            done = subprocess.run(
                [interpreter, "-c", VERSIONS, *ALWAYS], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise SweepError(
                f"the interpreter {interpreter} of the plan's environments does not run: {error}. "
                "Name the python of an environment with onnx-aot in it"
            ) from None
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())
    found = {"python": platform.python_version()}
    for name in ALWAYS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
