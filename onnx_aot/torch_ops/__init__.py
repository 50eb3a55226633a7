"""Operators that this package defines in torch, for what ATen has no name for."""
