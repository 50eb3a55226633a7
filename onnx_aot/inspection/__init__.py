"""Comparing a model with PyTorch, and drawing it.

``verify`` compares outputs, at sizes from ``size_checks``; ``compare`` compares every value, by
``value_mapping``; ``bisect`` and ``isolate`` find and cut out what is wrong. ``statistics`` counts
nodes and weights, ``differences`` compares files, and ``view`` draws graphs.
"""
