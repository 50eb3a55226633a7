"""Programs as data: inputs, a module as Python statements, and the sizes at which it runs."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib.util
import itertools
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["OTHER_SIZES", "STATE", "Input", "Program", "Sizes", "split_statements", "used_by"]

Sizes = Mapping[str, int]

OTHER_SIZES: tuple[Sizes, ...] = (
    {"n": 1, "m": 1},
    {"n": 1, "m": 6},
    {"n": 5, "m": 1},
    {"n": 7, "m": 9},
    {"n": 13, "m": 10},
    {"n": 0, "m": 4},
    {"n": 3, "m": 0},
)
"""Sizes at which every dynamic program runs, in addition to its example."""

STATE = {
    "weight": "nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.0], [-1.0, 2.0]]), False)",
    "memory": "nn.Buffer(torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))",
    "counter": "nn.Buffer(torch.tensor(3))",
}
"""A parameter and buffers of every program, which it may read and write."""

CONTAINERS = {
    "tuple": "({0},)",
    "list": "[{0}]",
    "dict": "{{{1}}}",
    "dataclass": "{2}({0})",
    "named tuple": "{2}({0})",
}
"""Text of a container of names: ``a, b``, ``"a": a, "b": b`` and the name of its class."""

CLASSES = {
    "dataclass": "@dataclasses.dataclass\nclass {0}:\n    {1}",
    "named tuple": "class {0}(NamedTuple):\n    {1}",
}

DIM_ROOTS = 'torch.export.Dim("n", min=0), torch.export.Dim("m", min=0)'

SCRIPT = """
import dataclasses
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

import onnx_aot

{classes}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {members}

    def forward({parameters}):
        {body}
        return {returned}


def make_inputs(n, m):
    {inputs}
    return ({arguments},)


def make_model():
    torch.manual_seed(0)
    return Model().{mode}()


def make_dynamic_shapes():
    n, m = {roots}
    return {dynamic_shapes}


if __name__ == "__main__":
    program = onnx_aot.export(
        make_model(),
        make_inputs({example}),
        dynamic_shapes=make_dynamic_shapes(),
        opset_version={opset},
    )
    with torch.no_grad():
        for n, m in {sizes}:
            try:
                make_model()(*make_inputs(n, m))
            except Exception as error:
                print(n, m, "PyTorch refuses these sizes:", error)
                continue
            checked = onnx_aot.verify(program, make_model(), make_inputs(n, m), sizes=False)
            print(n, m, checked)
"""


@dataclasses.dataclass(frozen=True)
class Input:
    """One tensor input.

    Attributes:
        name: Name of the parameter.
        dtype: Name of the dtype, such as ``"float32"``.
        dims: Sizes: numbers, or expressions of ``n`` and ``m`` such as ``"n"`` and ``"2*n"``.
        layout: Order in memory: ``"plain"``, ``"transposed"``, ``"stepped"`` or ``"expanded"``.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    layout: str = "plain"

    @property
    def expression(self) -> str:
        """Makes small whole numbers, so that floating-point sums and products are exact."""
        dims, end = [str(dim) for dim in self.dims], ""
        if self.layout == "transposed" and len(dims) > 1:
            end = f".permute({', '.join(map(str, reversed(range(len(dims)))))})"
            dims.reverse()
        elif self.layout == "stepped" and dims:
            dims[-1], end = f"2*({dims[-1]})", "[..., ::2]"
        elif self.layout == "expanded" and dims:
            end = f".expand({', '.join(dims)})"
            dims[0] = "1"
        shape = f"({''.join(f'{dim}, ' for dim in dims)})"
        if self.dtype == "bool":
            return f"(torch.rand({shape}) > 0.4){end}"
        least = 0 if self.dtype == "uint8" else -4
        return f"torch.randint({least}, 6, {shape}).to(torch.{self.dtype}){end}"

    @property
    def seed(self) -> int:
        return len(self.name) + sum(map(ord, self.name))

    def make(self, sizes: Sizes) -> torch.Tensor:
        torch.manual_seed(self.seed)
        made: torch.Tensor = eval(self.expression, {"torch": torch}, dict(sizes))
        return made


@dataclasses.dataclass(frozen=True)
class Program:
    """A module; ``repr`` is a script that exports it and compares it with eager PyTorch.

    Attributes:
        inputs: Parameters of ``forward``.
        example: Sizes for the export.
        body: Statements, each of which assigns variables or writes in place; an indented line
            belongs to the statement above it.
        returned: Names that it returns.
        dims: Form of the dynamic dimensions: ``"strings"``, ``"Dim"`` objects, or ``"none"`` for a
            static export.
        passed_over: Sizes at which it is not run because eager may share memory differently:
            whether a reshape is a view or a copy depends on the sizes.
        members: Statements of ``__init__`` beyond those for ``STATE``.
        takes: Container of the inputs after the first, or ``"arguments"``.
        returns: Container of the results, ``"nested"`` containers, or ``"single"``.
        opset: Version of the operator set, or None for the default.
        training: Whether the module is in training mode.
    """

    inputs: tuple[Input, ...]
    example: Sizes
    body: str
    returned: tuple[str, ...]
    dims: str = "strings"
    passed_over: tuple[Sizes, ...] = ()
    members: tuple[str, ...] = ()
    takes: str = "arguments"
    returns: str = "tuple"
    opset: int | None = None
    training: bool = False

    def __repr__(self) -> str:
        return self.source()

    @property
    def statements(self) -> list[str]:
        return split_statements(self.body)

    @property
    def others(self) -> list[str]:
        """Names of the inputs that come in a container."""
        return [given.name for given in self.inputs[1:]] if self.takes != "arguments" else []

    def source(self) -> str:
        names, others = [given.name for given in self.inputs], self.others
        body, used = self.statements, " ".join([self.body, *self.returned])
        if others:
            body = [f"{', '.join(others)}, = {_unpacked(self.takes, others)}", *body]
        arguments = [*names[:1], _contained(self.takes, others, "Others")] if others else names
        members = [f"self.{n} = {text}" for n, text in STATE.items() if f"self.{n}" in used]
        made = [f"torch.manual_seed({i.seed})\n{i.name} = {i.expression}" for i in self.inputs]
        classes = [
            CLASSES[form].format(name, "\n    ".join(f"{field}: object" for field in fields))
            for name, form, fields in (
                ("Others", self.takes, others),
                ("Results", self.returns, self.returned),
            )
            if form in CLASSES and fields
        ]
        return SCRIPT.lstrip().format(
            classes="".join(f"\n{text}\n\n" for text in classes),
            members=_indented([*members, *self.members], 8),
            parameters=", ".join(["self", *([*names[:1], "others"] if others else names)]),
            body=_indented(body, 8),
            returned=self._returned(),
            inputs=_indented(made, 4),
            arguments=", ".join(arguments),
            mode="train" if self.training else "eval",
            example=", ".join(str(self.example[name]) for name in ("n", "m")),
            roots=DIM_ROOTS if self.dims == "Dim" else '"n", "m"',
            dynamic_shapes=self._dynamic_shapes(),
            opset=self.opset,
            sizes=tuple((sizes["n"], sizes["m"]) for sizes in self.every_size()),
        )

    def _returned(self) -> str:
        if self.returns == "single" and len(self.returned) == 1:
            return self.returned[0]
        if self.returns == "nested":
            rest = _contained("list", self.returned[1:], "")
            return f"({self.returned[0]}, {{'rest': {rest}, 'none': None}})"
        form = self.returns if self.returns in CONTAINERS else "tuple"
        return _contained(form, self.returned, "Results")

    def _dynamic_shapes(self) -> str:
        if self.dims == "none":
            return "None"
        write = repr if self.dims == "strings" else str
        axes = {
            given.name: ", ".join(
                f"{axis}: {write(dim)}"
                for axis, dim in enumerate(given.dims)
                if isinstance(dim, str)
            )
            for given in self.inputs
        }
        texts = {name: f"{{{text}}}" for name, text in axes.items()}
        if self.others:
            inner = {name: texts.pop(name) for name in self.others}
            named = ", ".join(f"{name!r}: {text}" for name, text in inner.items())
            listed = ", ".join(inner.values())
            texts["others"] = {"list": f"[{listed}]", "tuple": f"({listed},)"}.get(
                self.takes, f"({listed},)" if self.takes == "named tuple" else f"{{{named}}}"
            )
        return f"{{{', '.join(f'{name!r}: {text}' for name, text in texts.items())}}}"

    def load(self) -> Mapping[str, Any]:
        """Imports the source from a file, as if a user had written it."""
        return _load(self.source())

    @property
    def file(self) -> str:
        file: str = self.load()["__file__"]
        return file

    def module(self) -> torch.nn.Module:
        made: torch.nn.Module = self.load()["make_model"]()
        return made

    def example_inputs(self, sizes: Sizes) -> tuple[Any, ...]:
        made: tuple[Any, ...] = self.load()["make_inputs"](**sizes)
        return made

    def dynamic_shapes(self) -> Any:
        return self.load()["make_dynamic_shapes"]()

    def every_size(self) -> Iterator[Sizes]:
        """Yields the example first, then the other sizes of a dynamic program."""
        others = (sizes for sizes in OTHER_SIZES if sizes not in self.passed_over)
        return itertools.chain([self.example], others if self.dims != "none" else ())


def split_statements(body: str) -> list[str]:
    """Splits a body into statements; an indented line, ``else`` or ``elif`` continues one."""
    statements: list[str] = []
    for line in textwrap.dedent(body).strip("\n").splitlines():
        if statements and line.startswith((" ", "else", "elif")):
            statements[-1] += f"\n{line}"
        elif line.strip():
            statements.append(line)
    return statements


def used_by(member: str, body: str) -> bool:
    """True if a body uses the layer that a statement of ``__init__`` makes or adds a hook to."""
    (layer,) = re.findall(r"self\.layer\d+", member)[:1]
    return re.search(rf"{re.escape(layer)}\b", body) is not None


def _indented(statements: list[str], width: int) -> str:
    return textwrap.indent("\n".join(statements), " " * width).strip() or "pass"


def _contained(form: str, names: Sequence[str], class_name: str) -> str:
    listed = ", ".join(names)
    keyed = ", ".join(f"{name!r}: {name}" for name in names)
    if form == "tuple" and not names:
        return "()"
    return CONTAINERS[form].format(listed, keyed, class_name)


def _unpacked(form: str, names: Sequence[str]) -> str:
    if form == "dict":
        return "".join(f"others[{name!r}], " for name in names)
    if form == "dataclass":
        return "".join(f"others.{name}, " for name in names)
    return "others"


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.lru_cache(maxsize=4)
def _load(source: str) -> Mapping[str, Any]:
    name = f"random_program_{next(_numbers)}"
    file = _folder() / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return vars(module)


_numbers = itertools.count()
