"""Defines operators in torch for calls that ATen has no operator for."""
