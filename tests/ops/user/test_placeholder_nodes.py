"""``unsupported=``, ``decompose=False``, and the code that the error suggests."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch

import onnx_aot
from onnx_aot.errors import InferenceError, TranslationError, UnsupportedOperatorError
from onnx_aot.metadata.keys import ARGUMENTS

Tensor = torch.Tensor
X = torch.randn(4, 3)

_LIBRARY = torch.library.Library("onnx_aot_unsupported", "DEF")
OPS = torch.ops.onnx_aot_unsupported


def define(schema: str, fake: Any) -> None:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    torch.library.register_fake(f"onnx_aot_unsupported::{name}", fake, lib=_LIBRARY)


define(
    "gadget(Tensor x, Tensor? bias, Tensor[] more, int n=1, float[] by=[1, 2.5], str mode='q', "
    "ScalarType? to=None, bool on=True, int[2] size=3, *, SymInt[] shape=[], int? none=None, "
    "Device? device=None) -> (Tensor, Tensor[])",
    lambda x, bias, more, *a, **k: (torch.empty_like(x), [torch.empty_like(y) for y in more]),
)
define("plain(Tensor x, str from='a', *, bool flag=False) -> Tensor", lambda x, *a, **k: x.clone())
define("scaled.Scalar(Tensor x, Scalar by) -> Tensor", lambda x, by: x.clone())
define("pair(Tensor x) -> (Tensor, Tensor)", lambda x: (x.clone(), x.clone()))
define("many(Tensor x) -> Tensor[]", lambda x: [x.clone()])
define("write_(Tensor(a!) x, float by=1.0) -> Tensor", lambda x, by=1.0: x.clone())
define("spin(Tensor x) -> Tensor", lambda x: x.clone())
define("announce(Tensor x) -> ()", lambda x: None)
define("count(Tensor x) -> SymInt", lambda x: torch.library.get_ctx().new_dynamic_size())


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*operator\(s\) have no ONNX translation")
        yield


def exported(function: Any, **options: Any) -> onnx_aot.ONNXProgram:
    options = {"unsupported": "emit", "dynamic_shapes": ({0: "n"},), **options}
    program = onnx_aot.export(function, (X,), **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    return program


def attributes(node: ir.Node) -> dict[str, Any]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def uses_everything(x: Tensor) -> Tensor:
    y, (a, b) = OPS.gadget(x, None, [x, x * 2], to=torch.float16, shape=[x.shape[0], 3])
    return y + a + b


@pytest.mark.parametrize("mode", ["emit", "function"])
def test_arguments(mode: str) -> None:
    program = exported(uses_everything, unsupported=mode)
    (node,) = (n for n in program.model.graph if n.domain)
    assert (node.domain, node.op_type) == ("onnx_aot_unsupported", "gadget")
    assert attributes(node) == {
        "n": 1,
        "by": (1.0, 2.5),
        "mode": "q",
        "to": 10,
        "on": 1,
        "size": (3, 3),
    }
    assert json.loads(node.metadata_props[ARGUMENTS]) == [
        "x",
        "bias",
        "more[0]",
        "more[1]",
        "shape",
    ]
    assert [value is None for value in node.inputs] == [False, True, False, False, False]
    assert [str(value.shape) for value in node.outputs] == ["[n,3]"] * 3
    assert program.model.opset_imports["onnx_aot_unsupported"] == 1


def test_versions_and_overloads() -> None:
    program = exported(
        lambda x: OPS.scaled.Scalar(x, 2) + OPS.scaled.Scalar(x, 2.5),
        custom_opsets={"onnx_aot_unsupported": 3},
    )
    one, two = (n for n in program.model.graph if n.domain)
    assert attributes(one) == {"by": 2, "overload_name": "Scalar"}
    assert attributes(two) == {"by": 2.5, "overload_name": "Scalar"}
    assert program.model.opset_imports["onnx_aot_unsupported"] == 3


def test_writes_come_after_the_results() -> None:
    def writes(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        z = OPS.write_(y, 2.0)
        return y, z

    program = exported(writes)
    (node,) = (n for n in program.model.graph if n.domain)
    assert [value.name for value in program.model.graph.outputs] == [
        value.name for value in reversed(node.outputs)
    ]


def test_complex_numbers_have_a_last_dimension_of_two() -> None:
    def turns(x: Tensor) -> Tensor:
        return OPS.spin(torch.complex(x, x)).abs()

    (node,) = (n for n in exported(turns).model.graph if n.domain)
    assert [str(v.shape) for v in (*node.inputs, *node.outputs)] == ["[n,3,2]", "[n,3,2]"]
    assert node.outputs[0].dtype == ir.DataType.FLOAT


def test_numbers_and_nothing() -> None:
    def counts(x: Tensor) -> Tensor:
        OPS.announce(x)
        return x.new_ones(2) * OPS.count(x)

    program = exported(counts)
    nodes = [n for n in program.model.graph if n.domain]
    assert [n.op_type for n in nodes] == ["count"]
    assert str(nodes[0].outputs[0].shape) == "[]"
    assert nodes[0].outputs[0].dtype == ir.DataType.INT64


def test_calls_that_differ_have_functions_of_their_own() -> None:
    def calls(x: Tensor) -> Any:
        one = OPS.scaled.Scalar(x, 2) + OPS.scaled.Scalar(x, 3)
        return one + OPS.scaled.Scalar(x, 2.5) + OPS.plain(x) + OPS.plain(x, "b", flag=True)

    program = exported(calls, unsupported="function")
    names = [name for _, name, _ in program.model.functions]
    assert names == ["scaled", "scaled_2", "plain"]
    called = [n.op_type for n in program.model.graph if n.domain]
    assert called == ["scaled", "scaled", "scaled_2", "plain", "plain"]


def test_a_placeholder_does_not_compute_until_it_is_filled() -> None:
    program = exported(lambda x: OPS.plain(x) + 1, unsupported="function")
    with pytest.raises(InferenceError, match="has no onnx_aot_unsupported::plain"):
        program(X)
    function = program.model.functions["onnx_aot_unsupported", "plain", ""]
    (body,) = function
    filled = ir.Node("", "Neg", list(function.inputs))
    ir.convenience.replace_nodes_and_values(
        function, body, [body], [filled], body.outputs, filled.outputs
    )
    function.opset_imports[""] = 20
    torch.testing.assert_close(program(X)[0], 1 - X)


def test_it_is_said_and_not_verified(tmp_path: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported(uses_everything, verify=True, report=True, artifacts_dir=tmp_path)
    translated, verified = (w.message.message for w in caught)
    assert "are nodes of domains" in translated
    assert "onnx_aot_unsupported.gadget.default (1x)" in translated
    assert "the model was not verified" in verified
    report = next(tmp_path.iterdir()).read_text()
    assert "| `onnx_aot_unsupported.gadget.default` | 1     | NOT TRANSLATED " in report
    assert verified in report


def test_what_no_attribute_can_be() -> None:
    with pytest.raises(TranslationError, match=r"by=1j cannot be an attribute"):
        exported(lambda x: OPS.scaled.Scalar(x, 1j))


# --- decompose=False -----------------------------------------------------------------------------


def test_without_torchs_rules() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.logaddexp(x, x.relu())

    program = exported(function, unsupported="error", decompose=False)
    names = [(n.domain, n.op_type) for n in program.model.graph]
    assert names == [("", "Relu"), ("aten", "logaddexp")]
    program = exported(function, unsupported="error")
    assert not any(n.domain for n in program.model.graph)


# --- suggested code ------------------------------------------------------------------------------


class UsesMany(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        written = x.clone()
        z = OPS.write_(written)
        return OPS.plain(x), OPS.pair(x), OPS.many(x), written, z


def proposed(error: UnsupportedOperatorError) -> str:
    """Extracts the code from a message."""
    _, _, rest = str(error).partition("from this code:\n")
    return "\n".join(line[4:] for line in rest.splitlines() if line.startswith("    "))


def test_the_code_runs_as_it_is() -> None:
    """It makes nodes of the operators' own domain, is registered, and is passed to one export."""
    with pytest.raises(UnsupportedOperatorError) as caught:
        onnx_aot.export(UsesMany(), (X,))
    code = proposed(caught.value)
    names = {"torch": torch, "onnx_aot": onnx_aot, "model": UsesMany(), "args": (X,)}
    registered = [entry.target for entry in caught.value.operators]
    try:
        exec(code, names)
        program = exported(UsesMany(), unsupported="error")
    finally:
        for target in registered:
            onnx_aot.unregister(eval(f"torch.ops.{target}"))
    made = [n for n in program.model.graph if n.domain]
    assert [(n.op_type, len(n.outputs)) for n in made] == [
        ("Write", 2),
        ("Plain", 1),
        ("Pair", 2),
        ("Many", 1),
    ]
    assert attributes(made[1]) == {"from_": "a", "flag": 0}
    assert "the new value of x" in code
