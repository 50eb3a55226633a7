"""Elementwise arithmetic, shapes, indexing, sorting and reductions."""
