"""Reads a plan, TOML, YAML, JSON or Python, and makes its rows.

    preload = ["transformers"]

    [limits]
    seconds = 300
    memory = "4 GB"

    [checks]
    verify = true

    [matrix]
    opset = [18, 20]
    dynamic = [true, false]

    [[models]]
    factory = "my_models:*"
    inputs = ["x:float32[batch,8]"]

``[limits]``, ``[checks]``, ``[matrix]``, ``[export]`` and ``[resources]`` hold for all models; a
model may have its own, which replaces single entries.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_aot.errors import InvalidOptionError
from onnx_aot.sweep import sources
from onnx_aot.sweep.rows import Limits, Row, as_text

__all__ = ["Plan", "load_plan", "parse_memory"]

SHARED = ("limits", "checks", "matrix", "export", "resources")
TOP = (*SHARED, "models", "rows", "preload", "environments", "runtime_env", "keep", "depends")
OF_MODEL = (
    *SHARED,
    *sources.KINDS,
    "exclude",
    "inputs",
    "dynamic_shapes",
    "options",
    "class",
    "name",
    "keep",
    "depends",
)
CHECKS = ("verify", "runtimes", "latency", "torch_onnx", "view", "report", "call")
LIMITS = ("seconds", "memory")
RESOURCES = ("cores", "gpus")
AXES = ("dynamic", "dtype", "torch")
EXPORT = {"opset": "opset_version"}
"""Names of the plan for arguments of ``export``; other axes are arguments of ``export`` itself."""

KEEP = ("never", "failed", "always")


@dataclasses.dataclass(frozen=True)
class Plan:
    """Rows to run, and how their processes are made.

    Attributes:
        rows: The rows, in order.
        preload: Modules that are imported once, before the processes of the rows are forked.
        environments: For a release of torch the interpreter that has it, or a list of requirements
            that Ray installs.
        runtime_env: Ray's ``runtime_env`` of all rows.
        folder: Folder that paths are relative to, and in which modules are found.
        name: What the page calls it.
    """

    rows: tuple[Row, ...]
    preload: tuple[str, ...] = ()
    environments: Mapping[str, str | Sequence[str]] = dataclasses.field(default_factory=dict)
    runtime_env: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    folder: str = ""
    name: str = "plan"

    @property
    def imported(self) -> tuple[str, ...]:
        """Modules to import before the first row: those of the plan, and what exports need."""
        exports = any(row.task == Row.task for row in self.rows)
        return (*self.preload, *(["onnx_aot.sweep.warm"] if exports else []))

    @property
    def search(self) -> tuple[str, ...]:
        """Folders in which modules are found before those that are installed."""
        return tuple(dict.fromkeys((os.getcwd(), self.folder or os.getcwd())))


def load_plan(plan: Plan | Mapping[str, Any] | str | os.PathLike[str]) -> Plan:
    """Reads a plan.

    Args:
        plan: Path of a file ``.toml``, ``.yaml``, ``.json`` or ``.py``; ``package.module:name`` of
            a plan in Python, or of a function that returns one; or the contents as a mapping. A
            Python file names its plan ``PLAN``, or has a function ``plan``.

    Raises:
        InvalidOptionError: There is no such file, or something in it is not understood.
    """
    if isinstance(plan, Plan):
        found = plan
    elif isinstance(plan, Mapping):
        found = _read(plan, os.getcwd(), "plan")
    else:
        found = _load_named(os.fspath(plan))
    names = [row.name for row in found.rows]
    twice = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
    if twice:
        raise InvalidOptionError(
            f"the plan has {len(twice)} names twice, such as {twice[0]!r}. Give one of the models "
            'a name = "..."',
            code="OA801",
        )
    if not names:
        raise InvalidOptionError(
            "the plan has no rows. Add an entry [[models]] to it", code="OA801"
        )
    return found


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _load_named(path: str) -> Plan:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isfile(path):
        if ":" in path and not path.endswith((".toml", ".yaml", ".yml", ".json", ".py")):
            return _from_python(path)
        raise InvalidOptionError(
            f"there is no plan {path}. Give a file .toml, .yaml, .json or .py, or "
            "package.module:name",
            code="OA801",
        )
    suffix = Path(path).suffix
    name = Path(path).stem
    if suffix == ".py":
        return _from_file(path, folder)
    try:
        content = _parse(Path(path).read_text(encoding="utf-8"), suffix)
    except ValueError as error:  # also of TOML and JSON
        raise InvalidOptionError(f"the plan {path} cannot be read: {error}", code="OA801") from None
    if not isinstance(content, Mapping):
        raise InvalidOptionError(
            f"the plan {path} is not a mapping with an entry models", code="OA801"
        )
    return _read(content, folder, name)


def _parse(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        return tomllib.loads(text)
    if suffix in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from None
    if suffix == ".json":
        return json.loads(text)
    raise ValueError(f"its name ends in {suffix!r}; known are .toml, .yaml, .json and .py")


def _from_file(path: str, folder: str) -> Plan:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("PLAN", "plan"):
        if hasattr(module, name):
            return _from_value(getattr(module, name), folder, Path(path).stem)
    raise InvalidOptionError(
        f"{path} has no plan. Assign one to PLAN, or write a function plan() that returns one",
        code="OA801",
    )


def _from_python(reference: str) -> Plan:
    from onnx_aot.integrations.subjects import look_up

    return _from_value(look_up(reference), os.getcwd(), reference)


def _from_value(value: Any, folder: str, name: str) -> Plan:
    made = value() if callable(value) else value
    if isinstance(made, Plan):
        return dataclasses.replace(made, folder=made.folder or folder)
    if isinstance(made, Mapping):
        return _read(made, folder, name)
    rows = tuple(made) if isinstance(made, Sequence) and not isinstance(made, str) else ()
    if not rows or not all(isinstance(row, Row) for row in rows):
        raise InvalidOptionError(
            f"{name} is a {type(made).__name__}; expected a Plan, a mapping with an entry models, "
            "or a list of Row",
            code="OA801",
        )
    return Plan(rows, folder=folder, name=name)


# --- contents ------------------------------------------------------------------------------------


def _read(content: Mapping[str, Any], folder: str, name: str) -> Plan:
    _check_names(content, TOP, "the plan")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    rows: list[Row] = []
    models = content.get("models", [])
    if not isinstance(models, Sequence) or isinstance(models, str):
        raise InvalidOptionError(
            "models in the plan is not a list. Write [[models]] in TOML", code="OA801"
        )
    for number, model in enumerate(models, 1):
        if not isinstance(model, Mapping):
            raise InvalidOptionError(
                f"entry {number} of models in the plan is not a mapping", code="OA801"
            )
        rows += _rows_of(model, content, folder, f"entry {number} of models in the plan")
    rows += [_task_row(row, content) for row in content.get("rows", [])]
    return Plan(
        tuple(rows),
        tuple(content.get("preload", ())),
        _environments(content.get("environments", {}), folder),
        content.get("runtime_env", {}),
        folder,
        name,
    )


def _environments(given: Mapping[str, Any], folder: str) -> dict[str, str | list[str]]:
    """Interpreters with absolute paths; requirements as they are."""
    found: dict[str, str | list[str]] = {}
    for release, value in given.items():
        if isinstance(value, str):
            found[str(release)] = os.path.abspath(os.path.join(folder, os.path.expanduser(value)))
        else:
            found[str(release)] = list(value)
    return found


def _rows_of(
    model: Mapping[str, Any], plan: Mapping[str, Any], folder: str, where: str
) -> list[Row]:
    _check_names(model, OF_MODEL, where)
    kinds = [kind for kind in sources.KINDS if kind in model]
    kind = "checkpoint" if "checkpoint" in kinds else kinds[0] if kinds else ""
    if not kind or set(kinds) - {kind, "factory"} or (len(kinds) > 1 and kind != "checkpoint"):
        raise InvalidOptionError(
            f"{where} names {' and '.join(kinds) or 'no model'}. Give one of "
            f"{', '.join(sources.KINDS)}; a checkpoint also has the factory of its model",
            code="OA801",
        )
    if kind == "checkpoint" and "factory" not in model:
        raise InvalidOptionError(
            f"{where} has a checkpoint, but no factory that makes its model", code="OA801"
        )
    shared = {name: {**plan.get(name, {}), **model.get(name, {})} for name in SHARED}
    _check_names(shared["checks"], CHECKS, f"checks of {where}")
    patterns = model[kind] if isinstance(model[kind], (list, tuple)) else [model[kind]]
    names = dict.fromkeys(n for p in patterns for n in sources.expand(kind, p, folder))
    for excluded in model.get("exclude", ()):
        for out in sources.expand(kind, excluded, folder):
            names.pop(out, None)
    if model.get("name") and len(names) > 1:
        raise InvalidOptionError(
            f"{where} has one name for {len(names)} models. Leave it out", code="OA801"
        )
    rows = []
    for name in names:
        described = {"kind": kind, "name": name}
        described |= {key: model[key] for key in ("options", "class") if key in model}
        if kind == "checkpoint":
            described["factory"] = model["factory"]
        shown = model.get("name") or _shown_name(kind, name, folder)
        rows += _with_options(shown, described, model, plan, shared)
    return rows


def _shown_name(kind: str, name: str, folder: str) -> str:
    if kind == "factory":
        return name
    if kind in ("timm", "torchvision"):
        return f"{kind}/{name}"
    path = Path(os.path.relpath(name, folder))
    return str(path.parent if path.name == "config.json" else path.with_suffix(""))


def _with_options(
    shown: str,
    described: dict[str, Any],
    model: Mapping[str, Any],
    plan: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> list[Row]:
    """A row for each combination of options."""
    matrix = {
        axis: values if isinstance(values, (list, tuple)) else [values]
        for axis, values in shared["matrix"].items()
    }
    several = [axis for axis, values in matrix.items() if len(values) > 1]
    depends = tuple(model.get("depends", plan.get("depends", ())))
    rows = []
    for values in itertools.product(*matrix.values()):
        options = dict(zip(matrix, values, strict=True))
        export = {**shared["export"]}
        for axis, value in options.items():
            if axis not in AXES:
                export[EXPORT.get(axis, axis)] = None if value == "none" else value
        ending = ",".join(f"{axis}={as_text(options[axis])}" for axis in several)
        settings = {
            "model": described,
            "inputs": list(model.get("inputs", ())),
            "dynamic_shapes": model.get("dynamic_shapes"),
            "dynamic": options.get("dynamic"),
            "dtype": options.get("dtype"),
            "export": export,
            "checks": shared["checks"],
        }
        kind, name = described["kind"], described["name"]
        calls = [call.partition(":")[0] for call in shared["checks"].get("call", ())]
        made = Row(
            name=f"{shown}[{ending}]" if ending else shown,
            settings=settings,
            model=shown,
            options=options,
            code=(*sources.code_of(kind, name, described.get("factory", "")), *calls),
            files=(*sources.files_of(kind, name), *depends),
            torch=str(options.get("torch") or ""),
        )
        rows.append(_with_resources(made, shared, model.get("keep", plan.get("keep", "never"))))
    return rows


def _with_resources(row: Row, shared: Mapping[str, Any], keep: str) -> Row:
    limits, resources = shared.get("limits", {}), shared.get("resources", {})
    _check_names(limits, LIMITS, "limits")
    _check_names(resources, RESOURCES, "resources")
    if keep not in KEEP:
        raise InvalidOptionError(
            f"keep = {keep!r} in the plan is not one of {', '.join(KEEP)}", code="OA801"
        )
    memory = limits.get("memory")
    return dataclasses.replace(
        row,
        limits=Limits(
            _positive("seconds", limits.get("seconds", Limits.seconds)),
            None if memory is None else parse_memory(memory),
        ),
        cores=int(_positive("cores", resources.get("cores", 1))),
        gpus=float(resources.get("gpus", 0)),
        keep=keep,
    )


def _task_row(given: Mapping[str, Any] | Row, plan: Mapping[str, Any]) -> Row:
    """A row that calls a task of the user."""
    if isinstance(given, Row):
        return given
    known = ("name", "task", "settings", "options", "model", "limits", "resources", "code", "files")
    _check_names(given, known, "an entry of rows in the plan")
    if "name" not in given or "task" not in given:
        raise InvalidOptionError(
            "an entry of rows in the plan needs a name and a task", code="OA801"
        )
    shared = {n: {**plan.get(n, {}), **given.get(n, {})} for n in ("limits", "resources")}
    row = Row(
        name=given["name"],
        task=given["task"],
        settings=given.get("settings", {}),
        options=given.get("options", {}),
        model=given.get("model", given["name"]),
        code=tuple(given.get("code", ())),
        files=tuple(given.get("files", ())),
    )
    return _with_resources(row, shared, plan.get("keep", "never"))


def _check_names(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidOptionError(
            f"{where} has {', '.join(map(repr, unknown))}, which is not understood; known are "
            f"{', '.join(known)}",
            code="OA801",
        )


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise InvalidOptionError(
            f"{name} = {value!r} in the plan is not a positive number", code="OA801"
        )
    return value


_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?")


def parse_memory(value: int | str) -> int:
    """Bytes of ``4_000_000_000``, ``"4 GB"`` or ``"4 GiB"``.

    Raises:
        InvalidOptionError: It has another form.
    """
    match = _MEMORY.fullmatch(str(value).replace("_", "").strip())
    found = 0
    if match is not None:
        found = int(
            float(match[1]) * (1024 if match[3] else 1000) ** " kMGT".index(match[2] or " ")
        )
    if found <= 0:
        raise InvalidOptionError(
            f'memory = {value!r} in the plan is not understood; write it as "4 GB", "512 MiB" '
            "or a number of bytes",
            code="OA801",
        )
    return found
