"""Records the user's functions in the stack traces of captured nodes, not ``forward`` alone.

Torch keeps the frames of functions called ``forward``, except those of code without a file. So a
node that a helper function makes would have the line that calls the helper, and one that a lambda
makes in a ``forward`` made by ``exec`` would have none. Calls that decorators hand on, of which
transformers has one or two per module, say nothing and are left out.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from onnx_aot.metadata.user_code import is_users_frame
from onnx_aot.torch_compat import (
    TORCH_FOLDER,
    Patch,
    Settings,
    in_capturing_thread,
    private,
)

__all__ = ["STACK_TRACES"]


_TAKES_ALL = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

# Kinds of frames
_OTHER = 0
_TORCH_FORWARD = 1
_USERS = 2
_HANDS_ON = 3  # the user's, but perhaps of a decorator that only calls the function in it


class _Line(traceback.FrameSummary):
    """A line that leads to nodes, and its text once that is made."""

    __slots__ = ("text",)
    text: str


class _Stack(traceback.StackSummary):
    """The lines of a node: the user's, and those of torch's functions called ``forward``."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **options: Any) -> str:
        """Returns the text of a line, which is the same for every node; from Python 3.11 on."""
        usual: Any = super()
        if options or not isinstance(frame_summary, _Line):
            return str(usual.format_frame_summary(frame_summary, **options))
        if not hasattr(frame_summary, "text"):
            frame_summary.text = usual.format_frame_summary(frame_summary)
        return frame_summary.text


class _Recorder:
    """Collects the lines that lead to the node that is being made.

    Args:
        boundary: The code of the function that captures. Frames outside of it are left out.
    """

    def __init__(self, boundary: CodeType | None) -> None:
        self._boundary = boundary
        # By the ids of codes, which are kept: the hash of a code is computed from all of its parts,
        # each time.
        self._kinds: dict[int, int] = {}
        self._codes: list[CodeType] = []
        self._lines: dict[tuple[int, int], _Line] = {}

    def collect(self, frame: FrameType | None) -> _Stack:
        """Returns the lines from the boundary to a frame, the outermost first."""
        lines = _Stack()
        boundary, known = self._boundary, self._kinds
        has_users = False
        while frame is not None:  # for each node, so this loop calls no function for a known frame
            code = frame.f_code
            if code is boundary:
                break
            kind = known.get(id(code))
            if kind is None:
                kind = known[id(code)] = _find_kind(frame)
                self._codes.append(code)
            if kind and not (kind == _HANDS_ON and has_users):
                lines.append(self._summarize(code, frame.f_lineno))
                has_users = has_users or kind != _TORCH_FORWARD
            frame = frame.f_back
        lines.reverse()
        return lines

    def _summarize(self, code: CodeType, line: int) -> _Line:
        found = self._lines.get((id(code), line))
        if found is None:
            found = _Line(code.co_filename, line, code.co_name)
            self._lines[id(code), line] = found
        return found


def _find_kind(frame: FrameType) -> int:
    code = frame.f_code
    if code.co_name == "forward" and code.co_filename.startswith((TORCH_FOLDER, "<eval_with_key>")):
        return _OTHER if code.co_filename in _list_machinery() else _TORCH_FORWARD
    if not is_users_frame(frame):
        return _OTHER
    is_closure = code.co_freevars and code.co_name != "forward"
    return _HANDS_ON if is_closure and code.co_flags & _TAKES_ALL == _TAKES_ALL else _USERS


def _list_machinery() -> Collection[str]:
    """Files of torch whose functions call modules, and are no modules."""
    files = private("torch.fx.experimental.symbolic_shapes:uninteresting_files")
    return () if files is None else files()


def _keep_user_frames(original: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    recorder = _Recorder(settings.boundary)

    def filter_frames(self: Any, user_stack_summary: Any) -> Any:
        if isinstance(user_stack_summary, _Stack):
            return user_stack_summary
        return recorder.collect(sys._getframe(1))

    return filter_frames


def _collect_user_frames(original: Any, settings: Settings) -> type[Any]:
    """Makes a class that collects the lines of a node, in place of all frames with their source."""
    recorder = _Recorder(settings.boundary)

    class UserTraceback:
        @staticmethod
        def extract(**options: Any) -> Any:
            if options or not in_capturing_thread():
                return original.extract(**options)
            return UserTraceback(recorder.collect(sys._getframe(1)))

        def __init__(self, lines: _Stack) -> None:
            self._lines = lines

        def summary(self) -> _Stack:
            return self._lines

    return UserTraceback


def _traces_python(settings: Settings) -> bool:
    return settings.boundary is not None and not settings.strict


STACK_TRACES: tuple[Patch, ...] = (
    Patch(
        "torch.fx.proxy:TracerBase._filter_traceback_frames",
        _keep_user_frames,
        "Errors and metadata name the line of forward that calls a function, not the line in it.",
        when=_traces_python,
        parameters="self, user_stack_summary",
    ),
    Patch(
        "torch.fx.proxy:CapturedTraceback",
        _collect_user_frames,
        "Captures take longer, because torch looks up the source of every frame for each node.",
        when=_traces_python,
        behaves=lambda original: hasattr(original, "extract") and hasattr(original, "summary"),
    ),
)
