"""Record of an export."""

from __future__ import annotations

import pytest
import torch

from onnx_aot.reporting.record import ExportRecord, resident_memory

# --- pieces --------------------------------------------------------------------------------------


def test_memory_of_a_stage() -> None:
    if resident_memory() is None:
        pytest.skip("the system does not say how much memory a process has")
    record = ExportRecord("", "")
    with record.time_stage("capture"):
        kept = torch.ones(8 << 20)
    memory = record.stages["capture"].memory
    assert memory is not None
    assert memory > 0.9 * kept.nbytes
