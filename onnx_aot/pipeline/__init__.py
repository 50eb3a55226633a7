"""Around the stages of an export.

``recording`` times the stages and holds notes, ``notes`` compares what was asked with what came
out, and ``blame`` looks for the cause where the model answers differently from PyTorch.
"""
