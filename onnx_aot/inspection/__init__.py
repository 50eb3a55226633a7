"""Compares a model with PyTorch, and draws it.

``verify`` compares outputs at the sizes from ``size_checks``; ``compare`` compares every value,
paired by ``value_mapping``. ``bisect`` finds the pass or rule that makes a value wrong, and
``isolate`` writes its nodes as a model. ``differences`` measures how far tensors are apart,
``statistics`` counts nodes and weights, and ``view`` draws graphs.
"""
