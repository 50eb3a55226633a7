"""Records the lines of the user's code at which a capture decided about a size, for errors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType
from typing import Any

import torch

from onnx_aot import torch_compat
from onnx_aot.capture.sizes.piece_counts import find_count_condition
from onnx_aot.capture.sizes.replaceable_types import is_replaceable
from onnx_aot.errors import PACKAGE, SourceLocation
from onnx_aot.metadata.user_code import add_caller, is_users_file, is_users_frame
from onnx_aot.torch_compat import TORCH_FOLDER, pytree, symbolic_expression

__all__ = [
    "Decision",
    "DecisionLog",
    "Location",
    "answer_for_user",
    "as_places",
    "ask_for_user",
    "decided_at",
    "find_conversions",
    "find_user_frame",
    "is_ours",
    "is_question",
    "lines_of_error",
    "location_in_dynamo",
    "location_of_error",
    "with_line",
]

_COMPAT = os.path.join(PACKAGE, "torch_compat") + os.sep


@dataclasses.dataclass(frozen=True)
class Location(SourceLocation):
    """A line of code that belongs neither to torch nor to this package.

    Attributes:
        caller: As for all lines; also with the object whose method calls.
        owner: The object whose method the function is; None if unknown.
    """

    caller: Location | None = None
    owner: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The source of the line, or an empty string if it is not available."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def cited(self) -> str:
        """The source in backquotes, if it is available, and the location."""
        return f"`{self.text}` at {self}" if self.text else str(self)


@dataclasses.dataclass(frozen=True)
class Decision:
    """One assumption of the capture about symbolic sizes or values.

    Attributes:
        kind: ``"guard"``, ``"assumed"``, ``"undecided"``, ``"larger"`` or ``"validated"``,
            explained at ``torch_compat.DECISIONS``; ``"pieces"``, the condition under which a
            dimension is cut into the pieces that the user's line uses; or ``"both"``, a branch on
            data of which both sides are captured.
        expression: The condition that holds, over symbols; or the number that is needed.
        symbols: Per symbol its sources (``L['x'].size()[0]``) and its value in the example, or
            None for a data-dependent symbol.
        location: The user's line.
        direct: True if the user's line itself tests the size, as ``if x.shape[0] == 1`` does;
            False if an operator called there does.
        names: Names of the symbols in that line's function, if it has any.
        made_at: The lines at which data-dependent symbols were made.
        conversion: The user's module and ``int`` or ``float``, if that asked for the number, and
            may be replaced there.
        is_number: True if a number was read; False if a condition was tested.
        chooses: True if the user's line chooses by the condition, as ``if``, ``while``, ``and`` and
            ``max`` do, and does not only validate.
        validates: True if it only decides whether code raises an error or writes a message.
        about_slice: True if it is about the size of a slice whose bounds sizes do not decide.
        by_kernel: True if code in C++ asked, as that of operators does.
    """

    kind: str
    expression: Any
    symbols: Mapping[str, tuple[tuple[str, ...], int | None]]
    location: Location | None
    direct: bool
    names: Mapping[str, str]
    made_at: Mapping[str, Location]
    conversion: tuple[str, str] | None = None
    validates: bool = False
    is_number: bool = False
    chooses: bool = False
    about_slice: bool = False
    by_kernel: bool = False

    def holds(self, values: Mapping[str, int]) -> bool | None:
        """True if it holds for these values, with the example's values for all other symbols.

        None if that is unknown.
        """
        examples = {s: hint for s, (_, hint) in self.symbols.items() if hint is not None}
        return decided_at(self.expression, {**examples, **values})

    def describe_way(self, opposite: bool = False) -> str | None:
        """The expression, or its opposite, by the variables of the user's function.

        None if a symbol is in no variable.
        """
        expression = ~self.expression if opposite else self.expression
        return torch_compat.named_expression(expression, self.names)

    @property
    def text(self) -> str:
        """The expression as Python, with the names of the user's function."""
        shown = torch_compat.python_expression(self.expression, self.names)
        return re.sub(r"(\.\d+?)0+\b", r"\1", shown)  # 0.50000 is 0.5


class DecisionLog(list[Decision]):
    """Decisions of a capture about sizes, in order; ``seen`` adds one.

    Args:
        boundary: The code of the function that captures. Frames outside of it belong to the user's
            call of this package.
        is_validation: Tells whether the present question decides only about code that validates.
        converted: Called after a number was made of a size, with ``Decision.conversion``.
    """

    def __init__(
        self,
        boundary: CodeType,
        is_validation: Callable[[], bool],
        converted: Callable[[tuple[str, str]], None] | None = None,
    ) -> None:
        super().__init__()
        self._boundary, self._is_validation = boundary, is_validation
        self._converted = converted

    def seen(self, kind: str, env: Any, expression: Any) -> None:
        """Records one decision with the user's line; the callback for ``Settings.decided``.

        Args:
            kind: One of ``Decision.kind``.
            env: Torch's ShapeEnv.
            expression: The condition that holds, or the number that is needed.
        """
        if kind in ("both", "larger", "validated") and self and self[-1].kind == "undecided":
            self.pop()  # the same decision, recorded before it was answered
        asking = sys._getframe(1)
        frame, location = find_user_frame(asking, self._boundary)
        symbols = torch_compat.decision_symbols(env, expression)
        names: dict[str, str] = {}
        made_at: dict[str, Location] = {}
        if kind != "guard":
            names = {} if frame is None else _names_of_symbols(frame)
            for symbol, (sources, _) in symbols.items():
                made = (
                    None
                    if sources
                    else _innermost_of_users(torch_compat.creation_stack(env, symbol))
                )
                if made is not None:
                    made_at[symbol] = made
        direct = _asks_directly(asking, frame)
        chooses = _asks_for_truth(asking, frame) and is_question(expression)
        conversion = _find_conversion(asking, frame) if kind in ("guard", "undecided") else None
        validates = kind == "validated" or (
            (kind == "assumed" or (kind == "guard" and chooses)) and self._is_validation()
        )
        decision = Decision(
            *(kind, expression, symbols, location, direct, names, made_at),
            conversion=conversion,
            validates=validates,
            is_number=_reads_number(asking, frame),
            chooses=chooses and not validates,
            about_slice=kind == "undecided"
            and any(torch_compat.is_size_of_slice(env, symbol) for symbol in symbols),
            by_kernel=torch_compat.is_asked_by_cpp(asking),
        )
        self.append(decision)
        pieces = find_count_condition(asking, frame, expression) if kind == "guard" else None
        if pieces is not None:
            self.append(dataclasses.replace(decision, kind="pieces", expression=pieces))
        if kind == "guard" and conversion is not None and self._converted is not None:
            self._converted(conversion)

    def locate(self) -> Location | None:
        """The user's line that is running."""
        return find_user_frame(sys._getframe(1), self._boundary)[1]


def find_conversions(decisions: Iterable[Decision]) -> frozenset[tuple[str, str]]:
    """Returns the modules where ``int`` or ``float`` turned a size into a number."""
    return frozenset(d.conversion for d in decisions if d.conversion is not None)


def location_of_error(error: BaseException) -> Location | None:
    """Returns the user's innermost line in the traceback of an error."""
    return add_caller(lines_of_error(error))


def lines_of_error(error: BaseException) -> list[Location]:
    """Returns the user's lines in the traceback of an error, the innermost first."""
    places = []
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if is_users_frame(frame):
            owner = frame.f_locals.get("self")
            places.append(_locate_frame(frame, traceback.tb_lineno, owner))
        traceback = traceback.tb_next
    return places[::-1]


def location_in_dynamo(error: BaseException) -> Location | None:
    """Returns the user's innermost line of an error in a strict capture.

    A strict capture does not run the user's code, so the traceback does not have this line.
    """
    places = [Location(*frame) for frame in reversed(torch_compat.frames_in_dynamo(error))]
    return add_caller([place for place in places if is_users_file(place.file)])


def is_ours(error: BaseException) -> bool:
    """True if an error was raised by the code of this package itself, not by what it called."""
    traceback, file = error.__traceback__, ""
    while traceback is not None:
        file, traceback = traceback.tb_frame.f_code.co_filename, traceback.tb_next
    return file.startswith(PACKAGE)


def as_places(
    locations: Iterable[Location | None], model: torch.nn.Module | None = None
) -> tuple[SourceLocation, ...]:
    """Converts locations for errors: module paths replace the objects."""
    paths = {} if model is None else {id(part): path for path, part in model.named_modules()}
    places = [_as_place(location, paths) for location in locations if location is not None]
    return tuple(dict.fromkeys(places))


def _as_place(location: Location, paths: Mapping[int, str]) -> SourceLocation:
    caller = None if location.caller is None else _as_place(location.caller, paths)
    return SourceLocation(
        *(location.file, location.line, location.function, location.text),
        module=paths.get(id(location.owner), ""),
        caller=caller,
    )


def with_line(location: Location | None, indent: str = "      ") -> list[str]:
    """The source line and its location, as lines of a message."""
    if location is None:
        return []
    shown = [f"{indent}{location.text}"] if location.text else []
    return [*shown, f"{indent}at {location}"]


def find_user_frame(
    frame: FrameType | None, boundary: CodeType
) -> tuple[FrameType | None, Location | None]:
    """Returns the user's innermost frame between ``frame`` and the capture, with its location."""
    places: list[Location] = []
    innermost = None
    while frame is not None and frame.f_code is not boundary:
        if is_users_frame(frame):
            owner = frame.f_locals.get("self") if innermost is None else None
            innermost = innermost or frame
            places.append(_locate_frame(frame, frame.f_lineno, owner))
        frame = frame.f_back
    if innermost is None:  # Dynamo analyses the bytecode of the user's code without running it
        return None, _innermost_of_users(torch_compat.dynamo_stack())
    return innermost, add_caller(places)


def _locate_frame(frame: FrameType, line: int, owner: Any) -> Location:
    return Location(frame.f_code.co_filename, line, frame.f_code.co_name, owner=owner)


def _asks_directly(frame: FrameType | None, users: FrameType | None) -> bool:
    """True if only the arithmetic of symbols lies between the user's line and the decision.

    A call such as ``x.contiguous()`` asks from C++ how a tensor lies in memory; that is not direct.
    """
    if torch_compat.is_asked_by_cpp(frame):
        return False
    while frame is not None and frame is not users:
        file = frame.f_code.co_filename
        if not file.startswith(_COMPAT) and not torch_compat.is_arithmetic(file):
            return False
        frame = frame.f_back
    return frame is not None


def answer_for_user(condition: Any) -> bool:
    """Answers a question of torch's code, which counts as a choice of the user's line."""
    return bool(condition)


def ask_for_user(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function whose questions count as choices of the user's line."""
    return function(*args, **kwargs)


_FOR_USER = (answer_for_user.__code__, ask_for_user.__code__)


def _asks_for_truth(frame: FrameType | None, users: FrameType | None) -> bool:
    """True if the user's line itself asks for the truth of a condition; kernels ask otherwise.

    So it does if Python or a library but torch asks for it, as ``max(a, b, key=f)``, ``int(n > 8)``
    and ``np.max([n, 8])`` do. A strict capture does not run that line: Dynamo asks for it.
    """
    by_dynamo, asked = False, False
    while frame is not None and frame is not users:
        code = frame.f_code
        if asked and code in _FOR_USER:
            return True
        by_dynamo = by_dynamo or torch_compat.asks_in_dynamo(code)
        asked = code.co_name in _TRUTH or (asked and _passes_on(code.co_filename))
        frame = frame.f_back
    if frame is None:
        stack = torch_compat.dynamo_stack() if by_dynamo else []
        return bool(stack) and is_users_file(stack[-1].filename)
    return asked


_TRUTH = ("__bool__", "__int__")


def _passes_on(file: str) -> bool:
    """True if a file is of the arithmetic of symbols, or neither torch's nor this package's."""
    if file.startswith(_COMPAT) or torch_compat.is_arithmetic(file):
        return True
    return not file.startswith((TORCH_FOLDER, PACKAGE))


def _reads_number(frame: FrameType | None, users: FrameType | None) -> bool:
    """True if code between the user's line and the decision asks for the number of a size.

    A kernel that computes a shape may ask too; the operator then stays in the graph as it is.
    """
    asked = False
    while frame is not None and frame is not users:
        if torch_compat.runs_fake_kernels(frame.f_code.co_filename):
            return False
        asked = asked or frame.f_code.co_name in ("guard_int", "guard_float")
        frame = frame.f_back
    return asked


def _find_conversion(frame: FrameType | None, users: FrameType | None) -> tuple[str, str] | None:
    """Returns the module and builtin by which the user's code turned a size into a number."""
    called = ""
    while frame is not None and frame is not users:
        if not frame.f_code.co_filename.startswith(_COMPAT):
            called = frame.f_code.co_name
        if called == "__torch_function__":  # int(tensor)
            called = getattr(frame.f_locals.get("func"), "__name__", "")
        frame = frame.f_back
    if frame is None:
        return None
    name = {"__int__": "int", "__float__": "float"}.get(called)
    if called == "__index__":  # float calls it too, if the size is an integer
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        name = "float" if "float(" in line else None
    module = str(frame.f_globals.get("__name__"))
    if name is None or name in frame.f_globals or not is_replaceable(frame.f_globals, name):
        return None
    return module, name


def _innermost_of_users(stack: list[Any]) -> Location | None:
    places = [Location(f.filename, f.lineno or 0, f.name) for f in reversed(stack)]
    return add_caller([place for place in places if is_users_file(place.file)])


def _names_of_symbols(frame: FrameType) -> dict[str, str]:
    """Maps symbols to the expressions by which the local variables of a function hold them."""
    names: dict[str, str] = {}
    for variable, value in frame.f_locals.items():
        with contextlib.suppress(Exception):  # containers that cannot be flattened
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                shown = variable + pytree.keystr(path)
                if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                    names.setdefault(str(symbolic_expression(leaf)), shown)
                elif isinstance(leaf, torch.Tensor):
                    sizes: list[Any] = list(leaf.shape)
                    for axis, size in enumerate(sizes):
                        if isinstance(size, torch.SymInt):
                            symbol = str(symbolic_expression(size))
                            names.setdefault(symbol, f"{shown}.shape[{axis}]")
    return names


def is_question(expression: Any) -> bool:
    """True if an expression is a condition, not a number."""
    from sympy.logic.boolalg import Boolean

    return isinstance(expression, Boolean) and not expression.is_Symbol


def decided_at(expression: Any, values: Mapping[str, int]) -> bool | None:
    """True if an expression holds for these values of its symbols; None if that is unknown."""
    symbols = getattr(expression, "free_symbols", ())
    return _decide(expression, frozenset((s, values[s.name]) for s in symbols if s.name in values))


@functools.lru_cache(1 << 14)  # each attempt asks about nearly the same decisions, several times
def _decide(expression: Any, known: frozenset[tuple[Any, int]]) -> bool | None:
    import sympy

    try:
        decided = expression.xreplace({s: sympy.Integer(value) for s, value in known})
        return bool(decided) if getattr(decided, "is_Boolean", decided in (True, False)) else None
    except Exception:  # sympy cannot evaluate it
        return None
