"""Which version of which operator domain a model imports."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_aot.errors import InvalidOptionError, TranslationError

__all__ = ["ONNX_DOMAINS", "Domains"]

ONNX_DOMAINS = ("", "ai.onnx")
"""The two names of ONNX's own operators."""


class Domains:
    """The part of the builder that records domains.

    A domain has one version in a model. It is the one that ``custom_opsets`` gives, else the one
    that a node asks for, else 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.custom_opsets: Mapping[str, int] = {}
        self._asked: dict[str, int] = {}
        self._imports: dict[str, int] = {}

    @property
    def imports(self) -> dict[str, int]:
        """Versions of the domains used besides ONNX's own."""
        return dict(self._imports)

    def domains(self) -> tuple[dict[str, int], dict[str, int]]:
        """What is recorded, for ``restore_domains``."""
        return dict(self._asked), dict(self._imports)

    def restore_domains(self, recorded: tuple[dict[str, int], dict[str, int]]) -> None:
        """Makes what is recorded what it was."""
        self._asked, self._imports = recorded

    def version_of(self, domain: str) -> int:
        """The version that a node gets which asks for none."""
        return self.custom_opsets.get(domain, self._asked.get(domain, 1))

    def import_domain(self, domain: str, version: int | None) -> None:
        """Records that a node or function of a domain is used, with the version it is written for.

        Raises:
            InvalidOptionError: ``custom_opsets`` has another version.
            TranslationError: Another node asked for another version.
        """
        if domain in ONNX_DOMAINS:
            return
        if version is not None:
            given = self.custom_opsets.get(domain)
            if given not in (None, version):
                raise InvalidOptionError(
                    f"custom_opsets has version {given} of {domain!r}, and a translation emits "
                    f"version {version} of it. Give the one that the translation is written for"
                )
            asked = self._asked.setdefault(domain, version)
            if asked != version:
                raise TranslationError(
                    f"translations emit versions {asked} and {version} of the domain {domain!r}; a "
                    "model imports one version of a domain"
                )
        self._imports[domain] = self.version_of(domain)
