"""Runs the stages of an export.

``stages`` has a function per stage, which returns what it made and notes to the user; ``notes``
writes these where something differs from what was asked for. ``recording`` times the stages and
passes the notes on. ``blame`` looks for the cause if the model's results differ from PyTorch's.
"""
