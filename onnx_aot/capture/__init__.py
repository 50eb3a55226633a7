"""Captures a model with its example inputs as an ``ExportedProgram``.

``inputs`` prepares the example inputs for ``torch.export``. ``plans`` is the table of attempts;
``attempts`` makes one, ``strategies`` calls torch for it, and ``refusals`` explains why none
succeeded. ``patches`` lists the changes to torch, and ``sizes`` requests and checks dynamic
dimensions. ``scripted`` interprets TorchScript; ``draft_and_trace`` is the last resort.
``error_hints`` and ``exportable`` serve the user; each other file handles one special case.
"""

from __future__ import annotations
