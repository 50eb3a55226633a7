"""Dynamic dimensions while a model is captured.

``dynamic_shapes`` and ``dimension_requests`` read the user's request, ``guards`` records every
decision that torch makes about a size, ``captured_dimensions`` tells which dimensions came out
dynamic, and ``specialization`` explains the differences. ``shape_rules`` and ``view_rules`` compute
shapes faster than torch does; the other files keep one kind of size symbolic.
"""
