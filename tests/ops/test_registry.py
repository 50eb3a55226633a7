"""Functions that cannot be registered as translations."""

from __future__ import annotations

import pytest
import torch

from onnx_aot.ops import registry

# --- the table -----------------------------------------------------------------------------------


def test_registration_refuses_what_is_wrong() -> None:
    aten = torch.ops.aten
    registry.translations()
    with pytest.raises(ValueError, match="already has a translation"):
        registry.register(aten.roll.default)(lambda op, self, shifts, dims: None)
    with pytest.raises(TypeError, match=r"aten.add is a packet"):
        registry.register(aten.add)(lambda op, self: None)
    with pytest.raises(TypeError, match=r"takes 'shift', which aten.roll.default does not have"):
        registry.make_translation(aten.roll.default, lambda op, self, shift, dims: None)
    with pytest.raises(TypeError, match=r"does not take 'dims' of aten.roll.default"):
        registry.make_translation(aten.roll.default, lambda op, self, shifts: None)
    with pytest.raises(TypeError, match="operator or a function"):
        registry.make_translation("aten.roll", lambda op: None)
