"""Lists operators without a translation or a useful decomposition, with the reasons."""

from __future__ import annotations

from onnx_aot.ops.registry import NOT_TRANSLATED
from onnx_aot.torch_compat import aten

__all__: list[str] = []


_GRADIENT = "computes a gradient; export the forward pass only"

NOT_TRANSLATED.update(
    {
        aten._adaptive_avg_pool2d_backward.default: _GRADIENT,
        aten._adaptive_avg_pool3d.default: (
            "is the inner form of adaptive_avg_pool3d, which is translated; call "
            "torch.nn.functional.adaptive_avg_pool3d"
        ),
        aten.avg_pool2d_backward.default: _GRADIENT,
        aten.resize_.default: (
            "changes the size of a tensor whose storage has other views, or is not known; make a "
            "new tensor with reshape or slicing"
        ),
    }
)
