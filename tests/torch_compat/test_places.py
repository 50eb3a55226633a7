"""Places of every kind are restored."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from onnx_aot.torch_compat import Settings, applied
from onnx_aot.torch_compat.places import (
    ABSENT,
    Added,
    Attribute,
    Contents,
    Entry,
    Hook,
    Members,
    find_place,
)
from tests.torch_compat.patch_rows import plus_one, row


def test_every_kind_of_place_is_put_back() -> None:
    table, members, added, hooks = {"kept": 1, "changed": 2}, {1}, [0], [1]

    class Handle:
        def remove(self) -> None:
            hooks.pop()

    def register(hook: Any) -> Handle:
        hooks.append(hook)
        return Handle()

    def empty(original: Any, settings: Settings) -> Any:
        return ABSENT

    rows = [
        row(Entry(table, "changed"), lambda original, settings: original + 1),
        row(Entry(table, "new"), lambda original, settings: 5),
        row(Entry(table, "kept"), empty),
        row(Members(members, frozenset({1})), empty),
        row(Members(members, frozenset({2, 3})), lambda original, settings: {2, 3}),
        row(Added(added.append, added.remove), lambda original, settings: 7),
        row(Hook(register), lambda original, settings: 8),
    ]
    with applied(rows, Settings()):
        assert table == {"changed": 3, "new": 5}
        assert members == {2, 3}
        assert added == [0, 7]
        assert hooks == [1, 8]
    assert table == {"kept": 1, "changed": 2}
    assert members == {1}
    assert added == [0]
    assert hooks == [1]


def test_a_place_is_found_anew_in_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        held = 1

    class Other:
        held = 2

    module = types.ModuleType("replaced_later")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert find_place("replaced_later:Owner.held") is None
    for owner in (Owner, Other, Owner):
        module.Owner = owner  # type: ignore[attr-defined]
        place = find_place("replaced_later:Owner.held")
        assert place == Attribute(owner, "held")
        assert find_place("replaced_later:Owner.held") is place
    del module.Owner.held  # type: ignore[attr-defined]
    assert find_place("replaced_later:Owner.held") is None


def test_contents_keep_the_dict() -> None:
    table = {"a": 1}
    with applied([row(Contents(table), lambda original, settings: original)], Settings()):
        table["b"] = 2
        del table["a"]
    assert table == {"a": 1}


def test_an_inherited_attribute_is_removed_again() -> None:
    class Base:
        def answer(self) -> int:
            return 1

    class Derived(Base):
        @staticmethod
        def fixed(x: int) -> int:
            return x

    def replaced(original: Any, settings: Settings) -> Any:
        return lambda self: original(self) + 1

    rows = [
        row(Attribute(Derived, "answer"), replaced),
        row(Attribute(Derived, "fixed"), plus_one),
    ]
    own = vars(Derived)["fixed"]
    with applied(rows, Settings()):
        assert Derived().answer() == 2
        assert Derived().fixed(3) == Derived.fixed(3) == 4
        assert Base().answer() == 1
    assert "answer" not in vars(Derived)
    assert vars(Derived)["fixed"] is own
