"""``python -m onnx_aot`` is ``onnx-aot``, for environments whose scripts are not on the path."""

from __future__ import annotations

from onnx_aot.cli import main

if __name__ == "__main__":
    main()
