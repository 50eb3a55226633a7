"""Tells the user's code from that of torch, Python and this package."""

from __future__ import annotations

import inspect
import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import onnx_aot
from onnx_aot.errors import SourceLocation
from onnx_aot.metadata.user_code import (
    add_caller,
    is_users_file,
    is_users_frame,
    source_range,
)
from onnx_aot.torch_compat import TORCH_FOLDER

STANDARD = sysconfig.get_paths()["stdlib"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/model.py", True),
        ("model.py", True),
        (f"{STANDARD}/functools.py", False),
        (f"{STANDARD}/site-packages/timm/layers.py", True),
        ("/usr/lib/python3/dist-packages/timm/layers.py", True),
        (f"{TORCH_FOLDER}nn/functional.py", False),
        (f"{Path(np.__file__).parent}/_core/numeric.py", False),
        (f"{Path(onnx_aot.__file__).parent}/export.py", False),
        ("<string>", True),
        ("<stdin>", True),
        ("<ipython-input-3>", True),
        ("<eval_with_key>.7", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_files(file: str, expected: bool) -> None:
    assert is_users_file(file) is expected


def frame_of(names: dict[str, Any], file: str = "<string>") -> FrameType:
    names["find_frame"] = sys._getframe
    exec(compile("frame = find_frame()", file, "exec"), names)
    found: FrameType = names["frame"]
    return found


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("__main__", True),
        ("my_models", True),
        ("torchvision.ops", True),
        ("torch.fx", False),
        ("dataclasses", False),
        ("onnx_aot.capture", False),
    ],
)
def test_code_without_a_file_belongs_to_its_module(module: str, expected: bool) -> None:
    assert is_users_frame(frame_of({"__name__": module})) is expected


def test_code_with_a_namespace_of_its_own() -> None:
    assert is_users_frame(frame_of({}))
    assert not is_users_frame(frame_of({}, "<eval_with_key>.3"))


@pytest.mark.parametrize(("function", "expected"), [(torch.vmap, False), (None, True)])
def test_code_with_a_namespace_of_its_own_that_torch_calls(function: Any, expected: bool) -> None:
    """Torch wraps the functions that it traces in a lambda without a module."""
    seen = []
    names = {"see": lambda: seen.append(is_users_frame(sys._getframe(1)))}
    exec("def call(x):\n    see()\n    return x", names)
    call: Any = names["call"]
    if function is None:
        layer = torch.nn.Identity()
        layer.forward = call  # type: ignore[method-assign]
        layer(torch.ones(2))
    else:
        function(call)(torch.ones(2))
    assert seen == [expected]


def line(file: str, number: int = 1) -> SourceLocation:
    return SourceLocation(file, number, "f")


OWN, INSTALLED, TYPED = (
    line("/me/model.py"),
    line("/venv/site-packages/timm/a.py"),
    line("<string>"),
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), "None"),
        ((OWN, INSTALLED), "/me/model.py:1 in f"),
        (
            (INSTALLED, TYPED, OWN, line("/me/main.py")),
            f"{INSTALLED}, called from /me/model.py:1 in f",
        ),
        ((INSTALLED, line("/venv/site-packages/timm/b.py")), str(INSTALLED)),
        ((TYPED, OWN), "<string>:1 in f, called from /me/model.py:1 in f"),
        ((TYPED,), "<string>:1 in f"),
    ],
)
def test_the_caller_of_a_line(lines: tuple[SourceLocation, ...], expected: str) -> None:
    assert str(add_caller(lines)) == expected


def test_code_without_a_file_that_has_source_needs_no_caller() -> None:
    linecache.cache["<made>"] = (5, None, ["x = 1"], "<made>")
    try:
        assert str(add_caller((line("<made>"), OWN))) == "<made>:1 in f"
    finally:
        del linecache.cache["<made>"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python does not tell before 3.11")
def test_the_place_of_an_expression() -> None:
    places = []

    def note() -> int:
        frame = sys._getframe(1)
        places.append(source_range(frame.f_code, frame.f_lasti))
        return 1

    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    _ = [note(), note()]
    assert places == [(line, line, 9, 15), (line, line, 17, 23)]
