"""Errors, warnings and metadata name the innermost line of the user's code, however it is called.

A program is written to a file with an expression at the line that is marked ``# here``. The
expression decides what names the line.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onnx_aot
from onnx_aot.errors import CaptureError, OnnxExporterWarning, TranslationError

PROGRAMS = {
    "helper": """
        def act(x):
            return EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return act(x) + 1
        """,
    "exported function": """
        def act(x):
            return EXPRESSION  # here

        def Model():
            return lambda x: act(x) + 1
        """,
    "nested functions": """
        def outer(x):
            def inner(x):
                return EXPRESSION  # here
            return inner(x + 1)

        class Model(torch.nn.Module):
            def forward(self, x):
                return outer(x) + 1
        """,
    "lambda": """
        act = lambda x: EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return act(x) + 1
        """,
    "decorator": """
        def adds(function):
            @functools.wraps(function)
            def call(*args):
                return function(*args) + 1
            return call

        @adds
        def act(x):
            return EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return act(x)
        """,
    "in a decorator": """
        def doubles(function):
            def call(self, x):
                x = function(self, x)
                return EXPRESSION  # here
            return call

        class Model(torch.nn.Module):
            @doubles
            def forward(self, x):
                return x + 1
        """,
    "before a decorator that takes all arguments": """
        def hands_on(function):
            @functools.wraps(function)
            def call(*args, **kwargs):
                return function(*args, **kwargs)
            return call

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Identity()

            @hands_on
            def forward(self, x):
                return self.layer(EXPRESSION)  # here
        """,
    "comprehension": """
        def act(x):
            return [
                EXPRESSION  # here
                for _ in range(1)
            ]

        class Model(torch.nn.Module):
            def forward(self, x):
                return act(x)[0]
        """,
    "generator": """
        class Model(torch.nn.Module):
            def forward(self, x):
                return sum(
                    EXPRESSION  # here
                    for _ in range(1)
                )
        """,
    "property": """
        class Holder:
            def __init__(self, x):
                self.x = x

            @property
            def acted(self):
                x = self.x
                return EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return Holder(x).acted + 1
        """,
    "partial": """
        def act(addend, x):
            return EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return functools.partial(act, 1)(x) + 1
        """,
    "bound method": """
        class Plain:
            def act(self, x):
                return EXPRESSION  # here

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.act = Plain().act

            def forward(self, x):
                return self.act(x) + 1
        """,
    "called object": """
        class Plain:
            def __call__(self, x):
                return EXPRESSION  # here

        class Model(torch.nn.Module):
            def forward(self, x):
                return Plain()(x) + 1
        """,
    "method of a submodule": """
        class Layer(torch.nn.Module):
            def act(self, x):
                return EXPRESSION  # here

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x):
                return self.layer.act(x) + 1
        """,
    "before a module of torch": """
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Identity()

            def act(self, x):
                return self.layer(EXPRESSION)  # here

            def forward(self, x):
                return self.act(x) + 1
        """,
    "hook": """
        def act(module, args, x):
            return EXPRESSION  # here

        def Model():
            model = torch.nn.Hardtanh()
            model.register_forward_hook(act)
            return model
        """,
}

PROGRAMS["in a decorator that takes all arguments"] = (
    PROGRAMS["in a decorator"]
    .replace("call(self, x)", "call(*args, **kwargs)")
    .replace("function(self, x)", "function(*args, **kwargs)")
)

BY_EXEC = {
    "forward": (
        """
        namespace = {"torch": torch}
        exec("def forward(self, x):\\n    return EXPRESSION", namespace)

        class Model(torch.nn.Module):
            forward = namespace["forward"]
        """,
        "<string>:2 in forward",
    ),
    "forward that calls a lambda": (
        """
        source = '''
        act = lambda x: EXPRESSION

        def forward(self, x):
            return act(x) + 1
        '''
        namespace = {"torch": torch}
        exec(textwrap.dedent(source), namespace)

        class Model(torch.nn.Module):
            forward = namespace["forward"]
        """,
        "<string>:2 in <lambda>",
    ),
    "function that forward calls": (
        """
        exec("def act(x):\\n    return EXPRESSION")

        class Model(torch.nn.Module):
            def forward(self, x):
                return act(x) + 1  # here
        """,
        "<string>:2 in act, called from ",
    ),
}

SINH, OF_DATA, OF_SIZE = (
    "torch.sinh(x)",
    "x * [1, 2, 3][int(x.argmax())]",
    "(x * 2 if x.shape[0] > 4 else x)",
)


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("written_"):
            del sys.modules[name]


def write(folder: Path, program: str, expression: str, imports: str = "") -> Any:
    """Imports a program from a file; torch has to find the module of a class by its name."""
    source = f"import functools\nimport textwrap\n\nimport torch\n{imports}\n"
    source += textwrap.dedent(program).replace("EXPRESSION", expression)
    folder.mkdir(exist_ok=True)
    path = folder / f"written_{len(sys.modules)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marked_line(module: Any) -> str:
    lines = Path(module.__file__).read_text().splitlines()
    return f"{module.__file__}:{next(i for i, text in enumerate(lines, 1) if '# here' in text)}"


def translation_error(model: Any, **options: Any) -> str:
    def fails(op: Any, self: Any) -> Any:
        raise ValueError("not today")

    table = {torch.ops.aten.sinh.default: fails}
    with pytest.raises(TranslationError) as caught:
        onnx_aot.export(model, (torch.ones(5, 3),), custom_translation_table=table, **options)
    assert len(caught.value.places) == 1
    assert caught.value.places[0].with_code in str(caught.value)
    return str(caught.value)


def capture_error(model: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        onnx_aot.export(model, (torch.ones(5, 3),))
    assert str(caught.value.places[0]) in str(caught.value)
    return str(caught.value)


def size_warning(model: Any) -> str:
    shapes = ({0: torch.export.Dim.AUTO},)  # with a name, both branches are in the model
    with pytest.warns(OnnxExporterWarning, match="branch") as caught:
        onnx_aot.export(model, (torch.ones(5, 3),), dynamic_shapes=shapes)
    return str(caught[0].message)


def last_recorded_line(model: Any, op_type: str = "Sinh") -> str:
    program = onnx_aot.export(model, (torch.ones(5, 3),), stack_trace_root="/none")
    (node,) = (node for node in program.model.graph if node.op_type == op_type)
    trace = node.metadata_props["pkg.torch.onnx.stack_trace"]
    assert "onnx_aot/" not in trace
    return [line.strip() for line in trace.splitlines() if "File " in line][-1]


def as_recorded(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f'File "{file}", line {line}, in '


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_translation_error(way: str, tmp_path: Path) -> None:
    module = write(tmp_path, PROGRAMS[way], SINH)
    assert f"  at      {marked_line(module)} in " in translation_error(module.Model())


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_capture_error(way: str, tmp_path: Path) -> None:
    module = write(tmp_path, PROGRAMS[way], OF_DATA)
    assert f"at {marked_line(module)} in " in capture_error(module.Model())


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_warning_about_sizes(way: str, tmp_path: Path) -> None:
    module = write(tmp_path, PROGRAMS[way], OF_SIZE)
    assert f"at {marked_line(module)} in " in size_warning(module.Model())


@pytest.mark.parametrize("way", [way for way in PROGRAMS if way != "before a module of torch"])
def test_metadata(way: str, tmp_path: Path) -> None:
    module = write(tmp_path, PROGRAMS[way], SINH)
    assert last_recorded_line(module.Model()).startswith(as_recorded(marked_line(module)))


@pytest.mark.parametrize("way", BY_EXEC)
def test_code_made_by_exec(way: str, tmp_path: Path) -> None:
    program, expected = BY_EXEC[way]
    module = write(tmp_path, program, SINH)
    if expected.endswith("called from "):
        expected = f"{expected}{marked_line(module)} in forward"
    message = translation_error(module.Model())
    assert expected in message.replace("; called", ", called"), message
    where, _, function = expected.partition(",")[0].rpartition(" in ")
    assert last_recorded_line(module.Model()) == as_recorded(where) + function
    for expression, message_of in ((OF_DATA, capture_error), (OF_SIZE, size_warning)):
        model = write(tmp_path, program, expression).Model()
        assert expected.partition(",")[0] in message_of(model)


def test_the_text_of_code_made_by_exec(tmp_path: Path) -> None:
    source = "def act(x):\n    return torch.sinh(x)\n"
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, "<made here>", "exec"), names)
    linecache.cache["<made here>"] = (len(source), None, source.splitlines(True), "<made here>")
    try:
        message = translation_error(names["act"])
    finally:
        del linecache.cache["<made here>"]
    assert "  at      <made here>:2 in act: return torch.sinh(x)" in message


LIBRARY = """
    def act(x):
        return EXPRESSION  # here
    """
APPLICATION = """
    class Model(torch.nn.Module):
        def forward(self, x):
            return act(x) + 1  # here
    """


@pytest.mark.parametrize(
    ("expression", "message_of"),
    [(SINH, translation_error), (OF_DATA, capture_error), (OF_SIZE, size_warning)],
    ids=["translation", "capture", "size"],
)
def test_a_line_of_an_installed_package_and_its_caller(
    expression: str, message_of: Any, tmp_path: Path
) -> None:
    library = write(tmp_path / "site-packages", LIBRARY, expression)
    imports = f"from {library.__name__} import act"
    application = write(tmp_path, APPLICATION, expression, imports)
    message = message_of(application.Model())
    assert f"at {marked_line(library)} in act" in message.replace("at      ", "at ")
    assert f"called from {marked_line(application)} in forward" in message


def test_a_size_has_the_line_that_reads_it(tmp_path: Path) -> None:
    module = write(tmp_path, PROGRAMS["helper"], "x.reshape(x.shape[0] * 2, -1)")
    program = onnx_aot.export(
        module.Model(),
        (torch.ones(4, 4),),
        dynamic_shapes=({0: "n"},),
        stack_trace_root="/none",
        optimize=False,
    )
    sizes = [node for node in program.model.graph if node.op_type == "Shape"]
    for node in sizes:
        trace = node.metadata_props["pkg.torch.onnx.stack_trace"]
        assert as_recorded(marked_line(module)) in trace
    assert sizes


def test_lines_of_the_caller_are_left_out() -> None:
    program = onnx_aot.export(torch.nn.ReLU(), (torch.ones(3),))
    (node,) = program.model.graph
    trace = node.metadata_props["pkg.torch.onnx.stack_trace"]
    assert trace.count("File ") == 1
    assert "activation.py" in trace


DECORATED = """
    def hands_on(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*args, **kwargs)
        return call

    def around(layer):
        def call(*args, **kwargs):
            return layer(*args, **kwargs)
        return call

    class Layer(torch.nn.Module):
        @hands_on
        def forward(self, x):
            return x.sinh()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()
            self.linear = around(torch.nn.Linear(3, 3))

        @hands_on
        def forward(self, x):
            return self.layer(x), self.linear(x)
    """


def test_calls_that_decorators_hand_on_are_left_out(tmp_path: Path) -> None:
    module = write(tmp_path, DECORATED, "")
    program = onnx_aot.export(module.Model().eval(), (torch.ones(2, 3),))
    traces = {
        node.op_type: node.metadata_props["pkg.torch.onnx.stack_trace"]
        for node in program.model.graph
    }
    assert [line.rpartition(", in ")[2] for line in traces["Sinh"].splitlines()[::2]] == [
        "forward",
        "forward",
    ]
    functions = [line.rpartition(", in ")[2] for line in traces["Gemm"].splitlines()[::2]]
    assert functions == ["forward", "call", "forward"]  # Linear is not the user's
