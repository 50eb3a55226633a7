"""Follows the fix that the message of a failing row offers, and says whether the row is right then.

The fixed model has to give the results of the model as it is; only then is it exported. A model in
float64 need not: it is exported to tell errors from rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import tempfile
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.field.case import FieldCase
from benchmarks.field.fixes import Fix, Line, Translation
from benchmarks.field.measure import empty_field_row, export_case
from benchmarks.ways import Subject, remove_dimensions
from benchmarks.zoo_models.measure import compare_outputs, shorten_reason
from onnx_aot.torch_compat import to_double

__all__ = ["describe_fix", "follow_fix"]


class DoubleCase(FieldCase):
    """A model and its inputs in float64."""

    def make(self) -> torch.nn.Module:
        return super().make().double()

    def sample(self, index: int, fixed: Sequence[str] = ()) -> tuple[tuple[Any, ...], Any]:
        return to_double(super().sample(index, fixed))


def follow_fix(case: FieldCase, fix: Fix) -> dict[str, Any]:
    """Changes a model or its request as a message says, in this process, and exports it.

    Returns:
        JSON: ``changed``, in words; the last ``stage``, and the ``reason`` why it is not right.
    """
    warnings.simplefilter("ignore")
    fixed = _change_case(case, fix)
    if fix.double:
        fixed = DoubleCase(**vars(fixed))
    result = {"changed": describe_fix(fix)}
    changed = "" if fix.double else _rewrite_lines(fixed, fix.lines)
    row = empty_field_row(fixed)
    if changed:
        return result | {"stage": row["stage"], "reason": f"changes it: {changed}"}
    args, kwargs = fixed.sample(0)
    shapes = fixed.dynamic_shapes
    model = fixed.make()
    for path in fix.scripted:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, torch.jit.script(model.get_submodule(path)))
    options = {**fixed.options, **_options_of(fix.translations)}
    subject = Subject(model, args, kwargs, shapes, False, "", options)
    with tempfile.TemporaryDirectory() as folder:
        program = export_case(subject, os.path.join(folder, "ours.onnx"), row)
        if program is not None:
            compare_outputs(fixed, subject, program, row)
    return result | {"stage": row["stage"], "reason": row["reason"]}


def _rewrite_lines(case: FieldCase, lines: Sequence[Line]) -> str:
    """Rewrites lines of packages; returns how the model then differs, or an empty string."""
    expected = [_run(case.make(), case, index) for index in range(2)]
    rewrite_lines(lines)
    found = [_run(case.make(), case, index) for index in range(2)]
    try:
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
    except AssertionError as error:
        return shorten_reason(error)
    return ""


def describe_fix(fix: Fix) -> str:
    """Returns what a fix changes, as a clause."""
    parts = []
    if fix.fixed:
        parts.append(f"{' and '.join(fix.fixed)} left out of dynamic_shapes")
    if fix.dynamic_shapes is not None:
        parts.append(f"`dynamic_shapes={fix.shown}`")
    parts += [f"`{name}={value!r}`" for name, value in fix.options.items()]
    for line in fix.lines:
        parts.append(f"`{line.old}` written as `{'; '.join(line.new.splitlines())}`")
    parts += [f"`{path}` compiled by `torch.jit.script`" for path in fix.scripted]
    parts += [f"a translation of `{made.operator}`" for made in fix.translations]
    if fix.double:
        parts.append("`model.double()` with inputs in float64")
    if fix.sizes is not None:
        parts.append(f"an example with {', '.join(f'{k} {v}' for k, v in fix.sizes[0].items())}")
    return "; ".join(parts)


def _change_case(case: FieldCase, fix: Fix) -> FieldCase:
    """The case with another request, options or sizes."""
    shapes = case.dynamic_shapes if fix.dynamic_shapes is None else fix.dynamic_shapes
    sizes = case.sizes if fix.sizes is None else fix.sizes
    kept = {name: sizes[0][name] for name in fix.fixed}
    return dataclasses.replace(
        case,
        dynamic_shapes=remove_dimensions(shapes, fix.fixed),
        sizes=(sizes[0], {**sizes[1], **kept}),
        options={**case.options, **fix.options},
    )


def _options_of(translations: Sequence[Translation]) -> dict[str, Any]:
    """The option that passes translations to an export; the package has been imported."""
    if not translations:
        return {}
    table = {}
    for made in translations:
        operator = functools.reduce(getattr, made.operator.split("."), torch.ops)
        table[operator] = pkgutil.resolve_name(made.function)
    return {"custom_translation_table": table}


def _run(model: torch.nn.Module, case: FieldCase, index: int) -> list[Any]:
    args, kwargs = case.sample(index)
    with torch.no_grad():
        return pytree.tree_leaves(model(*args, **kwargs))


def rewrite_lines(lines: Sequence[Line]) -> None:
    """Replaces lines in functions of imported packages.

    Raises:
        ValueError: A function does not have its line once.
    """
    for function in dict.fromkeys(line.function for line in lines):
        _rewrite_function(function, [line for line in lines if line.function == function])


def _rewrite_function(path: str, changes: Sequence[Line]) -> None:
    module_name, _, names = path.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = names.split(".")
    for each in parents:
        owner = getattr(owner, each)
    function = inspect.unwrap(inspect.getattr_static(owner, name))
    lines, first = inspect.getsourcelines(function)
    for change in changes:
        places = [i for i, text in enumerate(lines) if text.strip() == change.old]
        if len(places) != 1:
            raise ValueError(f"{path} has {change.old!r} {len(places)} times")
        before = lines[places[0]]
        indent = before[: len(before) - len(before.lstrip())]
        lines[places[0]] = textwrap.indent(change.new, indent) + "\n"
    source = textwrap.dedent("".join(lines))
    code = compile("\n" * (first - 1) + source, inspect.getfile(function), "exec")
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    setattr(owner, name, made[name])
