"""Changes to torch, to other packages and to a model that last as long as a capture.

Each change is a row, a ``Patch``. ``applied`` makes the changes of a table in its order and takes
them back in the opposite order. Three things hold whatever a row does:

* One thread captures at a time. ``exclusively`` takes the lock for a whole export; others wait.
* A function that replaces another only acts in the thread that captures. In every other thread,
  and after the capture, calling it is calling the original, so code that runs, compiles or compares
  sizes meanwhile sees torch as it is. Flags and other plain values cannot tell who reads them.
* What was changed is noted before it is changed, and taken back by ``exclusively`` if an interrupt
  (Ctrl-C between any two instructions) kept ``applied`` from doing so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from onnx_aot.torch_compat.interrupts import interrupts_deferred
from onnx_aot.torch_compat.lookup import is_hidden
from onnx_aot.torch_compat.places import Attribute, Place, find_place

__all__ = [
    "Patch",
    "Settings",
    "applied",
    "exclusively",
    "in_capturing_thread",
    "restored",
    "why_off",
]

_T = TypeVar("_T")
Function = Callable[..., Any]


@dataclasses.dataclass
class Settings:
    """What a capture is made like; rows decide by it whether and how they apply.

    Attributes:
        module: The model; None where torch is changed for something else than its capture.
        inputs: Its example inputs, ``(args, kwargs)``.
        strict: Whether Dynamo analyses the model's bytecode.
        lazy: Whether FX may leave the source of graph modules to be generated when it is run.
        dynamic: Whether sizes are symbolic.
        small_sizes: Whether dimensions stay dynamic whose example size is 0 or 1.
        from_zero: Whether the capture has to hold for empty tensors too; it takes a tenth longer.
        zero_ignored: Called with whether a size was fixed, where the capture asks something that it
            answers for sizes above zero only.
        decided: Called with kind, ShapeEnv and expression of what is decided about sizes.
        larger_sizes: Whether questions about sizes of data are answered as for sizes from 2 on.
        keeps_log: Whether draft export may write its log file.
        off: Rows that were wanted and that this release of torch has no place for, with the reason;
            ``applied`` fills it in.
        plain: Whether rows that a capture can do without are left out.
        model_rows: What rows for the model itself need to know; see ``model_calls.py``.
    """

    module: Any = None
    inputs: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    strict: bool = False
    lazy: bool = True
    dynamic: bool = False
    small_sizes: bool = True
    from_zero: bool = False
    zero_ignored: Callable[[bool], None] | None = None
    decided: Callable[[str, Any, Any], None] | None = None
    larger_sizes: bool = False
    keeps_log: bool = True
    plain: bool = False
    model_rows: Any = None
    off: dict[Patch, str] = dataclasses.field(default_factory=dict)


def _always(settings: Settings) -> bool:
    return True


@dataclasses.dataclass(frozen=True, eq=False)
class Patch:
    """One change: what is replaced, by what, when, and what is lost where it cannot be.

    ``tests/torch_compat`` has a case for every row, under its ``name``, that shows what happens
    without it.

    Attributes:
        name: The place, ``"module:Class.attribute"``, or a few words for places that depend on the
            model.
        make: ``make(original, settings)`` gives what takes the original's place; ``ABSENT`` empties
            it. A function gets the original's arguments; where these do not fit its parameters,
            the original is called instead.
        without: What happens on a release of torch that lacks the place, in a sentence.
        when: Which captures it is for.
        places: Finds the places where ``name`` is not one.
        parameters: Names of the original's parameters that ``make`` relies on, in order. The row is
            off where they differ. More parameters behind them are accepted.
        behaves: A probe of what the original does; the row is off where it returns False or raises.
        exists: Whether this torch has what ``places`` looks for.
        imports: Whether the place's module is imported. If not, the row is for models that have
            imported it.
        optional: Whether a capture can do without it. Such rows are left out of a second attempt
            when the first fails in the code of this package.
    """

    name: str
    make: Callable[[Any, Settings], Any]
    without: str
    when: Callable[[Settings], bool] = _always
    places: Callable[[Settings], Iterable[Place]] | None = None
    parameters: str = ""
    behaves: Callable[[Any], bool] | None = None
    exists: Callable[[], bool] | None = None
    imports: bool = True
    optional: bool = True

    def found(self, settings: Settings) -> Sequence[Place]:
        """The places that it changes, none where this torch does not have them."""
        if is_hidden(self.name):
            return []
        if self.places is not None:
            return list(self.places(settings))
        place = find_place(self.name, self.imports)
        return [] if place is None else [place]

    def is_wanted(self) -> bool:
        """Whether something is lost if no place is found."""
        if self.places is not None:
            return is_hidden(self.name) or not (self.exists is None or self.exists())
        return self.imports or self.name.partition(":")[0] in sys.modules


def why_off(patch: Patch, place: Place | None) -> str:
    """The reason why a row cannot be applied to a place, or an empty string.

    Args:
        patch: The row.
        place: The place, or None where it was not found.
    """
    if place is None:
        return "it does not exist"
    original = place.value()
    if patch.parameters:
        try:
            present = list(inspect.signature(original).parameters)
        except (TypeError, ValueError):
            return "it is no longer a Python function"
        wanted = [name.strip() for name in patch.parameters.split(",")]
        if present[: len(wanted)] != wanted:
            return f"its parameters are ({', '.join(present)}), not ({patch.parameters})"
    if patch.behaves is not None:
        try:
            if not patch.behaves(original):
                return "it behaves differently"
        except Exception as error:
            return f"it fails: {type(error).__name__}: {error}"
    return ""


# --- who captures --------------------------------------------------------------------------------

_LOCK = threading.RLock()
_thread: int | None = None  # the one that captures
_undo: list[tuple[object, Callable[[], Any]]] = []  # by application, the last change last


def in_capturing_thread() -> bool:
    """Whether the calling code runs in the thread that captures at this moment."""
    return _thread == threading.get_ident()


# Dynamo calls the function where it meets it, and takes the answer for a constant. This is what
# torch.compiler.assume_constant_result sets, which would import Dynamo with this package.
in_capturing_thread._dynamo_marked_constant = True  # type: ignore[attr-defined]


def exclusively(work: Callable[[], _T]) -> _T:
    """Runs a function while no other thread captures.

    Whatever ends it, torch and the model are as they were before.
    """
    global _thread  # noqa: PLW0603
    with _LOCK:
        before = _thread
        try:
            _thread = threading.get_ident()
            with interrupts_deferred():
                return work()
        finally:
            _thread = before
            if before is None:
                _take_back(len(_undo))


@contextlib.contextmanager
def applied(patches: Iterable[Patch], settings: Settings) -> Iterator[None]:
    """Makes the changes of a table, in its order, for the duration.

    Rows that are not for these settings, or that this release of torch has no place for, are
    skipped; ``capabilities`` lists the latter.
    """
    with _turn(), _one_application() as application:
        for patch in patches:
            if patch.when(settings) and not (settings.plain and patch.optional):
                _apply(application, patch, settings)
        yield


@contextlib.contextmanager
def restored(undo: Callable[[], Any]) -> Iterator[None]:
    """Calls a function afterwards, in its turn among the changes that are taken back.

    Args:
        undo: It may be called again after it was interrupted.
    """
    with _turn(), _one_application() as application:
        _undo.append((application, undo))
        yield


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Waits for its turn to capture, unless this thread has it already."""
    global _thread  # noqa: PLW0603
    if in_capturing_thread():
        yield
        return
    with _LOCK:
        before, _thread = _thread, threading.get_ident()
        try:
            yield
        finally:
            _thread = before


@contextlib.contextmanager
def _one_application() -> Iterator[object]:
    application = object()
    try:
        yield application
    finally:
        # An interrupt may have ended this context before it came here. Then the changes are taken
        # back already, when Python at last closes the generator, and others may have been made.
        mine = [index for index, (other, _) in enumerate(_undo) if other is application]
        if mine:
            _take_back(len(_undo) - mine[0])


def _take_back(count: int) -> None:
    """Undoes the last changes. What interrupts this, or fails, is raised when all is done."""
    raised: BaseException | None = None
    remaining = len(_undo) - count
    while len(_undo) > remaining:
        try:
            while len(_undo) > remaining:
                _undo[-1][1]()
                _undo.pop()
        except Exception as error:  # this one cannot be undone; the others can
            raised = raised or error
            _undo.pop()
        except BaseException as interrupt:
            raised = interrupt
    if raised is not None:
        raise raised


_REASONS: dict[Patch, tuple[Any, str]] = {}


def _reason(patch: Patch, place: Place) -> str:
    """``why_off``, worked out once per original."""
    if not patch.parameters and patch.behaves is None:
        return ""
    original = place.value()
    known = _REASONS.get(patch)
    if known is None or known[0] is not original:
        known = _REASONS[patch] = (original, why_off(patch, place))
    return known[1]


def _apply(application: object, patch: Patch, settings: Settings) -> None:
    places = patch.found(settings)
    if not places and patch.is_wanted():
        settings.off[patch] = why_off(patch, None)
    for place in places:
        reason = _reason(patch, place)
        if reason:
            settings.off[patch] = reason
        else:
            _change(application, patch, place, settings)


def _change(application: object, patch: Patch, place: Place, settings: Settings) -> None:
    own, original = place.own(), place.value()
    replacement = patch.make(original, settings)
    if isinstance(replacement, _FUNCTIONS) and callable(original):
        replacement = _in_this_thread(original, replacement, checked=not settings.strict)
        if isinstance(place, Attribute) and _is_static(place):
            replacement = staticmethod(replacement)
    _undo.append((application, functools.partial(place.put, own)))
    place.put(replacement)


_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def _is_static(place: Attribute) -> bool:
    return isinstance(inspect.getattr_static(place.owner, place.name), staticmethod)


def _in_this_thread(original: Function, replacement: Function, checked: bool) -> Function:
    """A function that is the replacement in the capturing thread and the original elsewhere.

    Args:
        original: What is replaced.
        replacement: What replaces it.
        checked: Whether arguments that do not fit the replacement go to the original. Dynamo cannot
            analyse that.
    """
    signature = _limited(replacement) if checked else None

    def call(*args: Any, **kwargs: Any) -> Any:
        if not in_capturing_thread():
            return original(*args, **kwargs)
        if signature is not None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                return original(*args, **kwargs)
        return replacement(*args, **kwargs)

    described = replacement if hasattr(replacement, "__wrapped__") else original
    return functools.update_wrapper(call, described)


def _limited(function: Function) -> inspect.Signature | None:
    """The signature of a function that does not take every argument."""
    signature = inspect.signature(function, follow_wrapped=False)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    takes_all = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    return None if takes_all else signature
