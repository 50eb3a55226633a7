"""Quantized tensors: grids of integers, blocks, observers, PT2E."""
