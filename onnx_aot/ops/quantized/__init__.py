"""Quantized tensors.

``affine`` rounds to a grid and back, ``blocks`` has a grid for each block of a tensor,
``observers`` follow ranges in training, and ``pt2e`` translates the operators that PT2E
quantization inserts.
"""
