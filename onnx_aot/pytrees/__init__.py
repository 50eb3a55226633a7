"""Handles nested containers of inputs and outputs.

``containers`` registers classes that torch's pytree does not know, ``paths`` names the leaves of an
input, ``structures`` reads how captured inputs and outputs are nested, and ``outputs`` builds the
model's return value from the outputs of the graph.
"""
