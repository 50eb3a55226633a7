"""Options of ``export`` that are refused, or accepted with advice, by name."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from onnx_aot.errors import InvalidOptionError, OnnxExporterWarning

__all__ = ["check_choice", "check_retired"]


class Retired(NamedTuple):
    """An option of earlier exporters: values that change nothing, and what to do instead."""

    harmless: Callable[[Any], bool]
    advice: str


def _mode(value: Any) -> str:
    """``TrainingMode.EVAL`` and ``"EVAL"`` give ``"EVAL"``."""
    return str(getattr(value, "name", value)).rpartition(".")[2].upper()


RETIRED: dict[str, Retired] = {
    "training": Retired(
        lambda value: _mode(value) in ("EVAL", "PRESERVE"),
        "call model.eval() or model.train() before exporting",
    ),
    "operator_export_type": Retired(
        lambda value: _mode(value) == "ONNX",
        "give translations of unknown operators in custom_translation_table",
    ),
    "do_constant_folding": Retired(lambda value: True, "use optimize=True or optimize=False"),
    "custom_opsets": Retired(
        lambda value: not value,
        "emit the operators in custom_translation_table with the domain and version you want",
    ),
    "export_modules_as_functions": Retired(
        lambda value: not value, "modules are exported inline; leave the option out"
    ),
    "autograd_inlining": Retired(
        bool,
        "autograd functions are always inlined; give a translation of a custom operator instead",
    ),
    "fallback": Retired(lambda value: True, "there is one exporter; leave the option out"),
}


def check_retired(given: Mapping[str, Any], accepted: list[str]) -> None:
    """Warns about retired options whose value changes nothing, refuses everything else.

    Raises:
        InvalidOptionError: An option is unknown, or retired and asks for what is not done.
    """
    for name, value in given.items():
        retired = RETIRED.get(name)
        if retired is None:
            close = difflib.get_close_matches(name, accepted, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise InvalidOptionError(
                f"export has no option {name!r}{hint} Options are {', '.join(accepted)}"
            )
        if not retired.harmless(value):
            raise InvalidOptionError(
                f"the option {name}={value!r} is retired and cannot be honoured: {retired.advice}"
            )
        warnings.warn(
            f"the option {name} is retired and has no effect: {retired.advice}",
            OnnxExporterWarning,
            stacklevel=4,
        )


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuses a value that is not one of the choices.

    Raises:
        InvalidOptionError: It is not.
    """
    if not any(value is choice or value == choice for choice in choices):
        shown = ", ".join(map(repr, choices))
        raise InvalidOptionError(f"{name} is {value!r}; it is one of {shown}")
