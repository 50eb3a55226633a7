"""Bundles of language models, generating in the programs that they are written for."""

from __future__ import annotations

NAME = "bundles"
SPEED = "bundle_speed"
"""Names of the results of the two commands."""
