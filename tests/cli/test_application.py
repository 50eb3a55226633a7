"""Help requires neither torch nor a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from onnx_aot.cli.application import application
from tests.cli.conftest import call, run

COMMANDS = (
    "bundle",
    "export",
    "report",
    "verify",
    "compare",
    "inspect",
    "view",
    "ops",
    "doctor",
    "sweep",
)


def test_every_command_is_listed(folder: Path) -> None:
    done = run(folder, "--help")
    assert done.returncode == 0
    assert done.stdout.isascii()
    for command in COMMANDS:
        assert f"  {command} " in done.stdout
    assert "--show-completion" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    done = call(command, "--help")
    assert done.exit_code == 0
    assert done.stdout.isascii()
    found = typer.main.get_command(application).commands[command]  # type: ignore[attr-defined]
    assert found.help.endswith(".")
    for parameter in found.params:
        assert parameter.help, parameter.name


def test_the_package_runs_as_a_module(folder: Path) -> None:
    assert "Usage: python -m onnx_aot [OPTIONS]" in run(folder, "--help").stdout


def test_no_command_shows_help() -> None:
    done = call()
    assert done.exit_code == 2
    assert "Usage:" in done.stdout + done.stderr
