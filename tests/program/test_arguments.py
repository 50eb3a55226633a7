"""Calls with the arguments that the PyTorch module takes."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import onnx_aot
from onnx_aot.errors import InferenceError

A, B = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])


def subtract(x: Tensor, y: Tensor) -> Tensor:
    return x - y


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(((A, B), {}), id="captured by position"),
        pytest.param(((A,), {"y": B}), id="mixed"),
        pytest.param(((), {"y": B, "x": A}), id="captured by name"),
    ],
)
def test_positional_or_named(program: Any) -> None:
    args, kwargs = program
    exported = onnx_aot.export(subtract, args, kwargs=kwargs)
    assert torch.equal(exported(x=A, y=B)[0], A - B)
    assert torch.equal(exported(y=B, x=A)[0], A - B)
    assert torch.equal(exported(A, y=B)[0], A - B)
    assert torch.equal(exported(A, B)[0], A - B)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((A,), {}), ((A, B), {"x": A}), ((A, B), {"z": A}), ((A, B, A), {})]
)
def test_other_arguments_than_captured(args: Any, kwargs: Any) -> None:
    program = onnx_aot.export(subtract, (A, B))
    with pytest.raises(InferenceError, match=r"was captured with \(x, y\); it was called with"):
        program(*args, **kwargs)


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


def named(pair: Any) -> Tensor:
    return pair["a"] - pair["b"]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_entries_of_dicts_are_found_by_their_keys(kind: Any) -> None:
    program = onnx_aot.export(named, (kind(a=A, b=B),))
    assert torch.equal(program(kind(b=B, a=A))[0], A - B)
    assert torch.equal(program({"b": B, "a": A})[0], A - B)


def test_defaultdict() -> None:
    pair = collections.defaultdict(int, {"a": A, "b": B})
    program = onnx_aot.export(named, (pair,))
    assert torch.equal(program({"b": B, "a": A})[0], A - B)


def test_named_tuples() -> None:
    def forward(pair: Pair) -> Tensor:
        return pair.a - pair.b

    program = onnx_aot.export(forward, (Pair(A, B),))
    assert torch.equal(program(Pair(b=B, a=A))[0], A - B)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": A}, r"pair .*: dict of \['a'\] was given, it was dict of"),
        ({"a": A, "b": B, "c": A}, "was given, it was dict of"),
        ([A, B], "list of 2 was given, it was dict of"),
        (A, "Tensor was given, it was dict of"),
    ],
)
def test_containers_built_otherwise(given: Any, message: str) -> None:
    program = onnx_aot.export(named, ({"a": A, "b": B},))
    with pytest.raises(InferenceError, match=message):
        program(given)
