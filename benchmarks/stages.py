"""Observes the stages of an export through the log records of the package."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

__all__ = ["NAMES", "observe_stages", "seconds_of_stages"]

NAMES = ("capture", "fx_passes", "translate", "ir_passes", "legalize", "check", "save")


class _Observer(logging.Handler):
    def __init__(self, begin: Callable[[str], None], end: Callable[[str, float], None]) -> None:
        from onnx_aot.reporting.record import ExportRecord

        super().__init__()
        self.keys = {stage.name: key for key, stage in ExportRecord("", "").stages.items()}
        self.begin, self.end = begin, end

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args
        if not isinstance(arguments, tuple) or not arguments or arguments[0] not in self.keys:
            return
        key = self.keys[arguments[0]]
        if len(arguments) == 1:
            self.begin(key)
        else:
            self.end(key, arguments[1])


@contextlib.contextmanager
def observe_stages(
    begin: Callable[[str], None], end: Callable[[str, float], None]
) -> Iterator[None]:
    """Calls ``begin(stage)`` and ``end(stage, seconds)`` around stages of exports in the block."""
    from onnx_aot.pipeline.recording import logged_to

    with logged_to(_Observer(begin, end)):
        yield


@contextlib.contextmanager
def seconds_of_stages() -> Iterator[dict[str, float]]:
    """Yields the seconds per stage of the last export in the block, filled in as it runs."""
    seconds: dict[str, float] = {}
    with observe_stages(lambda stage: None, seconds.__setitem__):
        yield seconds
