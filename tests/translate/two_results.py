"""A model with two results, and operators that tests translate differently."""

from __future__ import annotations

import torch

Tensor = torch.Tensor
X = torch.randn(3)

RELU, SORT = torch.ops.aten.relu.default, torch.ops.aten.sort.default
