"""Models made or exported among fake tensors: ``onnx_aot/capture/fake_weights.py``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import onnx_aot
from onnx_aot.errors import InvalidOptionError

X = torch.randn(4, 3)


def test_a_real_model_inside_of_a_fake_mode_is_refused() -> None:
    model = nn.Linear(3, 2)
    with FakeTensorMode(), pytest.raises(InvalidOptionError) as raised:
        onnx_aot.export(model, (torch.randn(4, 3),))
    assert "weight weight of the model is a real tensor. Leave the block" in str(raised.value)
    with FakeTensorMode(), pytest.raises(InvalidOptionError, match="example input 0 is a real"):
        onnx_aot.export(nn.Linear(3, 2), (X,))


@pytest.mark.parametrize("takes_real_ones", [True, False])
def test_models_that_fit_the_mode_are_exported(takes_real_ones: bool) -> None:
    model = nn.Linear(3, 2)
    with FakeTensorMode(allow_non_fake_inputs=takes_real_ones):
        given = model if takes_real_ones else nn.Linear(3, 2)
        program = onnx_aot.export(given, (torch.randn(4, 3),))
    program.apply_weights(model.state_dict())
    torch.testing.assert_close(program(X)[0], model(X))
