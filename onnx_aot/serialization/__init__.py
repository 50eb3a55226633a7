"""Reads checkpoints and writes models, with weights in one pass.

``weights`` matches tensors to the model's weights, ``checkpoints`` and ``mapped_tensor`` read
files, ``serialize`` writes the model and ``data_files`` the weights beside it, ``atomic`` moves
finished files into place, ``journal`` and ``deferred_signals`` keep them together meanwhile, and
``progress`` shows a bar.
"""
