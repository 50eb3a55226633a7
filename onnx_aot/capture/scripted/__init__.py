"""Converts scripted or traced modules and functions to programs of ATen operators.

``torch.export`` does not accept TorchScript, and torch's own converter does not support loops. So
the TorchScript graph is interpreted (``interpreter.py``) node by node on the fake tensors of an
export, and its operations are recorded as FX graphs (``recorder.py``). Loops and branches that
depend on inputs become nodes with their own graphs (``control.py``); all that is known is executed.
"""
