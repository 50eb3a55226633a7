"""Lists operators without a translation or a useful decomposition, with the reasons."""

from __future__ import annotations

from onnx_aot.ops.registry import NOT_TRANSLATED
from onnx_aot.torch_compat import aten

__all__: list[str] = []


NOT_TRANSLATED.update(
    {
        aten.resize_.default: (
            "changes the size of a tensor whose storage has other views, or is not known; make a "
            "new tensor with reshape or slicing"
        ),
    }
)
