"""Bundles of language models, generating in the programs that they are written for."""

from __future__ import annotations

NAME = "bundles"
