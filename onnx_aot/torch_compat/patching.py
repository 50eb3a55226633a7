"""Patches torch, other packages and a model for the duration of a capture.

Each change is a row, a ``Patch``. ``applied`` makes the changes of a table in order and undoes them
in reverse order. Three things hold for every row:

* One thread captures at a time. ``run_exclusively`` holds the lock for a whole export; others wait.
* A replacement function only acts in the capturing thread. In every other thread, and after the
  capture, it calls the original, so code that runs, compiles or compares sizes at the same time
  sees torch unchanged. Flags and other plain values are seen by all threads.
* Each change is recorded before it is made, and undone by ``run_exclusively`` if an interrupt
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

from onnx_aot.torch_compat.call_forms import call_form
from onnx_aot.torch_compat.interrupts import interrupts_deferred
from onnx_aot.torch_compat.lookup import is_hidden
from onnx_aot.torch_compat.namespaces import namespaces_of_packages, reachable_namespaces
from onnx_aot.torch_compat.places import Attribute, Entry, Place, find_place

__all__ = [
    "Patch",
    "Settings",
    "applied",
    "in_capturing_thread",
    "keep_until_restored",
    "restored",
    "run_exclusively",
    "why_off",
]

_T = TypeVar("_T")
Function = Callable[..., Any]


@dataclasses.dataclass
class Settings:
    """Settings of a capture, by which rows decide whether and how they apply.

    Attributes:
        module: The model; None if torch is patched for another purpose than its capture.
        inputs: Its example inputs, ``(args, kwargs)``.
        boundary: The code of the function that captures. Frames outside of it belong to the user's
            call of this package.
        strict: Whether Dynamo analyses the model's bytecode.
        lazy: Whether FX may delay generating the source of a graph module until it is run.
        dynamic: Whether sizes are symbolic.
        small_sizes: Whether dimensions whose example size is 0 or 1 stay dynamic.
        from_zero: Whether the capture has to hold for empty tensors too; it takes a tenth longer.
        zero_ignored: Called if the capture uses an answer that holds for sizes above zero only;
            with True if that fixed a size, with False if it matters only for computed sizes.
        decided: Called with the kind, ShapeEnv and expression of each decision about sizes.
        larger_sizes: Whether guards on data-dependent sizes are answered as for sizes from 2 on.
        decides_slices: Whether bounds of slices that sizes do not decide are decided as for the
            example.
        both_sizes: Whether ``branches`` answers those of the model instead.
        validations: Finds, with ``find()``, and collects the questions about data that decide only
            whether code raises or writes; None if such questions are not answered.
        check_time: Called again and again; ends the capture by an exception when its time is over.
        branches: Answers questions about data, with ``answer()``, so that both ways of a branch are
            captured; None if such questions are not answered.
        loops: Lets Python loops over dynamic sizes run for three steps that stand for all; None if
            they are unrolled.
        reuse: Makes the calls of modules, with ``call()``: it traces them, or copies what was
            recorded; None if all are traced.
        keeps_log: Whether draft export may write its log file.
        found: What several rows look for, while rows are applied; see ``once``.
        off: Wanted rows whose place this release of torch does not have, with the reason; filled
            in by ``applied``.
        plain: Whether optional rows are left out.
        conversions: Modules in which ``int`` or ``float`` keeps sizes symbolic: ``(module, name)``.
        model_rows: Data for rows that change the model itself; see ``model_calls.py``.
    """

    module: Any = None
    inputs: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    boundary: types.CodeType | None = None
    strict: bool = False
    lazy: bool = True
    dynamic: bool = False
    small_sizes: bool = True
    from_zero: bool = False
    zero_ignored: Callable[[bool], None] | None = None
    decided: Callable[[str, Any, Any], None] | None = None
    larger_sizes: bool = False
    decides_slices: bool = False
    both_sizes: bool = False
    validations: Any = None
    check_time: Callable[[], None] | None = None
    branches: Any = None
    loops: Any = None
    reuse: Any = None
    keeps_log: bool = True
    plain: bool = False
    conversions: frozenset[tuple[str, str]] = frozenset()
    model_rows: Any = None
    found: dict[Function, Any] = dataclasses.field(default_factory=dict)
    off: dict[Patch, str] = dataclasses.field(default_factory=dict)

    def once(self, find: Callable[[Settings], _T]) -> _T:
        """Returns ``find(self)``, which is called once while rows are applied."""
        if find not in self.found:
            self.found[find] = find(self)
        result: _T = self.found[find]
        return result

    def namespaces(self) -> list[dict[str, Any]]:
        """Namespaces of the model's packages, which several rows look through."""
        return self.once(_find_namespaces)

    def reachable_namespaces(self) -> list[dict[str, Any]]:
        """These, and those of functions that the model's modules refer to."""
        return self.once(_find_reachable)


def _find_namespaces(settings: Settings) -> list[dict[str, Any]]:
    return namespaces_of_packages(settings.module)


def _find_reachable(settings: Settings) -> list[dict[str, Any]]:
    return reachable_namespaces(settings.module, settings.namespaces())


def _always(settings: Settings) -> bool:
    return True


@dataclasses.dataclass(frozen=True, eq=False)
class Patch:
    """One change: the place, its replacement, when it applies, and what is lost without it.

    ``tests/torch_compat`` has a case for every row, under its ``name``, that shows what happens
    without it.

    Attributes:
        name: The place, ``"module:Class.attribute"``, or a few words for places that depend on the
            model. A function of a module is also replaced where the model's code has imported it.
        make: ``make(original, settings)`` returns the replacement; ``ABSENT`` empties the place. A
            replacement function gets the original's arguments; if these do not fit its parameters,
            the original is called instead.
        without: One sentence on what happens on a release of torch that lacks the place.
        when: Tells which captures the row is for.
        places: Finds the places if ``name`` is not one.
        parameters: Names of the original's parameters that ``make`` relies on, in order. The row is
            off if they differ. Further parameters after them are accepted.
        behaves: Probes the original; the row is off if this returns False or raises.
        exists: Tests whether this torch has the places that ``places`` finds.
        imports: Whether the place's module is imported. If not, the row is for models that have
            imported it.
        optional: Whether a capture can do without it. Optional rows are left out of a second
            attempt when the first fails in the code of this package.
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
        """Returns the places that the row changes; none if this torch does not have them."""
        if is_hidden(self.name):
            return []
        if self.places is not None:
            return list(self.places(settings))
        place = find_place(self.name, self.imports)
        return [] if place is None else [place]

    def is_wanted(self) -> bool:
        """True if something is lost when no place is found."""
        if self.places is not None:
            return is_hidden(self.name) or not (self.exists is None or self.exists())
        return self.imports or self.name.partition(":")[0] in sys.modules


def why_off(patch: Patch, place: Place | None) -> str:
    """Returns the reason why a row cannot be applied to a place, or an empty string.

    Args:
        patch: The row.
        place: The place, or None if it was not found.
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


# --- the capturing thread ------------------------------------------------------------------------

_LOCK = threading.RLock()
_thread: int | None = None  # the capturing thread
_undo: list[tuple[object, Callable[[], Any]]] = []  # (application, undo), the last change last


_kept: list[object] = []  # alive until the export ends


def in_capturing_thread() -> bool:
    """True if the calling code runs in the thread that is capturing."""
    return _thread == threading.get_ident()


# Makes Dynamo call the function and take its result for a constant, as does
# torch.compiler.assume_constant_result, which would import Dynamo with this package.
in_capturing_thread._dynamo_marked_constant = True  # type: ignore[attr-defined]


def run_exclusively(work: Callable[[], _T]) -> _T:
    """Runs a function while no other thread captures.

    However it ends, torch and the model are restored.
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
                _kept.clear()
                _take_back(len(_undo))


@contextlib.contextmanager
def applied(patches: Iterable[Patch], settings: Settings) -> Iterator[None]:
    """Makes the changes of a table, in order, for the duration of the context.

    Rows that are not for these settings, or whose place this release of torch does not have, are
    skipped; ``find_capabilities`` lists the latter.
    """
    with _turn(), _one_application() as application:
        replaced: dict[int, tuple[Any, Patch]] = {}
        settings.found.clear()  # modules may have been imported since
        for patch in patches:
            if patch.when(settings) and not (settings.plain and patch.optional):
                _apply(application, patch, settings, replaced)
        if replaced and settings.module is not None:
            _apply_where_imported(application, replaced, settings)
        settings.found.clear()
        yield


@contextlib.contextmanager
def restored(undo: Callable[[], Any]) -> Iterator[None]:
    """Calls a function at the end of the context, in order among the changes that are undone.

    Args:
        undo: The function; it may be called again after an interrupt.
    """
    with _turn(), _one_application() as application:
        _undo.append((application, undo))
        yield


def keep_until_restored(value: object) -> None:
    """Keeps an object alive until the export ends, or a capture that is part of no export."""
    _kept.append(value)


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Waits until this thread may capture, unless it is capturing already."""
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
            _kept.clear()


@contextlib.contextmanager
def _one_application() -> Iterator[object]:
    application = object()
    try:
        yield application
    finally:
        # An interrupt may have left this generator suspended. By the time Python closes it, its
        # changes have been undone, and others may have been made.
        mine = [index for index, (other, _) in enumerate(_undo) if other is application]
        if mine:
            _take_back(len(_undo) - mine[0])


def _take_back(count: int) -> None:
    """Undoes the last changes. Raises an interrupt or a failure only when all are undone."""
    raised: BaseException | None = None
    remaining = len(_undo) - count
    while len(_undo) > remaining:
        try:
            while len(_undo) > remaining:
                _undo[-1][1]()
                _undo.pop()
        except Exception as error:  # this change cannot be undone; the others can
            raised = raised or error
            _undo.pop()
        except BaseException as interrupt:
            raised = interrupt
    if raised is not None:
        raise raised


_REASONS: dict[Patch, tuple[Any, str]] = {}


def _cached_why_off(patch: Patch, place: Place) -> str:
    """``why_off``, computed once per original."""
    if not patch.parameters and patch.behaves is None:
        return ""
    original = place.value()
    if isinstance(original, types.FunctionType):
        original = inspect.unwrap(original)  # a row before this one may have replaced it
    known = _REASONS.get(patch)
    if known is None or known[0] is not original:
        known = _REASONS[patch] = (original, why_off(patch, place))
    return known[1]


def _apply(
    application: object, patch: Patch, settings: Settings, replaced: dict[int, tuple[Any, Patch]]
) -> None:
    """Applies a row; adds functions of modules that it replaces, with the row, by their ids."""
    places = patch.found(settings)
    if not places and patch.is_wanted():
        settings.off[patch] = why_off(patch, None)
    for place in places:
        reason = _cached_why_off(patch, place)
        if reason:
            settings.off[patch] = reason
        else:
            original = place.value()
            if _is_function_of_module(place, original):
                replaced[id(original)] = (original, patch)
            _apply_change(application, patch, place, original, settings)


def _is_function_of_module(place: Place, value: Any) -> bool:
    in_module = isinstance(place, Attribute) and isinstance(place.owner, types.ModuleType)
    return in_module and isinstance(value, (types.FunctionType, types.BuiltinFunctionType))


def _apply_where_imported(
    application: object, replaced: dict[int, tuple[Any, Patch]], settings: Settings
) -> None:
    """Replaces functions in modules that imported them by ``from module import name``."""
    for names in settings.reachable_namespaces():
        if replaced.keys().isdisjoint(map(id, list(names.values()))):
            continue
        bound = [(name, id(value)) for name, value in names.items() if id(value) in replaced]
        for name, key in bound:
            original, patch = replaced[key]
            _apply_change(application, patch, Entry(names, name), original, settings)


def _apply_change(
    application: object, patch: Patch, place: Place, original: Any, settings: Settings
) -> None:
    own = place.own()
    replacement = patch.make(original, settings)
    if isinstance(replacement, _FUNCTIONS) and callable(original):
        replacement = _limited(original, replacement, checked=not settings.strict)
        if isinstance(place, Attribute) and _is_static(place):
            replacement = staticmethod(replacement)
    _undo.append((application, functools.partial(place.put, own)))
    place.put(replacement)


_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def _is_static(place: Attribute) -> bool:
    owner, name = place.owner, place.name
    classes = owner.__mro__ if isinstance(owner, type) else (owner,)
    held = (vars(cls)[name] for cls in classes if name in vars(cls))
    return isinstance(next(held, None), staticmethod)


_LIMITED: dict[tuple[Function, Function, bool], Function] = {}


def _limited(original: Function, replacement: Function, checked: bool) -> Function:
    """``_in_this_thread``, once for a replacement that is the same function in each capture."""
    is_made = getattr(replacement, "__closure__", ()) is not None
    if is_made or not isinstance(original, types.FunctionType):
        return _in_this_thread(original, replacement, checked)
    key = (original, replacement, checked)
    if key not in _LIMITED:
        _LIMITED[key] = _in_this_thread(original, replacement, checked)
    return _LIMITED[key]


def _in_this_thread(original: Function, replacement: Function, checked: bool) -> Function:
    """Makes a function that calls the replacement in the capturing thread, else the original.

    Args:
        original: The function that is replaced.
        replacement: Its replacement.
        checked: Whether arguments that do not fit the replacement go to the original. Dynamo can
            neither analyse that nor, in some places, hold the form in a closure.
    """
    form = call_form(replacement)
    if not checked or form.takes_all:

        def call(*args: Any, **kwargs: Any) -> Any:
            if not in_capturing_thread():
                return original(*args, **kwargs)
            return replacement(*args, **kwargs)

    else:
        takes, usual = form.takes, form.usual_count
        ident = threading.get_ident

        def call(*args: Any, **kwargs: Any) -> Any:
            # As in_capturing_thread, without calling it: torch calls some of these at every turn.
            if _thread == ident() and ((len(args) == usual and not kwargs) or takes(args, kwargs)):
                return replacement(*args, **kwargs)
            return original(*args, **kwargs)

    described = replacement if hasattr(replacement, "__wrapped__") else original
    return functools.update_wrapper(call, described)
