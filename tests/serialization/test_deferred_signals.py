"""Signals wait until the end of a block, and handlers are as before."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from onnx_aot.serialization.deferred_signals import signals_deferred


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in signal.valid_signals()]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits() -> None:
    before, seen = handlers(), []

    def run() -> None:
        with signals_deferred(), signals_deferred():
            signal.raise_signal(signal.SIGINT)
            seen.append("after the signal")
        seen.append("after the block")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert seen == ["after the signal"]
    assert handlers() == before


@pytest.mark.usefixtures("interruptible")
def test_every_handler_runs_even_if_one_raises() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    def run() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert not seen

    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_error_of_the_block_is_kept() -> None:
    with pytest.raises(ValueError, match="of the block"), signals_deferred():
        raise ValueError("of the block")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that ends is a fork")
def test_a_signal_that_ends_the_process_ends_it_after_the_block() -> None:
    output, into = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with signals_deferred():
            signal.raise_signal(signal.SIGTERM)
            os.write(into, b"in the block")
        os.write(into, b", after it")
        os._exit(0)
    os.close(into)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert os.read(output, 99) == b"in the block"
    os.close(output)


def test_other_threads_change_no_handlers() -> None:
    before, seen = handlers(), []

    def run() -> None:
        with signals_deferred():
            seen.append(handlers())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
