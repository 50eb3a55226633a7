"""Windows: ``onnx_aot/ops/complex/window_functions.py``."""

from __future__ import annotations

from typing import Any

import torch

from onnx_aot.torch_compat import aten
from tests.ops.rows import Row, check, floats, parametrize

PACKETS = (
    aten.bartlett_window,
    aten.blackman_window,
    aten.hamming_window,
    aten.hann_window,
    aten.kaiser_window,
)


def window(target: Any, *arguments: Any, **options: Any) -> Row:
    """Returns a row for a window times an input, because a model needs an input."""

    def call(factor: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = target(*arguments, **options)
        return made * factor

    name = "-".join(map(str, (*arguments, *options.values())))
    return Row(target, (floats(),), call=call, name=name)


ROWS = [
    *(window(packet.default, 7) for packet in PACKETS),
    *(window(packet.default, 0) for packet in PACKETS),
    *(window(packet.periodic, 6, False) for packet in PACKETS),
    *(window(packet.periodic, 6, True, dtype=torch.float64) for packet in PACKETS),
    window(aten.hamming_window.periodic_alpha, 6, True, 0.6),
    window(aten.hamming_window.periodic_alpha_beta, 6, False, 0.6, 0.3),
    window(aten.kaiser_window.beta, 6, False, 7.5),
    window(aten.fft_fftfreq.default, 6),
    window(aten.fft_fftfreq.default, 7, 0.5, dtype=torch.float64),
    window(aten.fft_rfftfreq.default, 6, 0.5),
    window(aten.fft_rfftfreq.default, 1),
]


@parametrize(ROWS)
def test_windows(row: Row) -> None:
    check(row)
