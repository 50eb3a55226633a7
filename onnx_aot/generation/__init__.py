"""Exports language models with a cache, and generates greedily with the exports.

Names are those of Hugging Face's optimum: the inputs are ``input_ids``, ``attention_mask``,
``position_ids`` and ``past_key_values.0.key``, the outputs ``logits`` and ``present.0.key``.
Recurrent states have the names of transformers.js, such as ``past_conv.0``.
"""

from __future__ import annotations

from onnx_aot.generation.bundles import bundle
from onnx_aot.generation.decoding import Cache, Decoder, EncoderDecoder
from onnx_aot.generation.exports import export_decoder, export_encoder

__all__ = ["Cache", "Decoder", "EncoderDecoder", "bundle", "export_decoder", "export_encoder"]
