"""Models for genai: steps that write new keys and values into the buffers of earlier ones."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from onnx_aot.errors import OnnxExporterWarning
from onnx_aot.generation import Decoder, bundle
from tests.generation import models
from tests.generation.models import DECODER, STEPS, WINDOW, WINDOW_AND_FULL, spread, transformers

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

ROWS = ([5, 9, 40, 22, 33, 17, 8], [3, 7, 11], [6, 32, 9, 4, 50])
"""Prompts of different lengths; with the new tokens they exceed the windows."""
ROOT = Path(__file__).parents[2]
LENGTH = 40
"""Positions in the buffers, more than there are tokens."""


def qwen3() -> Any:
    """Model that normalizes queries and keys of each head."""
    return spread(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**DECODER, head_dim=8)))


def gemma3() -> Any:
    """Model with a window in every other layer, and other rotations there."""
    config = transformers.Gemma3TextConfig(
        **DECODER, head_dim=8, sliding_window=WINDOW, layer_types=WINDOW_AND_FULL
    )
    return spread(transformers.Gemma3ForCausalLM(config))


def phi3() -> Any:
    """Model with one matrix for queries, keys and values."""
    return spread(transformers.Phi3ForCausalLM(transformers.Phi3Config(**DECODER)))


def opt() -> Any:
    """Model without rotations, whose heads have keys of their own."""
    config = transformers.OPTConfig(
        **models.TOKENS,
        hidden_size=16,
        ffn_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
    )
    return spread(transformers.OPTForCausalLM(config))


FITTING: list[Callable[[], Any]] = [
    models.gpt2,
    models.llama,
    models.qwen2,
    models.mistral,
    qwen3,
    models.gemma2,
    models.gpt_oss,
    gemma3,
    phi3,
    opt,
]
OTHERS: list[Callable[[], Any]] = [models.llama4, models.gemma3n]


class InPlace:
    """Runs steps in buffers of a fixed length, which are full of NaN before the first step."""

    def __init__(
        self, path: Path, batch: int, *, shared: bool = True, slack: int | None = None
    ) -> None:
        """``slack``: how many positions buffers of a window have beyond those of the window."""
        self.session = onnxruntime.InferenceSession(path)
        types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        self.shared = shared
        self.buffers = {}
        window = told_of(path).get("sliding_window", {"layers": []})
        for value in self.session.get_inputs():
            if value.name.startswith("past_key_values"):
                length = LENGTH if shared else 0
                if slack is not None and int(value.name.split(".")[1]) in window["layers"]:
                    length = window["window_size"] + slack
                shape = (batch, value.shape[1], length, value.shape[3])
                empty = np.full(shape, np.nan, types[value.type])
                self.buffers[value.name] = onnxruntime.OrtValue.ortvalue_from_numpy(empty)

    def step(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Returns the logits of new tokens."""
        binding = self.session.io_binding()
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        for name in {value.name for value in self.session.get_inputs()} & given.keys():
            binding.bind_cpu_input(name, given[name].astype(np.int64))
        binding.bind_output("logits")
        for name, buffer in self.buffers.items():
            binding.bind_ortvalue_input(name, buffer)
            present = name.replace("past_key_values", "present")
            if self.shared:
                binding.bind_ortvalue_output(present, buffer)
            else:
                binding.bind_output(present)
        self.session.run_with_iobinding(binding)
        logits, *returned = binding.get_outputs()
        if not self.shared:
            self.buffers = dict(zip(self.buffers, returned, strict=True))
        return logits.numpy()

    def generate(self, rows: Sequence[Sequence[int]], left: bool, steps: int) -> list[list[int]]:
        """Returns the prompts with the most likely tokens behind, as genai generates them."""
        longest = max(map(len, rows))
        ids, mask = (np.zeros((len(rows), longest), np.int64) for _ in range(2))
        for index, row in enumerate(rows):
            start = longest - len(row) if left else 0
            ids[index, start : start + len(row)] = row
            mask[index, start : start + len(row)] = 1
        positions = (mask.cumsum(1) - 1).clip(0)
        lengths = mask.sum(1)
        at = np.full(len(rows), longest - 1) if left else lengths - 1
        made = [list(row) for row in rows]
        for _ in range(steps):
            best = self.step(ids, mask, positions)[np.arange(len(rows)), at].argmax(-1)
            for row, token in zip(made, best.tolist(), strict=True):
                row.append(token)
            ids, at = best[:, None], np.zeros(len(rows), np.int64)
            mask = np.concatenate([mask, np.ones_like(ids)], 1)
            positions, lengths = lengths[:, None], lengths + 1
        return made


def expected(model: Any, rows: Sequence[list[int]], steps: int = STEPS) -> list[list[int]]:
    """Returns what the model generates for each prompt alone."""
    return [
        model.generate(
            torch.tensor([row]),
            attention_mask=torch.ones(1, len(row), dtype=torch.int64),
            do_sample=False,
            max_new_tokens=steps,
        )[0].tolist()
        for row in rows
    ]


def shares(path: Path) -> bool:
    """Returns whether genai is told to share buffers."""
    told = json.loads(path.with_name("genai_config.json").read_text(encoding="utf-8"))
    return bool(told["search"]["past_present_share_buffer"])


def told_of(path: Path) -> dict[str, Any]:
    """Returns what genai is told of the decoder."""
    told = json.loads(path.with_name("genai_config.json").read_text(encoding="utf-8"))
    return dict(told["model"]["decoder"])


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("make", FITTING, ids=lambda make: make.__name__)
def test_tokens_in_one_buffer(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Padding may stand on either side; genai pads batches on the right."""
    model = make()
    path = bundle(model, tmp_path, layout="genai", verify=True, bounded=False)
    assert shares(path)
    assert "sliding_window" not in told_of(path)
    assert operators(path).count("GroupQueryAttention") == 2
    of_experts = 2 if make is models.gpt_oss else 0
    assert operators(path).count("Softmax") == of_experts
    wanted = expected(model, ROWS)
    assert len({token for row in wanted for token in row}) >= 8
    for left in (False, True):
        for shared in (True, False):  # genai takes buffers apart to search with beams
            runner = InPlace(path, len(ROWS), shared=shared)
            assert runner.generate(ROWS, left, STEPS) == wanted, (left, shared)
    alone = [InPlace(path, 1).generate([row], False, STEPS)[0] for row in ROWS]
    assert alone == wanted


@pytest.mark.parametrize("make", [models.mistral, gemma3], ids=lambda make: make.__name__)
def test_buffers_of_a_window(tmp_path: Path, make: Callable[[], Any]) -> None:
    """They hold the window and as many other positions as genai likes, for rows of any length."""
    model = make()
    path = bundle(model, tmp_path, layout="genai", verify=True)
    layers = [0] if make is gemma3 else [0, 1]
    assert told_of(path)["sliding_window"] == {
        "window_size": WINDOW,
        "slide_key_value_cache": False,
        "slide_inputs": False,
        "layers": layers,
    }
    stored = onnx.load(path).graph
    lengths = {v.name: v.type.tensor_type.shape.dim[2].dim_param for v in stored.input[-4:]}
    assert [lengths[f"past_key_values.{layer}.key"] for layer in range(2)] == [
        "past_window_length" if layer in layers else "past_sequence_length" for layer in range(2)
    ]
    wanted = expected(model, ROWS)
    for slack in (0, 1, 16):
        for left in (False, True):
            runner = InPlace(path, len(ROWS), slack=slack)
            assert runner.generate(ROWS, left, STEPS) == wanted, (slack, left)
        alone = [InPlace(path, 1, slack=slack).generate([r], False, STEPS)[0] for r in ROWS]
        assert alone == wanted


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_padding_of_a_window_is_not_what_was_in_memory(tmp_path: Path) -> None:
    """The operator leaves results for padding as memory was, here 2**127 at least."""
    path = bundle(gemma3(), tmp_path, layout="genai")
    code = f"""
        import pathlib
        from tests.generation.test_genai import ROWS, InPlace
        print(InPlace(pathlib.Path({str(path)!r}), len(ROWS), slack=1).generate(ROWS, False, 4))
    """
    found = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "MALLOC_PERTURB_": filled},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for filled in ("0", "1")
    ]
    assert found[0] == found[1]
    assert found[0].count("[") == 1 + len(ROWS)


@pytest.mark.parametrize("target", ["onnxruntime==1.31", "onnxruntime==1.20"])
def test_releases_without_buffers_of_a_window(tmp_path: Path, target: str) -> None:
    path = bundle(gemma3(), tmp_path, layout="genai", target=target, opset_version=20)
    assert shares(path)
    assert "sliding_window" not in told_of(path)
    nodes = [n for n in onnx.load(path).graph.node if n.op_type == "GroupQueryAttention"]
    assert nodes
    assert not any(a.name == "sliding_window_cache" for node in nodes for a in node.attribute)


@pytest.mark.parametrize("slack", [None, 2])
def test_several_tokens_behind_a_past(tmp_path: Path, slack: int | None) -> None:
    """A row alone can go on with several tokens, as a chat does."""
    model = gemma3()
    runner = InPlace(bundle(model, tmp_path, layout="genai"), 1, slack=slack)
    ids = torch.tensor([[*ROWS[0], *ROWS[2]]])
    with torch.no_grad():
        wanted = model(ids).logits
    found = []
    for start, stop in ((0, 5), (5, 9), (9, 10), (10, 12)):
        positions = np.arange(start, stop)[None]
        part, mask = ids[:, start:stop].numpy(), np.ones((1, stop))
        found.append(torch.from_numpy(runner.step(part, mask, positions)))
    models.assert_same(wanted, torch.cat(found, 1))


@pytest.mark.parametrize(
    ("make", "weights"),
    [
        *((gemma3, weights) for weights in ("fp16", "int8", "int4")),
        (models.gemma2, "fp16"),
        (models.gpt_oss, "fp16"),
    ],
)
def test_types_of_weights(tmp_path: Path, make: Callable[[], Any], weights: str) -> None:
    """A buffer changes nothing: tokens are those of the same file with a cache that grows."""
    path = bundle(make(), tmp_path / "whole", layout="genai", weights=weights, bounded=False)
    assert shares(path)
    rows, steps = [ROWS[0], ROWS[0][::-1]], 8
    grown = Decoder(path).generate(torch.tensor(rows), max_new_tokens=steps).tolist()
    assert InPlace(path, 2).generate(rows, False, steps) == grown
    path = bundle(make(), tmp_path / "windows", layout="genai", weights=weights)
    assert InPlace(path, 2, slack=3).generate(rows, False, steps) == grown


@pytest.mark.parametrize("make", OTHERS, ids=lambda make: make.__name__)
def test_what_the_operator_does_not_compute(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Chunks, keys of other layers: the cache grows then."""
    model = make()
    with pytest.warns(OnnxExporterWarning, match="gets a cache that every step copies") as caught:
        path = bundle(model, tmp_path, layout="genai")
    assert [w.message.code for w in caught if isinstance(w.message, OnnxExporterWarning)] == [
        "OA705"
    ]
    assert not shares(path)
    assert "GroupQueryAttention" not in operators(path)
    made = Decoder(path).generate(torch.tensor([ROWS[0]]), max_new_tokens=STEPS).tolist()
    assert made == expected(model, ROWS[:1])


def test_without_optimizations(tmp_path: Path) -> None:
    path = bundle(models.llama(), tmp_path, layout="genai", optimize="safe")
    assert not shares(path)
    made = Decoder(path).generate(torch.tensor([ROWS[0]]), max_new_tokens=4).tolist()
    assert made == expected(models.llama(), ROWS[:1], 4)
