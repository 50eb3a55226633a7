"""Exports a language model for onnxruntime-genai, and describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx_aot.errors import warn
from onnx_aot.generation.exports import export_decoder, verify_steps
from onnx_aot.generation.fused_inputs import keep_padding, rotate_inside, take_joined
from onnx_aot.generation.shared_caches import in_place, read_lengths_of_mask, states_not_in_place
from onnx_aot.generation.sliding_windows import keep_windows, layers_with_windows

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["describe_for_genai", "export_for_genai"]

OPSET = 23
"""Opset with operators for normalization and rotary embeddings, which genai's runtime loads."""

JOINED = {"joined_products"}
"""The rule that computes queries, keys and values at once, in which form attention takes them."""


def export_for_genai(model: Any, *, bounded: bool = True, **options: Any) -> ONNXProgram:
    """Exports a decoder whose cache stays in the buffers that genai gives it, if it can.

    Otherwise a warning says so, and the model is exported again, without the operator for that:
    each step returns the earlier keys and values with the new ones behind.

    Args:
        model: A language model of transformers.
        bounded: Let buffers of layers with a sliding window hold the window alone, where the
            operator can. A program without shared buffers, as in a beam search, fails then.
        **options: Other options of ``export_decoder``. The opset is 23 by default.

    Raises:
        OnnxExporterError: As ``export_decoder`` raises.
    """
    options = {"opset_version": OPSET, **options, "bounded": False}
    optimize = in_place(options.get("optimize", True))
    if optimize is None:
        return export_decoder(model, **options)
    program = export_decoder(model, **{**options, "optimize": optimize})
    others = states_not_in_place(program)
    if not others:
        read_lengths_of_mask(program)
        program.optimize(JOINED)
        rotate_inside(program, _context_length(model))
        take_joined(program)
        if options.get("verify") and program.has_values:
            verify_steps(program, model)
        if bounded:
            keep_windows(program)
        keep_padding(program)
        return program
    warn(
        f"{type(model).__name__} gets a cache that every step copies, with "
        f"past_present_share_buffer=false: GroupQueryAttention cannot take {others[0]} and "
        f"{len(others) - 1} other state(s). It computes causal attention, with or without a "
        "window, a cap on scores and sinks, on heads of a multiple of 8 elements",
        "OA705",
    )
    return export_decoder(model, **options)


def describe_for_genai(model: Any, program: ONNXProgram) -> dict[str, Any]:
    """Returns the contents of ``genai_config.json``.

    Args:
        model: The model, of transformers.
        program: The result of ``export_for_genai``.
    """
    inputs = [str(value.name) for value in program.inputs]
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    length = _context_length(model)
    named = {name: name for name in ("input_ids", "attention_mask", "position_ids")}
    key_values = {
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "hidden_size": config.hidden_size,
        "inputs": {**{name: name for name in named if name in inputs}, **key_values},
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": heads,
        "num_hidden_layers": sum(name.endswith(".key") for name in inputs),
        "num_key_value_heads": getattr(config, "num_key_value_heads", None) or heads,
    }
    window, layers = layers_with_windows(program)
    if layers:
        decoder["sliding_window"] = {
            "window_size": window,
            "slide_key_value_cache": False,  # the operator does it
            "slide_inputs": False,
            "layers": layers,
        }
    tokens = {
        name: _token(model, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    if tokens["pad_token_id"] is None:
        eos = tokens["eos_token_id"]
        tokens["pad_token_id"] = eos[0] if isinstance(eos, list) else eos
    return {
        "model": {
            **{name: value for name, value in tokens.items() if value is not None},
            "context_length": length,
            "decoder": decoder,
            "type": "decoder",
            "vocab_size": config.vocab_size,
        },
        "search": {
            "do_sample": False,
            "max_length": length,
            "min_length": 0,
            "num_beams": 1,
            "past_present_share_buffer": not states_not_in_place(program),
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 1,
            "top_p": 1.0,
        },
    }


def _context_length(model: Any) -> int:
    """The number of tokens that a model is for."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2048


def _token(model: Any, name: str) -> Any:
    """A special token of the generation, or of the model."""
    generation = getattr(model, "generation_config", None)
    chosen = getattr(generation, name, None)
    return chosen if chosen is not None else getattr(model.config.get_text_config(), name, None)
