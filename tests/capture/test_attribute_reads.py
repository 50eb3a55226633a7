"""Reads of modules' attributes are seen by all who watch, and by nobody afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from onnx_aot.capture.attribute_reads import reads_seen


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mode, self.other = 1, 2


def noting(reads: list[str], part: nn.Module) -> Callable[[int, str], None]:
    watched = id(vars(part))

    def see(place: int, name: str) -> None:
        if place == watched:
            reads.append(name)

    return see


def test_watchers_nest() -> None:
    part, outer, inner = Part(), list[str](), list[str]()
    see = noting(outer, part), noting(inner, part)
    with reads_seen({"mode"}, see[0]):
        with reads_seen({"mode", "other"}, see[1]):
            assert (part.mode, part.other) == (1, 2)
        assert (outer, inner) == (["mode"], ["mode", "other"])
        assert part.mode == 1
        assert outer == ["mode", "mode"]
    assert part.mode == 1
    assert (outer, inner) == (["mode", "mode"], ["mode", "other"])
    assert nn.Module.__getattribute__ is object.__getattribute__


def test_a_watcher_may_change_what_readers_get() -> None:
    part, outer = Part(), list[str]()

    def double(place: int, name: str) -> Callable[[Any], Any] | None:
        return (lambda value: value * 2) if name == "mode" else None

    with reads_seen({"mode"}, noting(outer, part)), reads_seen({"mode", "other"}, double):
        assert (part.mode, part.other) == (2, 2)
    assert outer == ["mode"]
    assert part.mode == 1


def test_only_torch_reads_dictionaries_unseen() -> None:
    part, outer, inner = Part(), list[str](), list[str]()
    see = noting(outer, part), noting(inner, part)
    with reads_seen((), see[0]), reads_seen((), see[1]):
        copy.copy(part)
        assert inner == outer
        seen = len(outer)
        part.__dict__["mode"]
        assert (len(outer), len(inner)) == (seen + 1, seen + 1)
        part.register_buffer("state", torch.zeros(1))  # torch looks into the dictionary
    assert (len(outer), len(inner)) == (seen + 1, seen + 1)


def test_a_missing_attribute_is_read_too() -> None:
    part, reads = Part(), list[str]()
    with reads_seen({"absent"}, noting(reads, part)):
        assert not hasattr(part, "absent")
    assert reads == ["absent"]
