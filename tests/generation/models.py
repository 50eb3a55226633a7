"""Small language models whose weights are spread, so that matching output is not a coincidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from benchmarks.models.torchvision_cpu import load_torchvision
from onnx_aot.generation import Decoder
from onnx_aot.inspection.differences import compare_outputs

load_torchvision()  # before transformers, which imports it
transformers = pytest.importorskip("transformers")

VOCABULARY, STEPS = 64, 20
TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
DECODER = TOKENS | {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}
BOTH = TOKENS | {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": 1,
}
MELS, FRAMES, WINDOW = 8, 40, 4


def spread(model: Any, seed: int = 0, width: float = 0.5) -> Any:
    """Returns the model in evaluation mode, with weights that distinguish tokens."""
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=width, generator=generator)
    return model.eval()


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    return spread(transformers.GPT2LMHeadModel(transformers.GPT2Config(**TOKENS, **sizes)))


def llama() -> Any:
    return spread(transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)))


def qwen2() -> Any:
    return spread(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**DECODER)))


def mistral(window: int = WINDOW) -> Any:
    """Model that attends to the last few tokens."""
    config = transformers.MistralConfig(**DECODER, sliding_window=window)
    return spread(transformers.MistralForCausalLM(config), seed=2)


def gemma2(window: int = WINDOW) -> Any:
    """Model that attends to the last few tokens in every other layer."""
    config = transformers.Gemma2Config(
        **DECODER, head_dim=8, sliding_window=window, tie_word_embeddings=False
    )
    return spread(transformers.Gemma2ForCausalLM(config))


def _untied(model: Any) -> Any:
    """Unties the output head; a model that shares it with the embedding repeats its input."""
    model.lm_head = torch.nn.Linear(16, VOCABULARY, bias=False)
    return model


def t5() -> Any:
    config = transformers.T5Config(
        **TOKENS, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return spread(_untied(transformers.T5ForConditionalGeneration(config)), seed=3)


def bart() -> Any:
    config = transformers.BartConfig(**BOTH, max_position_embeddings=64, forced_eos_token_id=None)
    return spread(_untied(transformers.BartForConditionalGeneration(config)), seed=2, width=0.3)


def whisper() -> Any:
    sizes = {"num_mel_bins": MELS, "max_source_positions": FRAMES // 2, "max_target_positions": 64}
    config = transformers.WhisperConfig(**BOTH, **sizes)
    return spread(transformers.WhisperForConditionalGeneration(config), seed=3, width=0.8)


def prompts(left: bool = True, length: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns two rows of tokens and their mask; the first row is shorter."""
    ids = torch.randint(3, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[0, slice(0, 3) if left else slice(length - 3, length)] = 0
    return ids * mask, mask


def generated(model: Any, **inputs: Any) -> torch.Tensor:
    """Returns generated tokens that are distinctive: no near ties, and different tokens."""
    found = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=STEPS,
        return_dict_in_generate=True,
        output_scores=True,
    )
    best = torch.stack(found.scores).topk(2, -1).values
    assert float((best[..., 0] - best[..., 1]).min()) > 1e-3
    new = found.sequences[:, -STEPS:]
    assert len(found.scores) == STEPS
    assert len(new.unique()) >= 8
    assert not torch.equal(new[0], new[1])
    return found.sequences


def stepwise(
    decoder: Decoder, cache: Any, ids: torch.Tensor, lengths: Sequence[int], others: Any
) -> torch.Tensor:
    """Returns logits of tokens passed in several steps; ``others`` gives more inputs per step."""
    logits, start = [], 0
    for length in lengths:
        part = ids[:, start : start + length]
        found, cache = decoder.step({"input_ids": part} | others(start, start + length), cache)
        logits.append(found)
        start += length
    assert start == ids.shape[1]
    return torch.cat(logits, 1)


def assert_same(expected: torch.Tensor, actual: torch.Tensor) -> None:
    """Checks closeness within the dtype's tolerance; the expected values must vary."""
    assert expected.std() > 0.1
    (difference,) = compare_outputs(["logits"], [expected], [actual])
    assert difference.within, difference


Make = Callable[[], Any]
