"""Runs greedy generation with exported decoders in ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

import torch

from onnx_aot.errors import InferenceError, InvalidOptionError

if TYPE_CHECKING:
    import onnxruntime

    from onnx_aot.program.program import ONNXProgram

__all__ = ["Cache", "Decoder", "EncoderDecoder"]

PAST, PRESENT = "past_key_values", "present"

Cache = dict[str, "onnxruntime.OrtValue"]
"""States by name of the decoder's input, such as keys and values, as ONNX Runtime holds them."""

Source = Union["ONNXProgram", str, "os.PathLike[str]", "onnxruntime.InferenceSession"]


class Decoder:
    """Runs a decoder with a cache, as ``export_decoder`` exports it, in ONNX Runtime.

    Examples:
        >>> decoder = Decoder("model.onnx")
        >>> tokens = decoder.generate(input_ids, attention_mask, max_new_tokens=20)

    Args:
        model: A program, the path of its file, or a session of ONNX Runtime for it, made with the
            providers and options of your choice.

    Raises:
        InvalidOptionError: The model does not have the inputs and outputs of such a decoder.
    """

    def __init__(self, model: Source) -> None:
        self._session = _session_for(model)
        self._model = model  # which may hold the file that the session reads
        self._inputs = {value.name: value for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]
        missing = {"input_ids", "logits"} - {*self._inputs, *self._outputs}
        without = [
            name for name in self._outputs if _past_name(name) not in {*self._inputs, "logits"}
        ]
        if missing or without or not any(name.startswith("past_") for name in self._inputs):
            raise InvalidOptionError(
                f"the model has the inputs {', '.join(self._inputs)} and the outputs "
                f"{', '.join(self._outputs)}; a decoder has input_ids and {PAST}.0.key among its "
                f"inputs, and returns logits and {PRESENT}.0.key: see export_decoder",
                code="OA702",
            )

    def empty_cache(self, batch: int) -> Cache:
        """Returns the cache before the first step: keys and values of length 0, other states of 0.

        Keys and values from an encoder are not in it.

        Args:
            batch: Number of rows.
        """
        own = [_past_name(name) for name in self._outputs if name != "logits"]
        return {name: _make_empty_state(self._inputs[name], batch) for name in own}

    def step(self, inputs: Mapping[str, torch.Tensor], cache: Cache) -> tuple[torch.Tensor, Cache]:
        """Runs the model once.

        Args:
            inputs: Tensors by name, such as ``input_ids`` and ``attention_mask``. Those that the
                model does not have are left out.
            cache: The cache of all earlier steps; it is not changed.

        Returns:
            Logits, ``[batch, sequence, vocabulary]``, and the cache for the next step. Its tensors
            stay where ONNX Runtime put them.

        Raises:
            InferenceError: An input is missing, or ONNX Runtime rejects it.
        """
        from onnx_aot.program.session import to_ort

        given = {name: to_ort(t) for name, t in inputs.items() if name in self._inputs}
        feeds = {**given, **cache}
        outputs = dict(zip(self._outputs, _run(self._session, feeds), strict=True))
        logits = _to_tensor(outputs.pop("logits"))
        return logits, cache | {_past_name(name): value for name, value in outputs.items()}

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        max_new_tokens: int = 20,
        eos_token_id: int | Collection[int] | None = None,
        pad_token_id: int = 0,
    ) -> torch.Tensor:
        """Repeatedly appends the most likely token.

        Args:
            input_ids: Prompts, int64, ``[batch, sequence]``, the shorter ones padded on the left.
            attention_mask: int64 of the same shape, 0 at padding; None if there is no padding.
            max_new_tokens: Maximum number of tokens to append.
            eos_token_id: Tokens that end a row; None if no token does.
            pad_token_id: Token appended to rows that have ended, while others go on.

        Returns:
            The prompts with the new tokens, int64, ``[batch, sequence + new tokens]``, as
            ``model.generate(..., do_sample=False)`` returns them.

        Raises:
            InferenceError: The prompts do not fit, or a row is padded on the right.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if input_ids.dim() != 2 or mask.shape != input_ids.shape or not input_ids.numel():
            raise InferenceError(
                f"input_ids is {list(input_ids.shape)} and attention_mask {list(mask.shape)}; both "
                "are [batch, sequence], of one token or more",
                code="OA702",
            )
        if not bool(mask[:, -1].all()):
            raise InferenceError(
                "attention_mask is 0 in the last column: a prompt is padded on the right, so "
                "its next token would follow padding. Pad on the left (padding_side='left')",
                code="OA702",
            )
        return self._continue_generation(
            input_ids,
            mask,
            self.empty_cache(len(input_ids)),
            max_new_tokens,
            _Ending(eos_token_id, pad_token_id, len(input_ids)),
        )

    def _continue_generation(
        self,
        tokens: torch.Tensor,
        mask: torch.Tensor,
        cache: Cache,
        count: int,
        ending: _Ending,
        others: Mapping[str, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Runs the generation loop; ``others`` are inputs that every step gets."""
        new = tokens
        for _ in range(count):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new.shape[1] :]
            given = {"input_ids": new, "attention_mask": mask, "position_ids": positions}
            logits, cache = self.step(given | dict(others or {}), cache)
            new = ending.apply(logits[:, -1].argmax(-1))[:, None]
            tokens = torch.cat([tokens, new], 1)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            if ending.all:
                break
        return tokens


class EncoderDecoder:
    """Runs an encoder and a decoder with a cache in ONNX Runtime.

    Examples:
        >>> model = EncoderDecoder("encoder.onnx", "decoder.onnx")
        >>> tokens = model.generate({"input_ids": ids, "attention_mask": mask}, start)

    Args:
        encoder: A program, path or session of what ``export_encoder`` exports.
        decoder: A program, path or session of what ``export_decoder`` exports.

    Raises:
        InvalidOptionError: The encoder's outputs are not those that the decoder takes.
    """

    def __init__(self, encoder: Source, decoder: Source) -> None:
        self._encoder = _session_for(encoder)
        self._model = encoder
        self._decoder = Decoder(decoder)
        self._outputs = [value.name for value in self._encoder.get_outputs()]
        own = {*self._decoder.empty_cache(1)}
        needed = {name for name in self._decoder._inputs if name.startswith(PAST)} - own
        given = {_past_name(name) for name in self._outputs if name.startswith(PRESENT)}
        if needed != given:
            raise InvalidOptionError(
                f"the encoder returns {', '.join(sorted(given)) or 'no keys and values'}, and "
                f"the decoder takes {', '.join(sorted(needed)) or 'none'}. Export both from one "
                "model, with export_encoder and export_decoder",
                code="OA702",
            )

    def generate(
        self,
        inputs: Mapping[str, torch.Tensor],
        decoder_input_ids: torch.Tensor,
        *,
        max_new_tokens: int = 20,
        eos_token_id: int | Collection[int] | None = None,
        pad_token_id: int = 0,
    ) -> torch.Tensor:
        """Repeatedly appends the most likely token.

        Args:
            inputs: Inputs of the encoder by name. ``attention_mask`` goes to the decoder too.
            decoder_input_ids: Tokens to begin with, int64, ``[batch, sequence]``, without padding:
                ``config.decoder_start_token_id`` in each row, or a prompt.
            max_new_tokens: Maximum number of tokens to append.
            eos_token_id: Tokens that end a row; None if no token does.
            pad_token_id: Token appended to rows that have ended, while others go on.

        Returns:
            ``decoder_input_ids`` with the new tokens, int64, ``[batch, sequence + new tokens]``.

        Raises:
            InferenceError: An input is missing, or ONNX Runtime rejects it.
        """
        from onnx_aot.program.session import to_ort

        feeds = {name: to_ort(tensor) for name, tensor in inputs.items()}
        outputs = dict(zip(self._outputs, _run(self._encoder, feeds), strict=True))
        cache = self._decoder.empty_cache(len(decoder_input_ids))
        cache |= {
            _past_name(name): held for name, held in outputs.items() if name.startswith(PRESENT)
        }
        others = {}
        if "attention_mask" in inputs:
            others["encoder_attention_mask"] = inputs["attention_mask"]
        return self._decoder._continue_generation(
            decoder_input_ids,
            torch.ones_like(decoder_input_ids),
            cache,
            max_new_tokens,
            _Ending(eos_token_id, pad_token_id, len(decoder_input_ids)),
            others,
        )


class _Ending:
    """Tracks which rows have ended."""

    def __init__(self, tokens: int | Collection[int] | None, pad: int, rows: int) -> None:
        ids: Iterable[int] = (tokens,) if isinstance(tokens, int) else tokens or ()
        self._ids = torch.tensor(list(ids), dtype=torch.int64)
        self._pad = pad
        self._ended = torch.zeros(rows, dtype=torch.bool)

    def apply(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the tokens of a step, with padding for rows that ended before it."""
        tokens = tokens.masked_fill(self._ended, self._pad)
        self._ended |= torch.isin(tokens, self._ids)
        return tokens

    @property
    def all(self) -> bool:
        """True if every row has ended."""
        return bool(self._ended.all())


def _past_name(name: str) -> str:
    """Name of the input that takes an output in the next step."""
    if name.startswith(f"{PRESENT}."):
        return name.replace(PRESENT, PAST, 1)
    return name.replace(f"{PRESENT}_", "past_", 1)


def _session_for(model: Source) -> onnxruntime.InferenceSession:
    import onnxruntime

    from onnx_aot.program.program import ONNXProgram
    from onnx_aot.program.session import create_session

    if isinstance(model, onnxruntime.InferenceSession):
        return model
    if not isinstance(model, ONNXProgram):
        return create_session(os.fspath(model))
    made: list[onnxruntime.InferenceSession] = []

    def keep(source: str | bytes) -> onnxruntime.InferenceSession:
        made.append(create_session(source))
        return made[0]

    model._create_session(keep, torch.device("cpu"))
    return made[0]


def _make_empty_state(declared: Any, batch: int) -> onnxruntime.OrtValue:
    """Returns zeros of length 0, or of a fixed size, in the shape and type of a session's input."""
    import onnx_ir as ir

    from onnx_aot import dtypes
    from onnx_aot.program.session import to_ort

    sizes = [batch, *(size if isinstance(size, int) else 0 for size in declared.shape[1:])]
    kind = ir.DataType[declared.type.removeprefix("tensor(").removesuffix(")").upper()]
    return to_ort(torch.zeros(sizes, dtype=dtypes.to_torch(kind)))


def _run(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, onnxruntime.OrtValue]
) -> list[onnxruntime.OrtValue]:
    missing = [value.name for value in session.get_inputs() if value.name not in feeds]
    if missing:
        raise InferenceError(
            f"the model also takes {', '.join(missing)}; got {', '.join(feeds)}", code="OA702"
        )
    try:
        return list(session.run_with_ort_values(None, dict(feeds)))
    except Exception as error:
        raise InferenceError(f"ONNX Runtime refuses the inputs: {error}", code="OA608") from error


def _to_tensor(value: onnxruntime.OrtValue) -> torch.Tensor:
    from onnx_aot.program.session import from_ort

    return from_ort(value)
