"""The programs that bundles are for: their environments, their versions, what the scripts share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from benchmarks.results import ROOT

__all__ = [
    "ENVIRONMENTS",
    "INSIDE",
    "command_in",
    "last_error",
    "parse_families",
    "read_versions",
]

INSIDE = Path(__file__).parent / "inside"
ENVIRONMENTS = ROOT / ".nox"


def parse_families(about: str | None, known: Collection[str]) -> list[str]:
    """Returns the families that the command line names, or an empty list for all of them."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    found: list[str] = parser.parse_args().families
    unknown = [family for family in found if family not in known]
    if unknown:
        parser.error(f"no families {', '.join(unknown)}; there are {', '.join(known)}")
    return found


def command_in(client: str) -> str:
    """Returns the Python of the environment of a program."""
    return str(ENVIRONMENTS / f"bundle-{client}" / "bin" / "python")


def last_error(stderr: str) -> str:
    """Returns the last line that names an error."""
    lines = [line for line in stderr.splitlines() if "rror" in line]
    return (lines or ["no message"])[-1][:200]


def read_versions() -> dict[str, str]:
    """Returns the versions of the programs in their environments."""
    found = {}
    for client, distribution in (("genai", "onnxruntime-genai"), ("optimum", "optimum-onnx")):
        places = [str(p) for p in (ENVIRONMENTS / f"bundle-{client}").glob("lib/*/site-packages")]
        for held in metadata.distributions(name=distribution, path=places):
            found[client] = held.version
    package = ENVIRONMENTS / "bundle-node" / "node_modules" / "@huggingface" / "transformers"
    if (package / "package.json").exists():
        content = json.loads((package / "package.json").read_text(encoding="utf-8"))
        found["transformers.js"] = content["version"]
    return found
