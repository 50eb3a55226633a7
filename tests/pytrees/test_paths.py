"""Input leaves: their paths, their names and the containers around them."""

from __future__ import annotations

import collections
from typing import Any

from onnx_aot.pytrees.paths import (
    children_of,
    count_leaves,
    is_named_tuple,
    is_registered,
    leaves_of,
    mirror_containers,
)

Pair = collections.namedtuple("Pair", ["left", "right"])
NESTED: dict[str, Any] = {"x": 1, "more": {"b": [2, (3,)], "a": Pair(4, None)}}


def test_leaves_have_paths_as_the_user_writes_them() -> None:
    found = list(leaves_of(NESTED))
    assert [(leaf.path, leaf.value) for leaf in found] == [
        ("x", 1),
        ("more['b'][0]", 2),
        ("more['b'][1][0]", 3),
        ("more['a'].left", 4),
        ("more['a'].right", None),
    ]
    assert [leaf.name for leaf in found][:3] == ["x", "more_b_0", "more_b_1_0"]


def test_containers_are_mirrored_around_other_leaves() -> None:
    mirrored = mirror_containers(NESTED, iter("vwxyz"))
    assert mirrored == {"x": "v", "more": {"b": ["w", ("x",)], "a": Pair("y", "z")}}
    assert type(mirrored["more"]["a"]) is Pair


def test_children_and_kinds_of_containers() -> None:
    assert children_of(3) is None
    assert children_of([5, 6]) == [(0, 5), (1, 6)]
    assert children_of({"b": 1, "a": 2}) == [("b", 1), ("a", 2)]
    assert children_of(Pair(1, 2)) == [("left", 1), ("right", 2)]
    assert is_named_tuple(Pair(1, 2))
    assert not is_named_tuple((1, 2))
    assert not any(map(is_registered, ([], {}, (), Pair(1, 2))))


def test_leaves_are_counted() -> None:
    assert count_leaves(NESTED) == 5
    assert count_leaves([]) == 0
    assert count_leaves(7) == 1
