"""Places of every kind are restored."""

from __future__ import annotations

from typing import Any

from onnx_aot.torch_compat import Settings, applied
from onnx_aot.torch_compat.places import ABSENT, Added, Attribute, Contents, Entry, Hook, Members
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
