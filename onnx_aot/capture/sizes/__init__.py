"""Dynamic dimensions while a model is captured.

``dynamic_shapes`` and ``dimension_requests`` read what was asked, ``guards`` records every decision
that torch takes about a size, ``captured_dimensions`` says what came out, and ``specialization``
explains a difference. ``shape_rules`` and ``view_rules`` work out shapes faster than torch does;
the other files keep one kind of size symbolic.
"""
