"""TorchScript: modules and functions that were scripted or traced, as programs of ATen operators.

``torch.export`` takes none of them, and torch's own converter no loops. So the TorchScript graph is
interpreted (``interpreter.py``) on the fake tensors of an export, node by node, and what it does is
recorded as FX graphs (``recorder.py``): loops and branches that depend on inputs are nodes with
graphs of their own (``control.py``), everything else that is known is carried out.
"""
