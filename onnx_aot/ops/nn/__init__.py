"""Neural network layers.

``conv``, ``pooling``, ``normalization``, ``activation``, ``embedding``, ``losses`` and ``rnn`` are
named after their layers; ``attention`` translates the fused operator, ``flex_attention`` and
``fused_attention`` its variants. ``resize`` and ``grid_sample`` resample images.
"""
