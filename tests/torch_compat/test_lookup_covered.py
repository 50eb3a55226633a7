"""Every row of the table of patches, and every private name, has a test of its purpose."""

from __future__ import annotations

from onnx_aot.capture.patches import ALL_PATCHES, capabilities
from onnx_aot.torch_compat import PRIVATE, hidden
from tests import test_cuda
from tests.capture import test_python_random
from tests.capture.patches import test_derivatives, test_memories, test_recorded_gradients
from tests.inspection import test_rounding
from tests.ops.complex import test_fft
from tests.torch_compat import (
    test_autocast_marks,
    test_batching,
    test_interrupts,
    test_lookup_missing,
    test_lookup_missing_linalg,
    test_lookup_missing_loops,
    test_lookup_missing_messages,
    test_lookup_missing_operators,
    test_lookup_missing_sizes,
    test_modules,
    test_rounded_sizes,
    test_short_paths,
    test_size_order,
    test_slice_bounds,
    test_spared_work,
)
from tests.torch_compat.without import SHOWN, shows

NAMES = {patch.name for patch in ALL_PATCHES} | set(PRIVATE)


def test_every_row_is_shown() -> None:
    missing = (
        test_lookup_missing,
        test_lookup_missing_linalg,
        test_lookup_missing_loops,
        test_lookup_missing_messages,
        test_lookup_missing_operators,
        test_lookup_missing_sizes,
    )
    rules = (test_rounded_sizes, test_size_order, test_slice_bounds)
    others = (
        test_python_random,
        test_autocast_marks,
        test_batching,
        test_cuda,
        test_fft,
        test_interrupts,
        test_modules,
        test_short_paths,
        test_spared_work,
    )
    models = (test_derivatives, test_memories, test_recorded_gradients)
    for module in (*models, *others, *missing, test_rounding, *rules):
        assert module.shows is shows  # the modules register what they show
    assert set() == NAMES - SHOWN
    assert set() == SHOWN - NAMES


def test_a_release_without_any_of_them_is_described() -> None:
    with hidden(*NAMES):
        listed = {off.name for off in capabilities().off}
    assert NAMES - listed == set()
