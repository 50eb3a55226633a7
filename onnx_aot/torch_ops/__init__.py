"""Operators that this package defines in torch, for calls that ATen has no name for."""
