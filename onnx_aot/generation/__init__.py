"""Language models that generate: exports with a key-value cache, and greedy loops over them.

Names are those of Hugging Face's optimum: ``input_ids``, ``attention_mask``, ``position_ids`` and
``past_key_values.0.key`` go in, ``logits`` and ``present.0.key`` come out.
"""

from __future__ import annotations

from onnx_aot.generation.decoding import Cache, Decoder, EncoderDecoder
from onnx_aot.generation.exports import export_decoder, export_encoder

__all__ = ["Cache", "Decoder", "EncoderDecoder", "export_decoder", "export_encoder"]
