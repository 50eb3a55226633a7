"""Modules around a node, according to its metadata."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnx_aot.inspection.scopes import Scope, inner_scopes, relative_name, scopes_of
from onnx_aot.metadata.keys import CLASS_HIERARCHY, NAME_SCOPES


def _node(scopes: object, classes: object) -> ir.Node:
    node = ir.node("Relu", [None])
    node.metadata_props[NAME_SCOPES] = str(scopes)
    node.metadata_props[CLASS_HIERARCHY] = str(classes)
    return node


def test_the_model_its_modules_and_the_captured_node() -> None:
    node = _node(["", "a", "a.b", "relu"], ["m.Net", "m.A", "m.B", "aten.relu.default"])
    assert scopes_of(node) == [
        Scope("", "m.Net"),
        Scope("a", "m.A"),
        Scope("a.b", "m.B"),
        Scope("relu", "aten.relu.default"),
    ]


def test_what_torch_writes_where_there_is_no_module() -> None:
    scopes = ["_empty_nn_module_stack_from_metadata_hook", "sym_size_int"]
    assert scopes_of(_node(scopes, ["", "aten.sym_size.int"])) == [
        Scope("sym_size_int", "aten.sym_size.int")
    ]


@pytest.mark.parametrize("written", ["", "['", "{}", "None", "[" * 5000])
def test_what_cannot_be_read(written: str) -> None:
    assert scopes_of(_node(written, "[]")) == []


def test_classes_that_do_not_fit_are_left_out() -> None:
    assert scopes_of(_node(["", "a"], ["m.Net"])) == [Scope("", ""), Scope("a", "")]


def test_a_body_is_within_the_modules_around_its_node() -> None:
    outer = [Scope("a", "m.A"), Scope("cond", "cond")]
    inner = Scope("a.b", "m.B")
    assert inner_scopes([*outer, inner], outer) == [inner]
    assert inner_scopes([Scope("a", "m.A")], outer) == []
    assert inner_scopes([inner], ()) == [inner]


def test_names_are_relative_to_the_module_around() -> None:
    assert relative_name("a.layers.0", ["a"]) == "layers.0"
    assert relative_name("a.b.c", ["a", "a.b"]) == "c"
    assert relative_name("ab.c", ["a"]) == "ab.c"
