"""Makes HTML pages of one file from the assets of a package."""

from __future__ import annotations

import functools
import json
from typing import Any

import jinja2

__all__ = ["Assets", "embed_json"]


class Assets:
    """The folder ``assets`` of a package, with templates that escape their arguments.

    Args:
        package: The package, such as ``onnx_aot.inspection.view``.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    @functools.cached_property
    def _environment(self) -> jinja2.Environment:
        loader = jinja2.PackageLoader(self._package, "assets")
        return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)

    def template(self, name: str) -> jinja2.Template:
        """Loads a template."""
        return self._environment.get_template(name)

    def read(self, name: str) -> str:
        """Reads the text of a file, such as a script or a style."""
        environment = self._environment
        assert environment.loader is not None
        return environment.loader.get_source(environment, name)[0]


def embed_json(data: Any) -> str:
    """Writes JSON for a script element, which nothing in it can end."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
