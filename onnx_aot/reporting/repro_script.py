"""Writes the script that repeats an export, with random inputs of the same shapes and types."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onnx_aot.torch_compat import OpOverload, OpOverloadPacket, overload_of

__all__ = ["inputs_as_python", "make_script", "source_of"]

NOT_REPEATED = frozenset(
    {"f", "report", "artifacts_dir", "profile", "dump_exported_program", "verbose"}
)
"""Arguments of ``export`` that concern files and messages of the first export only."""

READ_LIMIT = 1 << 16
"""Elements up to which the range of integer tensors is read; larger ones get 0 and 1."""

NOT_MADE_ANEW = (torch.jit.ScriptModule, torch.fx.GraphModule)
"""Classes whose modules cannot be made by calling the class."""

NATIVE_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
LIBRARY = tuple(sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "purelib", "platlib"))


class _UnknownError(Exception):
    """A value that cannot be written as Python; the message describes it."""


# --- what is noted while the export begins -------------------------------------------------------


def source_of(model: Any) -> Any:
    """Returns the class or function of a model, or code as text for a layer of torch.nn."""
    if not isinstance(model, torch.nn.Module):
        return model if inspect.isfunction(model) else type(model)
    kind = type(model)
    of_torch = kind.__module__.startswith("torch.nn.modules.")
    if of_torch and next(model.children(), None) is None:
        code = f"torch.nn.{model!r}"
        if _is_call(code):
            return code
    return kind


def _is_call(code: str) -> bool:
    """True if a text is a call with literal arguments, as the repr of most layers is."""
    try:
        call = ast.parse(code, mode="eval").body
        if not isinstance(call, ast.Call):
            return False
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            ast.literal_eval(argument)
    except (SyntaxError, ValueError):
        return False
    return True


def inputs_as_python(args: Any, kwargs: Mapping[str, Any] | None) -> str:
    """Returns Python lines that make inputs with the shapes and types of the example's.

    Integers are in the range of the example's, so that indices stay valid.
    """
    given = (args,) if isinstance(args, torch.Tensor) else args
    lines = []
    for name, value in (("args", given), ("kwargs", kwargs or {})):
        try:
            lines.append(f"{name} = {_as_python(value)}")
        except Exception as error:  # tensor subclasses may raise anything; the export goes on
            text = f"write here how {name} are made: there is {error}"
            lines.append(f"raise SystemExit({text!r})")
    return "\n".join(lines)


def _tensor_as_python(tensor: torch.Tensor) -> str:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise _UnknownError(f"a tensor of {tensor.dtype}, {tensor.layout}")
    shape, dtype = repr(tuple(tensor.shape)), tensor.dtype
    to = "" if tensor.device.type in ("cpu", "meta") else f".to({str(tensor.device)!r})"
    if dtype == torch.bool:
        return f"(torch.rand({shape}) < 0.5){to}"
    if dtype == torch.float32:
        return f"torch.randn({shape}){to}"
    if dtype in (torch.float64, torch.float16, torch.bfloat16) or dtype.is_complex:
        return f"torch.randn({shape}, dtype={dtype}){to}"
    if dtype.is_floating_point:
        return f"torch.randn({shape}).to({dtype}){to}"
    if dtype not in NATIVE_INTEGERS:
        return f"torch.randint(0, 2, {shape}).to({dtype}){to}"
    low, high = _range_of_values(tensor)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype}){to}"


def _range_of_values(tensor: torch.Tensor) -> tuple[int, int]:
    readable = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    if not readable or not 0 < tensor.numel() <= READ_LIMIT:
        return 0, 1
    wide = tensor.to(torch.int64)
    return int(wide.min()), min(int(wide.max()), 2**62)


# --- values as Python ----------------------------------------------------------------------------


def _as_python(value: Any, imports: dict[str, None] | None = None) -> str:
    """Returns a value as Python code.

    Args:
        value: A value of the inputs or options.
        imports: Collects the lines that the code needs before it; None: nothing may be imported.

    Raises:
        _UnknownError: The value cannot be written as Python.
    """
    if isinstance(value, torch.Tensor):
        return _tensor_as_python(value)
    if value is None or value is Ellipsis or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f"float({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.device)):
        return f"torch.{value!r}".replace("torch.torch.", "torch.")
    if type(value) in (tuple, list, set, frozenset, dict):
        return _container_as_python(value, imports)
    if isinstance(value, torch.export.Dim):
        return _dimension_as_python(value, imports)
    if isinstance(value, type(torch.export.Dim.AUTO)):
        hint = re.fullmatch(r"DimHint\((\w+)(?:, (.*))?\)", repr(value))
        if hint is not None:
            return f"torch.export.Dim.{hint[1]}" + (f"({hint[2]})" if hint[2] else "")
    target = overload_of(value)
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{target}"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if imports is not None and (inspect.isfunction(value) or inspect.isclass(value)):
        return _import_name(value, imports)
    raise _UnknownError(f"an object of {type(value).__module__}.{type(value).__qualname__}")


def _container_as_python(value: Any, imports: dict[str, None] | None) -> str:
    if isinstance(value, dict):
        pairs = (
            f"{_as_python(key, imports)}: {_as_python(item, imports)}"
            for key, item in value.items()
        )
        return f"{{{', '.join(pairs)}}}"
    items = ", ".join(_as_python(item, imports) for item in value)
    if isinstance(value, tuple):
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, list):
        return f"[{items}]"
    return f"{{{items}}}" if value else "set()"


def _dimension_as_python(dim: Any, imports: dict[str, None] | None) -> str:
    """Name of a ``Dim``, which an earlier line defines; for a derived one its expression."""
    root = getattr(dim, "root", dim)
    limits = [
        f", {side}={limit}"
        for side, limit in (("min", root.min), ("max", root.max))
        if isinstance(limit, int) and (side, limit) != ("min", 0)
    ]
    if imports is None:
        raise _UnknownError("a Dim")
    name = root.__name__
    imports[f"{name} = torch.export.Dim({name!r}{''.join(limits)})"] = None
    return str(dim.__name__)


def _import_name(value: Any, imports: dict[str, None]) -> str:
    """Name of a class or function, whose import is added to the lines before."""
    if value.__module__ == "builtins":
        return str(value.__name__)
    module = sys.modules.get(value.__module__)
    found: Any = module
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if module is None or found is not value or value.__module__ == "__main__":
        raise _UnknownError(f"{value.__qualname__}, {_describe_definition(value)}")
    file = getattr(module, "__file__", None)
    if file is not None and not os.path.abspath(file).startswith(LIBRARY):
        folder = os.path.dirname(os.path.abspath(file))
        depth = value.__module__.count(".") + (os.path.basename(file) == "__init__.py")
        for _ in range(depth):
            folder = os.path.dirname(folder)
        imports[f"sys.path.insert(0, {folder!r})"] = None
    imports[f"from {value.__module__} import {value.__qualname__.partition('.')[0]}"] = None
    return str(value.__qualname__)


def _describe_definition(value: Any) -> str:
    """Says where a class or function that cannot be imported is defined."""
    try:
        file, line = inspect.getsourcefile(value), inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return "which cannot be imported"
    return f"defined at {file}:{line}, which cannot be imported: paste it above"


# --- the script ----------------------------------------------------------------------------------


def make_script(
    source: Any, training: bool, inputs: str, asked: Mapping[str, Any], save: bool = False
) -> str:
    """Returns Python code that repeats an export.

    It is complete if the code can make the model: for functions, for classes without required
    arguments that can be imported, and for layers of torch.nn. Otherwise the script stops at the
    line that is to be filled in, and says so.

    Args:
        source: Result of ``source_of``.
        training: Whether the model was in training mode.
        inputs: Result of ``inputs_as_python``.
        asked: Arguments of ``export`` other than inputs, by name.
        save: Whether the script saves the model too.
    """
    imports: dict[str, None] = {}
    model = _model_lines(source, training, imports)
    arguments = ["model", "args", *['"repeated.onnx"'] * save, "kwargs=kwargs"]
    left_out = []
    for name, value in asked.items():
        if name in NOT_REPEATED:
            continue
        try:
            arguments.append(f"{name}={_as_python(value, imports)}")
        except _UnknownError as error:
            left_out.append(f"# left out: {name}, which has {error}")
    before = list(imports)
    dims = [line for line in before if " = torch.export.Dim(" in line]
    paths = [line for line in before if line.startswith("sys.path")]
    others = [line for line in before if line not in (*dims, *paths)]
    lines = [
        *(["import sys", ""] if paths else []),
        "import torch",
        "",
        "import onnx_aot",
        "",
        *[*paths, *others, *([""] if paths or others else [])],
        "torch.manual_seed(0)",
        *model,
        *inputs.splitlines(),
        *dims,
        *left_out,
        "program = onnx_aot.export(",
        *(f"    {argument}," for argument in arguments),
        ")",
        "print(program)",
    ]
    return "\n".join(lines) + "\n"


def _model_lines(source: Any, training: bool, imports: dict[str, None]) -> Sequence[str]:
    """Lines that make the model."""
    mode = "train" if training else "eval"
    if isinstance(source, str):
        return [f"model = {source}.{mode}()"]
    how = "write here how the model is made"
    is_module = inspect.isclass(source) and issubclass(source, torch.nn.Module)
    if not inspect.isfunction(source) and (not is_module or issubclass(source, NOT_MADE_ANEW)):
        return [f"raise SystemExit({f'{how}; it is an object of {source.__qualname__}'!r})"]
    try:
        name = _import_name(source, imports)
    except _UnknownError as error:
        return [f"raise SystemExit({f'{how}: it is {error}'!r})"]
    if inspect.isfunction(source):
        return [f"model = {name}"]
    signature = inspect.signature(source)
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if required or source.__module__.startswith("torch."):  # containers would be empty
        text = f"{how}: {name}{signature}"
        return [f"raise SystemExit({text!r})", f"model = {name}(...).{mode}()"]
    return [f"model = {name}().{mode}()"]
