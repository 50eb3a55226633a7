"""Runs exported models in the programs of other people: ``python -m benchmarks.clients``.

``table`` lists the models, clients and tools, ``prepare`` exports a model with both exporters,
``cells`` runs one file in one client, and ``inside`` has the programs that run in the environments
of the clients.
"""

from __future__ import annotations

NAME = "clients"

__all__ = ["NAME"]
