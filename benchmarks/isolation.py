"""Runs a function in a process of its own, which is killed after a time limit."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["run_isolated"]


def run_isolated(
    function: Callable[..., Any], arguments: tuple[Any, ...], limit: float, preload: Sequence[str]
) -> tuple[Any, str, float]:
    """Calls a function in a forked process and discards what it prints.

    Args:
        function: Function of a module; its result is pickled. Of a generator, this is the last
            result that came in time.
        arguments: Its arguments, pickled too.
        limit: Wall-clock seconds after which the process is killed.
        preload: Modules that are imported once, in the process from which the others fork.

    Returns:
        The result, or None; the reason why there is none, or no further one, or an empty string;
        and the seconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call_and_send, args=(function, arguments, sender))
    process.start()
    sender.close()
    begun, result, ended, more = time.monotonic(), None, "", True
    try:
        while more:
            if receiver.poll(max(begun + limit - time.monotonic(), 0)):
                result, more = receiver.recv()
            else:
                ended, more = f"takes longer than {limit:g} s", False
    except EOFError:
        process.join()
        if process.exitcode != 0:
            ended = f"the process ended with exit code {process.exitcode}"
    process.kill()
    process.join()
    return result, ended, round(time.monotonic() - begun, 1)


def _call_and_send(function: Callable[..., Any], arguments: tuple[Any, ...], sender: Any) -> None:
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    result = function(*arguments)
    several = inspect.isgenerator(result)
    for one in result if several else (result,):
        sender.send((one, several))
