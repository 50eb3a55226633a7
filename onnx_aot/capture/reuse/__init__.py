"""Traces layers that repeat twice, and copies what was recorded for the others.

A model of 64 equal layers runs the same Python code 64 times while it is captured. Here the calls
of two layers are traced, and the nodes that they add are compared. If they are equal, each further
call of a layer that is alike, with arguments of the same types and sizes, adds a copy of these
nodes, with the layer's own weights, names and lines, and the Python code is not run.

A copy is right if the code of a layer depends on nothing but its arguments, its weights, and
attributes that all layers share. That is checked for each call that is traced:

* Attributes that differ between the layers are watched (``state.py``). One that was read has to be
  equal in the layers that share a copy.
* A call that writes Python state, changes a container among its arguments, draws random numbers
  with Python or numpy, reads a number from a tensor, writes to a tensor from outside, or uses a
  tensor that is neither an argument nor its own weight, is never copied (``parts.py``).
* All other attributes, and objects, globals and closures that the code can reach, have the same
  contents as when the call was traced (``surroundings.py``).
"""

from __future__ import annotations

from onnx_aot.capture.reuse.calls import Reuse
from onnx_aot.capture.reuse.usage import Usage, describe_reuse

__all__ = ["Reuse", "Usage", "describe_reuse"]
