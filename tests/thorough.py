"""The tests that run with ``pytest --thorough`` only: those that take longest.

Each repeats on a larger model, or more often, what a test of the default run shows.
"""

from __future__ import annotations

__all__ = ["TESTS", "is_thorough"]

TESTS = (
    # architectures of which smaller models are in the default run
    "models/test_models.py::test_model[alexnet]",
    "models/test_models.py::test_model[convnext_tiny]",
    "models/test_models.py::test_model[densenet121]",
    "models/test_models.py::test_model[inception_v3]",
    "models/test_models.py::test_model[swin_t]",
    "models/test_models.py::test_model[vgg11]",
    "models/test_models.py::test_model[vit_b_16]",
    "models/test_transformers_exporters.py::test_without_the_patches",
    "models/test_zoo.py::test_slice[encodec]",
    "models/test_zoo.py::test_slice[mamba]",
    "models/test_zoo.py::test_slice[mimi]",
    # one seed is in the default run
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[1]",
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[2]",
    "torch_compat/test_interrupts.py::test_fifty_exports_that_are_ended[3]",
    # samples of what `python -m conformance` and its like run in full
    "conformance/test_conformance_results.py::test_what_was_right_is_right",
    "conformance/test_mutated_files.py::test_some_files",
)


def is_thorough(node: str) -> bool:
    """True for the id of a test that the default run leaves out."""
    return node.removeprefix("tests/").startswith(TESTS)
