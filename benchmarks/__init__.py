"""Benchmarks, and the models that they and the tests use."""
