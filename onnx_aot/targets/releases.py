"""Reads the option ``target``: a runtime, or a release of one."""

from __future__ import annotations

import functools
import re
from importlib import metadata

from onnx_aot.errors import InvalidOptionError
from onnx_aot.targets.kernels import Kernels, list_releases, load_kernels

__all__ = ["RUNTIME", "find_kernels", "find_release", "is_target"]

RUNTIME = "onnxruntime"
"""ONNX Runtime's CPU provider, in the installed release."""

# Distributions that have the package onnxruntime; one of them is installed.
DISTRIBUTIONS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
)

_PINNED = re.compile(r"onnxruntime==(\d+\.\d+)(\.\d+)*")


def is_target(target: object) -> bool:
    """True if ``target`` names a runtime, and a release of it that the table has, if any."""
    if target == RUNTIME:
        return True
    pinned = _PINNED.fullmatch(target) if isinstance(target, str) else None
    return pinned is not None and pinned[1] in list_releases()


def find_release(target: str) -> str:
    """Returns the release that a target means, such as ``1.18``.

    Without a release, that is the installed one, or the nearest that the table has.

    Raises:
        InvalidOptionError: There is no such target.
    """
    releases = list_releases()
    if not is_target(target):
        raise InvalidOptionError(
            f"target is {target!r}; expected {RUNTIME!r}, which is the installed release, "
            f"'{RUNTIME}=={releases[0]}' to '{RUNTIME}=={releases[-1]}', or None",
            code="OA008",
        )
    pinned = _PINNED.fullmatch(target)
    return pinned[1] if pinned is not None else _find_installed_release()


@functools.cache
def _find_installed_release() -> str:
    releases = list_releases()
    for distribution in DISTRIBUTIONS:
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        found = _order(version)
        earlier = [release for release in releases if _order(release) <= found]
        return earlier[-1] if earlier else releases[0]
    return releases[-1]


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


def find_kernels(target: str) -> Kernels:
    """Returns the kernels of the release that a target means.

    Raises:
        InvalidOptionError: There is no such target.
    """
    return load_kernels(find_release(target))
