"""Records where the parts of a model come from.

``keys`` lists every key; ``stamp`` writes them on nodes and values, with texts from ``fx_text`` and
paths from ``trace_paths``. ``provenance`` finds the user's line of an FX node, ``module_calls`` the
modules around it.
"""
