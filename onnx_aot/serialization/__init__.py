"""Weights on their way to files, in one pass.

``weights`` says where each comes from, ``checkpoints`` and ``mapped_tensor`` read files,
``serialize`` writes the model and ``data_files`` the weights beside it, ``atomic`` puts finished
files in their places, and ``progress`` shows a bar.
"""
