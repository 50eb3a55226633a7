"""Reads the option ``target``: a runtime, or a release of one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib import metadata

from onnx_aot.errors import InvalidOptionError
from onnx_aot.targets.kernels import (
    FILES,
    ONNX_RUNTIME,
    ONNX_RUNTIME_GPU,
    Kernels,
    list_releases,
    load_kernels,
)

__all__ = [
    "FAMILY",
    "ON_CUDA",
    "RUNTIME",
    "find_kernels",
    "find_release",
    "has_kernel",
    "is_target",
    "order",
]

RUNTIME = ONNX_RUNTIME
"""ONNX Runtime's CPU provider, in the installed release."""

ON_CUDA = ONNX_RUNTIME_GPU
"""ONNX Runtime's provider for CUDA."""

FAMILY = frozenset({ONNX_RUNTIME, ONNX_RUNTIME_GPU, "onnxruntime-web"})
"""Runtimes that are built from the sources of ONNX Runtime."""

# Distributions that have the package onnxruntime; one of them is installed.
DISTRIBUTIONS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
)

_TARGET = re.compile(r"([a-z-]+)(?:==(\d+\.\d+)(?:\.\d+)*)?")


def is_target(target: object) -> bool:
    """True if ``target`` names a runtime, and a release of it that its table has, if any."""
    return _parse(target) is not None


def _parse(target: object) -> tuple[str, str | None] | None:
    """The runtime that a target names, and its release, if it names one."""
    named = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if named is None or named[1] not in FILES:
        return None
    return (named[1], named[2]) if named[2] in (None, *list_releases(named[1])) else None


def _describe_targets() -> str:
    """The accepted targets, as a text for errors."""
    releases = list_releases()
    others = [runtime for runtime in FILES if runtime != RUNTIME]
    return (
        f"{RUNTIME!r}, which is the installed release, '{RUNTIME}=={releases[0]}' to "
        f"'{RUNTIME}=={releases[-1]}', {', '.join(map(repr, others))}, or None"
    )


def find_release(target: str) -> str:
    """Returns the release that a target means, such as ``1.18``.

    Without a release, that is the installed one of ONNX Runtime, or the nearest that the table has,
    and the newest that the table has of another runtime.

    Raises:
        InvalidOptionError: There is no such target.
    """
    return find_kernels(target).release


@functools.cache
def _find_installed_release() -> str:
    releases = list_releases()
    for distribution in DISTRIBUTIONS:
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        found = order(version)
        earlier = [release for release in releases if order(release) <= found]
        return earlier[-1] if earlier else releases[0]
    return releases[-1]


def order(release: str) -> tuple[int, ...]:
    """The first two numbers of a release, by which releases are ordered."""
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


def find_kernels(target: str) -> Kernels:
    """Returns the kernels of the release that a target means.

    Raises:
        InvalidOptionError: There is no such target.
    """
    parsed = _parse(target)
    if parsed is None:
        raise InvalidOptionError(
            f"target is {target!r}; expected {_describe_targets()}", code="OA008"
        )
    runtime, release = parsed
    if release is None:
        release = _find_installed_release() if runtime == RUNTIME else list_releases(runtime)[-1]
    return load_kernels(release, runtime)


def has_kernel(target: str | None) -> Callable[[str, int], bool]:
    """Returns a function that tells for which operators, in which opset, a target has kernels.

    The ONNX standard, None, counts as a runtime that has all.
    """
    return (lambda op_type, opset: True) if target is None else find_kernels(target).has_kernel
