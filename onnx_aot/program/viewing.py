"""Pictures of a program: what ``ONNXProgram`` offers to look at it."""

from __future__ import annotations

import os
from typing import Any

import onnx_ir as ir

from onnx_aot.errors import InvalidOptionError, SaveError
from onnx_aot.serialization.atomic import check_destination, written_beside
from onnx_aot.serialization.weights import is_absent

__all__ = ["Viewable"]


class Viewable:
    """The methods of ``ONNXProgram`` that show its model."""

    model: ir.Model

    def view(
        self, path: str | os.PathLike[str] = "graph.html", comparison: Any = None
    ) -> str | os.PathLike[str]:
        """Writes the model as one HTML file that any browser shows, without network.

        Modules, bodies of control flow and local functions are boxes that open by a click; a node
        shows its attributes, types, metadata, source lines and its weights' statistics.

        Args:
            path: Where; an existing file is replaced when the new one is whole.
            comparison: What ``compare`` returned: its differences become colours.

        Returns:
            The path.

        Raises:
            InvalidOptionError: It is not a path.
            SaveError: The folder does not exist, the path is one, or the disk refuses. What was
                there before is untouched.
        """
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.page import render_page

        if not isinstance(path, (str, os.PathLike)):
            raise InvalidOptionError(f"cannot write a view to {path!r}; give a path")
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
        """The model as a mermaid flowchart, which Markdown renderers draw.

        Args:
            depth: 1 draws the model's own modules as boxes, 2 opens these, and so on.

        Returns:
            The text, without the fence around it.

        Raises:
            InvalidOptionError: ``depth`` is no positive number.
        """
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.mermaid import mermaid_text

        return mermaid_text(collect(self.model, absent=lambda tensor: True), depth)

    def _repr_html_(self) -> str:
        """What notebooks show: a table of inputs and outputs, and the view."""
        from onnx_aot.inspection.view.collect import collect
        from onnx_aot.inspection.view.notebook import notebook_html

        return notebook_html(collect(self.model, absent=is_absent))
