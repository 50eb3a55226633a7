"""Writes nodes in the forms that opsets before 17 have.

A model for such an opset is built in the forms of opset 17; see ``graph/opset_range``. A row of
``FORMS`` names an operator, the first opset that has its newer form, and a function that writes
the form before it, by other operators if need be. The legalizer calls the function for each node,
also for those that it makes itself, so that neither translations nor rules have to know these
opsets. ``check_form`` finds nodes that remain and that the opset lacks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from onnx_aot.targets.older_forms import arguments, layers, pointwise, products, scatter
from onnx_aot.targets.older_forms.check import check_form
from onnx_aot.targets.older_forms.leftovers import remove_unread_constants
from onnx_aot.targets.older_forms.rows import Form, NoOlderFormError, Row

__all__ = ["FORMS", "NoOlderFormError", "check_form", "older_forms", "remove_unread_constants"]

FORMS: tuple[Row, ...] = (
    *arguments.ROWS,
    *pointwise.ROWS,
    *layers.ROWS,
    *products.ROWS,
    *scatter.ROWS,
)


@functools.cache
def older_forms(opset: int) -> Mapping[str, tuple[Form, ...]]:
    """Returns the functions that write forms for an opset, by operator, in the order of rows."""
    found: dict[str, tuple[Form, ...]] = {}
    for row in FORMS:
        if opset < row.before:
            found[row.op_type] = (*found.get(row.op_type, ()), row.write)
    return found
