"""Lets every language model of transformers generate, exported and in PyTorch, and compares tokens.

The rows are all model types of transformers' two mappings for text generation, with random weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.models.torchvision_cpu import load_torchvision
from benchmarks.zoo_models.transformers_rows import make_tiny_config
from benchmarks.zoo_models.transformers_text import LATENT, OPTIONS

__all__ = ["NOTHING", "REFUSED", "RIGHT", "WRONG", "generate_both", "model_types"]

RIGHT, WRONG, REFUSED, NOTHING = "right", "wrong", "refused", "nothing to compare"
STEPS = 8
START = 2
"""Token with which decoders behind an encoder begin."""

ALONE, BEHIND = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"

LARGEST = 700e6
"""Parameters above which a configuration is not small, as where fields have unknown names."""

_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
_SHARING = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 4,
    "altup_num_inputs": 2,
}
_INDEXED = {
    "layer_types": ["linear_attention", "indexed_attention"],
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
}
_WINDOWED = {
    "unpadded_vocab_size": 64,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "sliding_window_size": 8,
}

# Options that model types need besides those of the zoo: valid sizes, and one layer of each kind.
_OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("axk1", "axk2", "deepseek_v32", "sarvam_mla", "glm_moe_dsa", "dots3_note_text"), LATENT
    ),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "olmo_hybrid"), _MIXED),
    **{key: {"text_config": _MIXED} for key in ("qwen3_5", "qwen3_5_moe")},
    **{key: {**_MIXED, **LATENT} for key in ("bailing_hybrid", "kimi_linear")},
    "bamba": {**OPTIONS["bamba"], "attn_layer_indices": [1]},
    "granitemoehybrid": {**OPTIONS["granitemoehybrid"], "layer_types": ["mamba", "attention"]},
    "dory": {
        "num_hidden_layers": 4,
        "n_input_layers": 1,
        "n_output_layers": 1,
        "n_recurrent_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "dots1": {"n_shared_experts": 1},
    "gemma3n": {"text_config": _SHARING},
    "gemma3n_text": _SHARING,
    "inkling2_loop_text": _WINDOWED,
    "inkling2_text": _WINDOWED,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 2},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "qwen4_exp": {"text_config": _INDEXED},
    "qwen4_exp_text": _INDEXED,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds": False, "is_decoder": True},
    "zaya": {"num_experts_per_tok": 1},
}


def model_types() -> dict[str, str]:
    """Returns transformers' auto class for each row, by ``type`` or ``type, with an encoder``."""
    load_torchvision()  # before transformers, which imports it
    from transformers.models.auto import modeling_auto

    alone = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    behind = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return dict.fromkeys(alone, ALONE) | {f"{name}, with an encoder": BEHIND for name in behind}


def generate_both(name: str) -> dict[str, str]:
    """Returns the outcome of a row, and its reason unless it is right.

    The outcome is ``RIGHT`` if the exported model gives the tokens that transformers' ``generate``
    gives: for a prompt, a shorter one, and both padded to one length, which have to be those of
    the prompts alone, or those that ``generate`` gives for the padded ones.
    """
    auto = model_types()[name]
    try:
        model = _build(name.removesuffix(", with an encoder"), auto)
        expected = _generate(model, auto)
    except Exception as error:
        return {"outcome": NOTHING, "reason": _first_line(error)}
    reasons = []
    for way in ({}, {"by_token": True}) if auto == ALONE else ({},):
        try:
            actual = _generate_exported(model, auto, way)
        except Exception as error:
            reasons.append(_first_line(error))
            continue
        wrong = [case for case, tokens in actual.items() if tokens not in expected[case]]
        how = "with by_token=True" if way else ""
        if wrong:
            return {
                "outcome": WRONG,
                "reason": f"other tokens for {', '.join(wrong)} {how}".strip(),
            }
        return {"outcome": RIGHT, "reason": how}
    return {"outcome": REFUSED, "reason": reasons[0]}


def _build(kind: str, auto: str) -> Any:
    import transformers

    config = make_tiny_config(kind, {**OPTIONS.get(kind, {}), **_OPTIONS.get(kind, {})})
    if auto == ALONE and hasattr(config, "is_decoder"):
        config.is_decoder = True
    if auto == BEHIND and not config.is_encoder_decoder:
        raise ValueError("it has no encoder")
    if hasattr(config, "decoder_start_token_id"):
        config.decoder_start_token_id = START
    with torch.device("meta"):
        size = sum(w.numel() for w in getattr(transformers, auto).from_config(config).parameters())
    if size > LARGEST:
        raise ValueError(f"the configuration is not small: {size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = getattr(transformers, auto).from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.3)  # else the tokens hardly depend on the input
    return model


def _prompts(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns two rows of 7 tokens, 3 of which are padding in the first row, and the mask."""
    head = model.get_output_embeddings()
    words = min(getattr(head, "weight", torch.empty(64)).shape[0], 64)
    tokens = torch.randint(3, words, (2, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    return tokens * mask, mask


def _generate(model: Any, auto: str) -> dict[str, list[Any]]:
    """Returns the accepted tokens of each case, by transformers alone."""
    settings = model.generation_config
    for field in ("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens"):
        setattr(settings, field, None)
    settings.begin_suppress_tokens, settings.no_repeat_ngram_size = None, 0
    if auto != ALONE:
        settings.decoder_start_token_id = settings.bos_token_id = START
    tokens, mask = _prompts(model)

    def generate(*args: torch.Tensor, **given: torch.Tensor) -> list[list[int]]:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = model.generate(
                *args, **given, do_sample=False, num_beams=1, max_new_tokens=STEPS,
                min_new_tokens=STEPS, eos_token_id=None, pad_token_id=0, use_cache=True,
            )  # fmt: skip
        return [[int(token) for token in row] for row in made]

    one = generate(tokens[1:])
    if auto != ALONE:
        return {"one row": [one]}
    short = generate(tokens[:1, 3:])
    padded = [[*[0] * 3, *short[0]], one[0]]
    accepted = [padded]
    for rows in ((slice(0, 2),), (slice(0, 1), slice(1, 2))):  # together, and each for itself
        try:
            made = [generate(tokens[part], attention_mask=mask[part]) for part in rows]
        except Exception:  # it takes no mask
            continue
        accepted.append([row for part in made for row in part])
    return {"one row": [one], "a shorter row": [short], "a padded batch": accepted}


def _generate_exported(model: Any, auto: str, way: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tokens of each case, by the exported model in ONNX Runtime."""
    from onnx_aot.generation import Decoder, EncoderDecoder, export_decoder, export_encoder

    tokens, mask = _prompts(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export_decoder(model, **way)
        encoder = None if auto == ALONE else export_encoder(model)
    if encoder is not None:
        taken = {value.name for value in encoder.inputs}
        text = {"input_ids": tokens[1:], "attention_mask": mask[1:]}
        given = {key: value for key, value in text.items() if key in taken}
        start = torch.full((1, 1), START)
        made = EncoderDecoder(encoder, program).generate(given, start, max_new_tokens=STEPS)
        return {"one row": made.tolist()}
    decoder = Decoder(program)
    return {
        "one row": decoder.generate(tokens[1:], max_new_tokens=STEPS).tolist(),
        "a shorter row": decoder.generate(tokens[:1, 3:], max_new_tokens=STEPS).tolist(),
        "a padded batch": decoder.generate(tokens, mask, max_new_tokens=STEPS).tolist(),
    }


def _first_line(error: Exception) -> str:
    """The error's class and first sentence; the line behind it if that ends with a colon."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    text = lines[0].partition(". ")[0]
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1]}"
    return f"{type(error).__name__}: {text}"[:400]
