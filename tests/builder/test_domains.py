"""A model imports one version of a domain."""

from __future__ import annotations

import pytest

from onnx_aot.builder.domains import Domains
from onnx_aot.errors import InvalidOptionError, TranslationError


def test_the_version_given_asked_for_or_one() -> None:
    domains = Domains({"given": 7})
    domains.use("given", None)
    domains.use("asked", 3)
    domains.use("asked", None)
    domains.use("other", None)
    domains.use("", 20)
    domains.use("ai.onnx", 20)
    assert domains.imports == {"given": 7, "asked": 3, "other": 1}


def test_versions_that_contradict_each_other() -> None:
    domains = Domains({"given": 7})
    domains.use("given", 7)
    domains.use("asked", 3)
    with pytest.raises(InvalidOptionError, match="'given'"):
        domains.use("given", 6)
    with pytest.raises(TranslationError, match=r"3 and 4 .*'asked'"):
        domains.use("asked", 4)
    assert domains.imports == {"given": 7, "asked": 3}


def test_a_copy_is_independent() -> None:
    domains = Domains()
    other = domains.copy()
    other.use("asked", 3)
    assert domains.imports == {}
    assert domains.version_of("asked") == 1
    assert other.version_of("asked") == 3
