"""Architectures of ``benchmarks/zoo.py``, one file per kind."""

from __future__ import annotations

from benchmarks.zoo_models import (
    generative,
    others,
    timm,
    torchvision,
    transformers_audio,
    transformers_multimodal,
    transformers_text,
    transformers_vision,
)
from benchmarks.zoo_models.case import ZooCase

__all__ = ["GROUPS", "ZOO", "ZooCase"]

_CASES = (
    *transformers_text.CASES,
    *transformers_vision.CASES,
    *transformers_audio.CASES,
    *transformers_multimodal.CASES,
    *torchvision.CASES,
    *timm.CASES,
    *generative.CASES,
    *others.CASES,
)

ZOO: dict[str, ZooCase] = {case.name: case for case in _CASES}

if len(ZOO) < len(_CASES):
    raise ValueError("two rows of the zoo have one name")

GROUPS = tuple(dict.fromkeys(case.group for case in _CASES))
