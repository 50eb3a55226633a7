"""Nested containers of inputs and outputs."""
