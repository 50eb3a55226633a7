"""Captures both ways of a branch on data, and joins them.

``paths`` runs ``forward`` once per path, with prescribed answers to the questions that it asks
about data. ``steps`` reads the recorded graphs, ``joining`` makes one sequence of steps of them, in
which a branch has two, and ``replay`` carries it out with ``torch.cond``. ``assignments`` compares
the attributes of the model after each path.
"""
