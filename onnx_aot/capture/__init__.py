"""Captures a model with its example inputs as an ``ExportedProgram``.

``inputs`` prepares the example inputs for ``torch.export``. ``strategies`` runs the capture, with
the changes to torch that ``patches`` lists and the dynamic dimensions that ``sizes`` requests and
checks. ``scripted`` interprets TorchScript; ``draft_and_trace`` is the last resort. ``error_hints``
and ``exportable`` serve the user; each of the other files handles one special case.
"""

from __future__ import annotations
