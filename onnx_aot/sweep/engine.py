"""The interface of what runs rows: processes of this machine, or a cluster."""

from __future__ import annotations

from importlib import metadata
from typing import Protocol

from onnx_aot.errors import InvalidOptionError
from onnx_aot.sweep.plan import Plan
from onnx_aot.sweep.rows import Outcome, Row

__all__ = ["Engine", "interpreter_for", "is_installed"]


class Engine(Protocol):
    """Runs rows. It is used by one thread."""

    @property
    def description(self) -> str:
        """Name of the engine with its size, for people."""

    def has_room(self, row: Row) -> bool:
        """True if the row should be submitted now."""

    def submit(self, row: Row) -> None:
        """Starts a row, or queues it."""

    def collect(self) -> list[Outcome]:
        """Waits until rows have ended, and returns them; may return none after a while."""

    def close(self) -> None:
        """Ends all rows that still run."""


def is_installed(release: str) -> bool:
    """True if a row with this release of torch runs with the one of this process."""
    installed = metadata.version("torch")
    return release in ("", installed, installed.partition("+")[0])


def interpreter_for(plan: Plan, release: str) -> str:
    """Returns the interpreter with a release of torch; "" for that of this process.

    Raises:
        InvalidOptionError: The plan names none, and the release is not installed.
    """
    if is_installed(release):
        return ""
    named = plan.environments.get(release)
    if isinstance(named, str):
        return named
    installed = metadata.version("torch")
    raise InvalidOptionError(
        f"rows of the plan want torch {release}, and {installed} is installed. Name "
        f'the python of an environment that has it: [environments] "{release}" = '
        '"path/to/bin/python"; or use --ray, which installs requirements',
        code="OA802",
    )
