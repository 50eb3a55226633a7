"""Model and example inputs to ``ExportedProgram``.

``inputs`` makes example inputs what ``torch.export`` takes. ``strategies`` captures, under the
changes to torch that ``patches`` lists, with the dynamic dimensions that ``sizes`` asks for and
judges; ``scripted`` runs TorchScript, ``draft_and_trace`` is the last resort. ``error_hints`` and
``exportable`` serve the user, the other files one peculiarity each.
"""

from __future__ import annotations
