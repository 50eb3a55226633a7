"""Passes from ExportedProgram to ExportedProgram, one per file.

A pass owns the program it is given and may edit it. ``FX_PASSES`` defines the order; comments give
the reason for each position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnx_aot.fx_passes.block_masks import drop_block_masks
from onnx_aot.fx_passes.body_writes import functionalize_bodies
from onnx_aot.fx_passes.check_functorch import refuse_transforms
from onnx_aot.fx_passes.complete_users import complete_users
from onnx_aot.fx_passes.dense_tensors import make_dense
from onnx_aot.fx_passes.drop_assertions import drop_assertions, drop_offset_assertions
from onnx_aot.fx_passes.flatten_subclasses import open_subclasses
from onnx_aot.fx_passes.functionalize import functionalize
from onnx_aot.fx_passes.inline_scripted import inline_scripted
from onnx_aot.fx_passes.inline_wrappers import cast_in_autocast, inline_wrappers
from onnx_aot.fx_passes.keep_calls import keep_calls
from onnx_aot.fx_passes.label_assertions import label_assertions
from onnx_aot.fx_passes.propagate_fake_values import record_values
from onnx_aot.fx_passes.recorded_sizes import correct_recorded_sizes
from onnx_aot.fx_passes.split_foreach import split_foreach

__all__ = ["FX_PASSES", "select_passes"]

Pass = Callable[[torch.export.ExportedProgram], torch.export.ExportedProgram]

FX_PASSES: tuple[Pass, ...] = (
    complete_users,  # first: the others rely on them
    open_subclasses,  # early: the others look at storages, which only the inner tensors have
    make_dense,  # early: the others look at storages, which sparse tensors do not have
    drop_block_masks,  # early: the code that computes them may run under a transform
    refuse_transforms,  # before the others, which cannot look at tensors under a transform
    split_foreach,  # before record_values, since its nodes have none
    record_values,  # before the passes that read the values of nodes
    inline_scripted,  # the nodes that it inserts look like captured ones
    cast_in_autocast,  # before its regions disappear
    inline_wrappers,  # early: the others have to see every node in one graph
    drop_offset_assertions,
    drop_assertions,  # before functionalize, so that a check does not keep an old value alive
    label_assertions,  # after drop_assertions, which leaves none unless checks are wanted
    correct_recorded_sizes,  # after drop_assertions, which read the sizes
    functionalize_bodies,  # before functionalize, which needs to know what the bodies write
    functionalize,
    keep_calls,  # last: every node of the program is there
)


def select_passes(*, keep_assertions: bool, autocast: bool = False) -> tuple[Pass, ...]:
    """Returns the passes to run.

    Args:
        keep_assertions: Whether the model is to check its assertions.
        autocast: Whether the program was captured in an autocast region.
    """
    left_out = {drop_assertions} if keep_assertions else set()
    if not autocast:
        left_out.add(cast_in_autocast)
    return tuple(fx_pass for fx_pass in FX_PASSES if fx_pass not in left_out)
