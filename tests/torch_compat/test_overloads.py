"""Operators that are missing in the installed torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from onnx_aot.ops.registry import translations
from onnx_aot.torch_compat.overloads import Missing, Namespace, missing_operators

# --- operators -----------------------------------------------------------------------------------


def test_an_operator_that_is_lacking_is_a_marker() -> None:
    namespace = Namespace("aten")
    assert namespace.roll.default is torch.ops.aten.roll.default
    packet, overload = namespace.no_such_operator, namespace.add.no_such_overload
    assert isinstance(packet, Missing)
    assert isinstance(overload, Missing)
    assert str(packet.default) == "aten.no_such_operator.default"
    assert str(overload) == "aten.add.no_such_overload"
    assert packet.overloads() == []
    assert len({packet.default, overload, packet.default}) == 2
    with pytest.raises(AttributeError, match=r"aten\.add\.no_such_overload is not in torch 2"):
        _ = overload.name
    with pytest.raises(AttributeError):
        _ = packet._schema


def test_registration_skips_what_is_lacking() -> None:
    from onnx_aot.ops.registry import register
    from onnx_aot.torch_compat import aten

    def translation(op: Any, self: Any) -> Any:
        raise AssertionError("never called")

    before = dict(translations())
    assert register(aten.no_such_operator.default)(translation) is translation
    assert translations() == before
    assert "aten.no_such_operator.default" in missing_operators()
