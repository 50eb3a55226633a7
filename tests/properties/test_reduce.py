"""A failing program loses everything that its failure does not need."""

from __future__ import annotations

from tests.properties.programs import Input, Program, split_statements
from tests.properties.reduce import reduced

PROGRAM = Program(
    inputs=(
        Input("x", "float32", ("n", 4), layout="transposed"),
        Input("y", "int64", ("m",)),
    ),
    example={"n": 4, "m": 6},
    body="""
    v0 = self.layer0(x)
    if x.shape[0] > 2:
        v1 = v0 + 1
    else:
        v1 = v0 * 2
    v2 = y + 1
    y.add_(1)
    """,
    returned=("v0", "v1", "v2"),
    members=(
        "self.layer0 = nn.Linear(4, 4)",
        "self.layer0.register_forward_hook(lambda module, args, output: None)",
        "self.layer1 = nn.ReLU()",
    ),
    takes="dataclass",
    returns="nested",
    opset=17,
    training=True,
)


def test_statements_end_where_the_next_one_begins() -> None:
    assert len(split_statements(PROGRAM.body)) == 4


def test_what_does_not_matter_is_removed() -> None:
    left = reduced(PROGRAM, lambda p: "v0 * 2" in p.body and "v1" in p.returned)
    assert left.statements == PROGRAM.statements[:2]
    assert left.returned == ("v1",)
    assert left.members == ("self.layer0 = nn.Linear(4, 4)",)
    assert left.inputs == (Input("x", "float32", ("n", 4)),)
    assert (left.takes, left.returns, left.opset, left.training) == (
        "arguments",
        "tuple",
        None,
        False,
    )


def test_what_matters_stays() -> None:
    left = reduced(PROGRAM, lambda program: program.training and "y.add_" in program.body)
    assert left.statements == ["y.add_(1)"]
    assert left.training
    assert left.members == ()


def test_the_source_has_the_containers() -> None:
    source = PROGRAM.source()
    compile(source, "program.py", "exec")
    assert "y, = others.y," in source
    assert "return (v0, {'rest': [v1, v2], 'none': None})" in source
    assert "onnx_aot.export(" in source
