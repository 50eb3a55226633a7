"""Makes a CUDA-built torchvision or torchaudio importable beside a CPU-only torch.

The CUDA wheel's library needs ``libcudart``, ``libc10_cuda`` and ``libtorch_cuda``. Beside a CPU
torch these are absent, the native operators (nms, roi_align, ...) stay unregistered, and importing
the package fails; transformers imports torchvision. This module builds stub libraries that define
just the missing symbols, which no CPU code path calls, and loads them first. It does nothing if the
package's library loads by itself. Needs gcc, nm and readelf; writes only to a private temporary
folder.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from types import ModuleType

import torch

__all__ = ["load_torchaudio", "load_torchvision"]

# A variable, not a function: a caller reads a pointer from it.
_VARIABLES = frozenset({"_ZN3c104cuda20CUDACachingAllocator9allocatorE"})

# Names of the libraries that stubs replace in this process; the next package needs other symbols
# of the same libraries.
_STUBBED: set[str] = set()


@functools.cache
def load_torchvision() -> ModuleType | None:
    """Returns torchvision with its operators registered, or None if it is not installed."""
    return _load_package("torchvision", "_C*.so")


@functools.cache
def load_torchaudio() -> ModuleType | None:
    """Returns torchaudio with its operators registered, or None if it is not installed."""
    return _load_package("torchaudio", "lib/libtorchaudio*.so")


def _load_package(name: str, libraries: str) -> ModuleType | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    for library in glob.glob(os.path.join(spec.submodule_search_locations[0], libraries)):
        try:
            ctypes.CDLL(library)
        except OSError:
            _load_with_stubs(library)
    return importlib.import_module(name)


def _load_with_stubs(library: str) -> None:
    dynamic = _run_command("readelf", "-d", library)
    torch_libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    handles, missing = [], []
    for name in re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic):
        path = os.path.join(torch_libraries, name)
        if name in _STUBBED:
            missing.append(name)
            continue
        try:
            handles.append(ctypes.CDLL(path if os.path.exists(path) else name))
        except OSError:
            missing.append(name)
    stat = os.stat(library)
    identity = f"{library}:{stat.st_size}:{stat.st_mtime_ns}:{torch.__version__}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    folder = os.path.join(tempfile.gettempdir(), f"torchvision_cpu-{os.getuid()}-{key}")
    if not all(os.path.exists(os.path.join(folder, name)) for name in missing):
        _build_stubs(library, folder, missing, handles)
    for name in missing:
        ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
    _STUBBED.update(missing)
    ctypes.CDLL(library)


def _build_stubs(library: str, folder: str, missing: list[str], handles: list[ctypes.CDLL]) -> None:
    """Builds a stub for each missing library; symbols without a version go to libc10_cuda."""
    symbols: dict[str, list[str]] = {name: [] for name in missing}
    versioned = set()
    unversioned_home = next((name for name in missing if "c10_cuda" in name), missing[0])
    for line in _run_command("nm", "-D", "--undefined-only", library).splitlines():
        kind, symbol = line.split()[-2:]
        symbol, _, version = symbol.partition("@")
        version = version.lstrip("@")
        if any(_has_symbol(handle, symbol) for handle in handles):
            continue
        if version in symbols:  # cudart versions its symbols with its own SONAME
            symbols[version].append(symbol)
            versioned.add(version)
        elif kind == "U":
            symbols[unversioned_home].append(symbol)
    build = tempfile.mkdtemp(prefix="torchvision_cpu-build-")
    try:
        for name, wanted in symbols.items():
            _compile_stub(build, name, sorted(set(wanted)), name in versioned)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in missing:
            shutil.move(os.path.join(build, name), os.path.join(folder, name))
    finally:
        shutil.rmtree(build, ignore_errors=True)


def _compile_stub(build: str, name: str, symbols: list[str], versioned: bool) -> None:
    base = os.path.join(build, re.sub(r"\W", "_", name))
    with open(f"{base}.c", "w", encoding="ascii") as source:
        source.write(f"int {re.sub(r'[^A-Za-z0-9]', '_', name)}_stub;\n")
        for symbol in symbols:
            variable = symbol in _VARIABLES
            source.write(
                f"void* {symbol} = 0;\n" if variable else f"long {symbol}(void) {{ return 0; }}\n"
            )
    command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    if versioned:
        with open(f"{base}.map", "w", encoding="ascii") as script:
            script.write(f"{name} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script,{base}.map")
    subprocess.run([*command, "-o", os.path.join(build, name), f"{base}.c"], check=True)


def _has_symbol(handle: ctypes.CDLL, symbol: str) -> bool:
    try:
        handle[symbol]
    except AttributeError:
        return False
    return True


def _run_command(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
