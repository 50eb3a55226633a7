"""Records the stages of an export and checks their result.

``recording`` times the stages and collects notes, ``notes`` compares what was asked for with what
was delivered, and ``blame`` looks for the cause if the model's results differ from PyTorch's.
"""
