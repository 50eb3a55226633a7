"""Branches, loops and called graphs.

``control_flow`` translates ``cond``, ``while_loop`` and ``scan``, whose bodies arrive as
``callable_bodies``; ``scripted_control`` translates those of TorchScript, ``invoke_subgraph``
compiled regions, and ``sequences`` lists of tensors. ``symbolic_arithmetic`` computes with sizes,
``assertions`` emits checks.
"""
