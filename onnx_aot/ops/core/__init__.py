"""Elementwise arithmetic, shapes, indexing, sorting and reductions.

``elementwise``, ``logical`` and ``casting`` work element by element; ``movement``, ``strided``,
``indexing`` and ``scatter`` move elements; ``reduction``, ``cumulative``, ``sorting``, ``unique``,
``bucketize`` and ``segment_reduce`` combine them. ``size_math`` computes with sizes for all
families.
"""
