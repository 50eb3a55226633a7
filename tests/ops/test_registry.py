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


def test_other_arguments_on_releases_that_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """One operator is lost, and the error of a model that needs it says why."""
    target = torch.ops.aten.roll.default

    def translation(op: object, self: object, shift: object, dims: object) -> None:
        raise AssertionError("it is not registered")

    registry.translations()
    with pytest.raises(TypeError, match="takes 'shift'"):
        registry.register(target, since=20)(translation)
    monkeypatch.setattr(registry, "is_tested", lambda: False)
    monkeypatch.setattr(registry, "NOT_TRANSLATED", {})
    before = registry.TRANSLATIONS[target]
    registry.register(target, since=20)(translation)
    assert registry.TRANSLATIONS[target] == before
    assert "other arguments in this release of torch" in registry.NOT_TRANSLATED[target]
    assert "takes 'shift'" in registry.NOT_TRANSLATED[target]
