"""Nested containers of inputs and outputs.

``containers`` registers classes that torch's pytree does not know, ``paths`` names the leaves of an
input, and ``outputs`` builds what the model returns from the outputs of the graph.
"""
