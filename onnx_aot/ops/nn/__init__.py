"""Layers of neural networks.

``conv``, ``pooling``, ``normalization``, ``activation``, ``embedding``, ``losses`` and ``rnn`` are
named after their layers; ``attention`` is the fused operator, ``flex_attention`` and
``fused_attention`` its relatives. ``resize`` and ``grid_sample`` resample images.
"""
