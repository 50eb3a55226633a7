"""Methods of ``ONNXProgram`` that draw its model."""

from __future__ import annotations

import os
from typing import Any

import onnx_ir as ir

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization.atomic import check_destination, written_beside
from onnx_aot.serialization.weights import is_absent

__all__ = ["Viewable"]


class Viewable:
    """Methods of ``ONNXProgram`` that draw its model."""

    model: ir.Model

    def view(
        self, path: str | os.PathLike[str] = "graph.html", comparison: Any = None
    ) -> str | os.PathLike[str]:
        """Writes the model as a single HTML file that any browser shows offline.

        Modules, bodies of control flow and local functions are boxes that open on a click; a node
        shows its attributes, types, metadata, source lines and the statistics of its weights.

        Args:
            path: Path of the file; an existing file is replaced once the new one is complete.
            comparison: A result of ``compare``, whose differences are shown as colours.

        Returns:
            The path.

        Raises:
            InvalidOptionError: ``path`` is not a path.
            SaveError: The folder does not exist, the path is a folder, or writing fails. An
                existing file is untouched.
        """
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.page import render_page

        if not isinstance(path, (str, os.PathLike)):
            raise InvalidOptionError(f"cannot write a view to {path!r}; give a path", code="OA503")
        check_destination(path)
        page = render_page(collect(self.model, absent=is_absent, comparison=comparison))
        try:
            with written_beside(os.fspath(path)) as file:
                file.write(page.encode("utf-8"))
        except OSError as error:
            raise SaveError(
                f"could not write {path}: {error}. Nothing that was there has changed"
            ) from error
        return path

    def to_mermaid(self, depth: int = 1) -> str:
        """Returns the model as a Mermaid flowchart, which Markdown renderers draw.

        Args:
            depth: 1 draws the model's own modules as boxes, 2 opens these, and so on.

        Returns:
            The text, without the fence around it.

        Raises:
            InvalidOptionError: ``depth`` is not a positive number.
        """
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.mermaid import mermaid_text

        return mermaid_text(collect(self.model, absent=lambda tensor: True), depth)

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table of inputs and outputs, and the view."""
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.notebook import notebook_html

        return notebook_html(collect(self.model, absent=is_absent))
