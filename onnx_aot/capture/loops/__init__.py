"""Captures a Python loop over a dynamic size as one loop.

``steps`` lets the loop run three times while the model is traced, with symbolic numbers of the
second and third step, and marks the steps in the graph. ``history`` finds the lists that hold a
value of each step. ``compare`` tells which values one step hands on to the next, ``roll`` replaces
the steps by one call with a body, and ``check`` compares the result with the model.
"""
