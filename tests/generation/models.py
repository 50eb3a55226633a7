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
STATES = {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
MAMBA2 = {
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 4,
    "mamba_chunk_size": 4,
}
MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2}
WINDOW_AND_FULL = ["sliding_attention", "full_attention"]
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
    """Model that attends to the last few tokens in every other layer, with a cap on scores."""
    config = transformers.Gemma2Config(
        **DECODER,
        head_dim=8,
        sliding_window=window,
        tie_word_embeddings=False,
        attn_logit_softcapping=2.0,  # so low that tokens depend on it
    )
    return spread(transformers.Gemma2ForCausalLM(config))


def gpt_oss() -> Any:
    """Model with a window in every other layer, and experts."""
    config = transformers.GptOssConfig(
        **DECODER, **MIXTURE, head_dim=8, sliding_window=WINDOW, layer_types=WINDOW_AND_FULL
    )
    return spread(transformers.GptOssForCausalLM(config))


def llama4() -> Any:
    """Model with a layer that attends within chunks, whose borders depend on absolute positions."""
    config = transformers.Llama4TextConfig(
        **DECODER,
        head_dim=8,
        attention_chunk_size=WINDOW,
        intermediate_size_mlp=32,
        num_local_experts=2,
        num_experts_per_tok=1,
        layer_types=["chunked_attention", "full_attention"],
    )
    return spread(transformers.Llama4ForCausalLM(config))


def gemma3n() -> Any:
    """Model whose last layers use the keys and values of earlier ones."""
    config = transformers.Gemma3nTextConfig(
        **DECODER | {"num_hidden_layers": 4},
        head_dim=8,
        sliding_window=WINDOW,
        layer_types=WINDOW_AND_FULL * 2,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8,
        laurel_rank=4,
        altup_num_inputs=2,
        tie_word_embeddings=False,
    )
    return spread(transformers.Gemma3nForCausalLM(config))


def lfm2() -> Any:
    """Model with states of convolutions, and with attention."""
    config = transformers.Lfm2Config(
        **DECODER, layer_types=["conv", "full_attention"], block_multiple_of=8
    )
    return spread(transformers.Lfm2ForCausalLM(config), seed=3)


def mamba() -> Any:
    config = transformers.MambaConfig(**TOKENS, **STATES, intermediate_size=32)
    return spread(transformers.MambaForCausalLM(config))


def mamba2() -> Any:
    """Model whose code for several tokens reads them in chunks of 4."""
    config = transformers.Mamba2Config(
        **TOKENS, **STATES, num_heads=4, head_dim=8, n_groups=1, chunk_size=4
    )
    return spread(transformers.Mamba2ForCausalLM(config))


def rwkv() -> Any:
    """Model whose states are tensors without a class, not all zeros at first."""
    config = transformers.RwkvConfig(
        **TOKENS, hidden_size=16, attention_hidden_size=16, num_hidden_layers=2, context_length=64
    )
    return spread(transformers.RwkvForCausalLM(config))


def jamba() -> Any:
    """Model with a layer of Mamba, one of attention, and experts."""
    config = transformers.JambaConfig(
        **DECODER,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        mamba_d_state=4,
        mamba_dt_rank=2,
        use_mamba_kernels=False,
    )
    return spread(transformers.JambaForCausalLM(config))


def falcon_h1() -> Any:
    """Model with attention and Mamba 2 side by side in each layer."""
    config = transformers.FalconH1Config(**DECODER, **MAMBA2, mamba_d_ssm=32)
    return spread(transformers.FalconH1ForCausalLM(config))


def qwen3_next() -> Any:
    """Model with linear attention, gated, and with experts."""
    config = transformers.Qwen3NextConfig(
        **DECODER,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    return spread(transformers.Qwen3NextForCausalLM(config))


def zamba2() -> Any:
    """Model that bounds its time steps where it reads several tokens, and not for one."""
    config = transformers.Zamba2Config(
        **DECODER | {"num_hidden_layers": 3},
        layers_block_type=["mamba", "mamba", "hybrid"],
        mamba_d_state=4,
        n_mamba_heads=4,
        mamba_headdim=8,
        mamba_ngroups=1,
        chunk_size=4,
        num_mem_blocks=1,
        adapter_rank=4,
        attention_head_dim=16,
    )
    return spread(transformers.Zamba2ForCausalLM(config))


def recurrent_gemma() -> Any:
    """Model that keeps its states in its modules."""
    config = transformers.RecurrentGemmaConfig(
        **DECODER, block_types=["recurrent", "attention"], attention_window_size=4, lru_width=16
    )
    return spread(transformers.RecurrentGemmaForCausalLM(config))


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


def switch() -> Any:
    """Mixture of experts of which a token takes one."""
    config = transformers.SwitchTransformersConfig(
        **TOKENS,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_sparse_encoder_layers=1,
        num_decoder_layers=2,
        num_sparse_decoder_layers=1,
        num_heads=2,
        num_experts=4,
        decoder_start_token_id=0,
    )
    model = transformers.SwitchTransformersForConditionalGeneration(config)
    return spread(_untied(model), seed=3)


def nllb_moe() -> Any:
    """Mixture of experts of which a token takes two."""
    config = transformers.NllbMoeConfig(
        **BOTH,
        num_experts=4,
        encoder_sparse_step=2,
        decoder_sparse_step=2,
        max_position_embeddings=64,
    )
    model = transformers.NllbMoeForConditionalGeneration(config)
    return spread(_untied(model), seed=3, width=0.3)


def longcat() -> Any:
    """Decoder with a mixture of experts, two of which return their input."""
    config = transformers.LongcatFlashConfig(
        **TOKENS,
        hidden_size=16,
        ffn_hidden_size=32,
        expert_ffn_hidden_size=16,
        num_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=4,
        zero_expert_num=2,
        moe_topk=2,
        q_lora_rank=8,
        kv_lora_rank=8,
        head_dim=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        max_position_embeddings=64,
    )
    return spread(transformers.LongcatFlashForCausalLM(config))


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
