"""Weights on their way from torch to files, in one pass."""
