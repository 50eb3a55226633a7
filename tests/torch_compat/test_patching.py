"""Patching mechanism: scope, threads and lifetime of replacements, and interruptions."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onnx_aot.torch_compat import Patch, Settings, applied, patching
from onnx_aot.torch_compat.patching import in_capturing_thread, restored, run_exclusively
from onnx_aot.torch_compat.places import Attribute
from tests.torch_compat.patch_rows import plus_one, row


class Library(types.SimpleNamespace):
    """Stands in for torch."""


def double(x: int) -> int:
    return 2 * x


@pytest.fixture
def library() -> Library:
    return Library(double=double, flag=False)


def on(library: Library, name: str, make: Callable[..., Any], **options: Any) -> Patch:
    return row(Attribute(library, name), make, **options)


def negative(x: int) -> int:
    return -x


def triple(x: int) -> int:
    return 3 * x


def test_a_replacement_without_state_follows_the_original(library: Library) -> None:
    """Its limit to the capturing thread is made once for each original."""
    patch = on(library, "double", lambda original, settings: negative)
    made = []
    for original in (double, triple, double):
        library.double = original
        with applied([patch], Settings()):
            made.append(library.double)
            assert library.double(2) == -2
            assert in_another_thread(lambda: library.double(2)) == original(2)
        assert library.double is original
    assert made[0] is made[2] is not made[1]


def in_another_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_it_is_replaced_for_the_duration_and_for_this_thread(library: Library) -> None:
    with applied([on(library, "double", plus_one)], Settings()):
        assert library.double(3) == 7
        assert in_another_thread(lambda: library.double(3)) == 6
        kept = library.double
        assert in_capturing_thread()
        assert in_another_thread(in_capturing_thread) is False
    assert library.double is double
    assert kept(3) == 6  # later calls use torch's own function
    assert not in_capturing_thread()


def test_arguments_that_do_not_fit_go_to_the_original(library: Library) -> None:
    def sum_of(x: int, y: int = 0, z: int = 0) -> int:
        return x + y + z

    def replaced(original: Any, settings: Settings) -> Any:
        return lambda x, y=0: 100

    library.sum_of = sum_of
    with applied([on(library, "sum_of", replaced)], Settings()):
        assert library.sum_of(1, 2) == 100
        assert library.sum_of(1, 2, 3) == 6
        assert library.sum_of(1, z=2) == 3


def test_a_second_row_sees_the_first_and_both_are_undone(library: Library) -> None:
    rows = [on(library, "double", plus_one), on(library, "double", plus_one)]
    with applied(rows, Settings()):
        assert library.double(3) == 8
        with applied(rows[:1], Settings()):
            assert library.double(3) == 9
        assert library.double(3) == 8
    assert library.double is double


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parameters": "self, x"}, "its parameters are (x), not (self, x)"),
        ({"behaves": lambda original: original(1) == 3}, "it behaves differently"),
        ({"behaves": lambda original: original()}, "it fails: TypeError: "),
    ],
)
def test_a_row_that_does_not_fit_is_off(
    library: Library, options: dict[str, Any], reason: str
) -> None:
    patch = on(library, "double", plus_one, **options)
    settings = Settings()
    with applied([patch], settings):
        assert library.double(3) == 6
    assert list(settings.off) == [patch]
    assert settings.off[patch].startswith(reason)


def test_plain_captures_leave_out_what_they_can_do_without(library: Library) -> None:
    rows = [
        on(library, "double", plus_one),
        on(library, "flag", lambda original, settings: True, optional=False),
    ]
    with applied(rows, Settings(plain=True)):
        assert (library.double(3), library.flag) == (6, True)
    assert library.flag is False


def test_an_error_while_changes_are_made_undoes_those_that_were(library: Library) -> None:
    def fails(original: Any, settings: Settings) -> Any:
        raise RuntimeError("no")

    rows = [on(library, "double", plus_one), on(library, "flag", fails)]
    with pytest.raises(RuntimeError, match="no"), applied(rows, Settings()):
        raise AssertionError("not reached")
    assert library.double is double
    assert patching._undo == []


class Stubborn:
    """A place that cannot be restored immediately."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error
        self.value_now = "before"

    def own(self) -> str:
        return self.value_now

    value = own

    def put(self, value: str) -> None:
        if value == "before" and self.error is not None:
            error, self.error = self.error, None
            raise error
        self.value_now = value


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_while_changes_are_undone_is_raised_after_all_are(
    library: Library, error: BaseException
) -> None:
    place = Stubborn(error)
    rows = [on(library, "double", plus_one), row(place, lambda original, settings: "after")]
    with pytest.raises(type(error)), applied(rows, Settings()):
        assert place.value_now == "after"
    assert library.double is double
    assert place.value_now == "before"


def test_what_cannot_be_undone_does_not_keep_the_rest(library: Library) -> None:
    place = Stubborn(ValueError("cannot be put back"))
    rows = [on(library, "double", plus_one), row(place, lambda original, settings: "after")]
    with pytest.raises(ValueError, match="cannot be put back"), applied(rows, Settings()):
        pass
    assert library.double is double
    assert patching._undo == []


def test_a_capture_that_was_left_open_is_undone_at_the_end_of_the_export(library: Library) -> None:
    contexts: list[contextlib.AbstractContextManager[None]] = []

    def work() -> None:
        contexts.append(applied([on(library, "double", plus_one)], Settings()))
        contexts[0].__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_exclusively(work)
    assert library.double is double
    # Python closes the context later, when another export may be running.
    with applied([on(library, "double", plus_one)], Settings()):
        contexts.clear()
        assert library.double(3) == 7
    assert library.double is double


def test_functions_that_restore_take_their_turn() -> None:
    calls: list[str] = []

    @contextlib.contextmanager
    def noting(name: str) -> Iterator[None]:
        with restored(lambda: calls.append(name)):
            yield

    with noting("outer"), noting("inner"):
        assert calls == []
    assert calls == ["inner", "outer"]


def test_one_thread_captures_at_a_time() -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.01)
        with guard:
            inside -= 1

    threads = [threading.Thread(target=run_exclusively, args=(work,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert run_exclusively(
        lambda: run_exclusively(in_capturing_thread)
    )  # a thread does not wait for itself
