"""Tracks the version of each operator domain that a model imports."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_aot.errors import InvalidOptionError, TranslationError

__all__ = ["ONNX_DOMAINS", "Domains"]

ONNX_DOMAINS = ("", "ai.onnx")
"""The two names of the domain of ONNX's own operators."""


class Domains:
    """Versions of the domains that a model uses.

    A domain has one version in a model: the one that ``custom_opsets`` gives, else the one that a
    node asks for, else 1.
    """

    def __init__(self, custom_opsets: Mapping[str, int] | None = None) -> None:
        self._custom_opsets: Mapping[str, int] = custom_opsets or {}
        self._asked: dict[str, int] = {}
        self._imports: dict[str, int] = {}

    @property
    def imports(self) -> dict[str, int]:
        """Versions of the domains in use, except ONNX's own."""
        return dict(self._imports)

    def copy(self) -> Domains:
        """Returns an independent copy."""
        other = Domains(self._custom_opsets)
        other._asked, other._imports = dict(self._asked), dict(self._imports)
        return other

    def version_of(self, domain: str) -> int:
        """Returns the version for a node that does not ask for one."""
        return self._custom_opsets.get(domain, self._asked.get(domain, 1))

    def use(self, domain: str, version: int | None) -> None:
        """Records the use of a domain by a node or function, with the version it is written for.

        Raises:
            InvalidOptionError: ``custom_opsets`` has another version.
            TranslationError: Another node asked for another version.
        """
        if domain in ONNX_DOMAINS:
            return
        if version is not None:
            given = self._custom_opsets.get(domain)
            if given not in (None, version):
                raise InvalidOptionError(
                    f"custom_opsets has version {given} of {domain!r}, and a translation emits "
                    f"version {version} of it. Pass the version that the translation is written "
                    "for",
                    code="OA013",
                )
            asked = self._asked.setdefault(domain, version)
            if asked != version:
                raise TranslationError(
                    f"translations emit versions {asked} and {version} of the domain {domain!r}; a "
                    "model imports one version of a domain",
                    code="OA013",
                )
        self._imports[domain] = self.version_of(domain)
