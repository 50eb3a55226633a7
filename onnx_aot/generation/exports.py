"""Exports decoders and encoders of transformers as ONNX programs with a key-value cache."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnx_aot.errors import InvalidOptionError, OnnxExporterError, warn, warnings_held
from onnx_aot.export import export
from onnx_aot.generation.caches import Layout, State, cache_parameter, cached_states
from onnx_aot.generation.examples import (
    CAPTURED,
    KINDS,
    Sizes,
    decoder_inputs,
    encoder_inputs,
    encoder_outputs,
    main_input,
    reads_tokens,
    step_inputs,
)
from onnx_aot.generation.experts import all_experts
from onnx_aot.generation.halves import make_decoder_forward, make_encoder_forward, replace_forward
from onnx_aot.generation.shared_caches import writes_in_place
from onnx_aot.generation.shortcuts import (
    continues_text,
    refuse_limits,
    refuse_other_texts,
    refuse_other_ways,
)
from onnx_aot.generation.steps import make_step_forward
from onnx_aot.pytrees.containers import own_caches

if TYPE_CHECKING:
    from onnx_aot.program.program import ONNXProgram

__all__ = ["export_decoder", "export_encoder", "is_recurrent", "save_program", "verify_steps"]

# Names of dimensions, the same as in optimum.
BATCH, SEQUENCE = "batch_size", "sequence_length"
PAST, ENCODED = "past_sequence_length", "encoder_sequence_length"
WINDOW, TOTAL = "past_window_length", "total_sequence_length"
TOKENS = {0: BATCH, 1: SEQUENCE}
AXES = {
    "input_ids": TOKENS,
    "position_ids": TOKENS,
    "attention_mask": {0: BATCH, 1: f"{PAST} + {SEQUENCE}"},
    "encoder_attention_mask": {0: BATCH, 1: ENCODED},
}

IN_PLACE = (*KINDS, Sizes(1, CAPTURED.sequence, CAPTURED.past))
"""Steps of a decoder whose cache is written in place: several tokens behind a past in one row."""

PADDED_BEFORE = tuple(dataclasses.replace(sizes, padded=sizes.past > 0) for sizes in IN_PLACE)
"""The same without padding among the new tokens, whose results nobody reads."""

DECIDED = ("args", "kwargs", "dynamic_axes", "input_names", "output_names")


def export_decoder(
    model: torch.nn.Module,
    f: str | os.PathLike[str] | Any | None = None,
    *,
    bounded: bool = True,
    by_token: bool | None = None,
    **options: Any,
) -> ONNXProgram:
    """Exports a language model of transformers so that one program does all steps of a generation.

    A step takes new tokens and the states that the step before returned, and returns logits and the
    states for the next one. ``Decoder`` runs it in a loop. The states are keys and values of
    earlier tokens, of length 0 in the first step, and recurrent states of fixed size, zeros in the
    first step.

    Inputs, integers as int64:

    * ``input_ids``: ``[batch_size, sequence_length]``;
    * ``attention_mask``: ``[batch_size, past_sequence_length + sequence_length]``, for all tokens
      so far, 0 at padding, which may stand before or behind the tokens of a row. Its length is
      called ``total_sequence_length`` if no layer keeps all keys and values;
    * ``position_ids``: like ``input_ids``, if the model takes them;
    * ``past_key_values.<layer>.key`` and ``.value``: ``[batch_size, heads, past_sequence_length,
      size]``, in the type of the model. Those of a layer with a sliding window have the length
      ``past_window_length``, at most the window less 1;
    * ``past_conv.<layer>``, ``past_ssm.<layer>``, ``past_recurrent.<layer>`` and
      ``past_state.<number>``: ``[batch_size, ...]``, if the model has recurrent states.

    Outputs: ``logits``, ``[batch_size, sequence_length, vocabulary]``, and for each state one with
    ``present`` in place of ``past_key_values`` or ``past``. Keys and values have the length
    ``past_sequence_length + sequence_length``; with a window, at most the window less 1.

    The decoder of a model with an encoder takes ``input_ids``; ``encoder_attention_mask``,
    ``[batch_size, encoder_sequence_length]``, if the encoder reads tokens;
    ``past_key_values.<layer>.decoder.key`` and ``.value``, as above but without a limit; and
    ``past_key_values.<layer>.encoder.key`` and ``.value``, ``[batch_size, heads,
    encoder_sequence_length, size]``, which ``export_encoder``'s program returns once. It returns
    ``logits`` and ``present.<layer>.decoder.key`` and ``.value``.

    Args:
        model: A ``...ForCausalLM`` or ``...ForConditionalGeneration`` with text on the decoder's
            side, in evaluation mode.
        f: Where to save it, as in ``onnx_aot.export``.
        bounded: Let layers with a sliding window keep only what later tokens attend to. False for
            runtimes that read the number of earlier tokens from the keys of any layer: all keys and
            values have one length then, and the window is in the mask alone.
        by_token: Let the program read the tokens of a step one after another, in a loop. Models
            with recurrent states have code for one token, which is fast, and mostly other code for
            several. None for what is right: the loop for states that sum up all earlier tokens,
            and one pass over the tokens for other models; the other way if the first is refused.
            True also accepts, with a warning, a model that gives other logits if it reads one token
            after another than for the whole text, which is refused otherwise.
        **options: Options of ``onnx_aot.export``, except the inputs, which are made here, their
            dynamic dimensions and the names. ``verify=True`` also compares steps without a past,
            of one token and of one row with PyTorch.

    Raises:
        InvalidOptionError: The model keeps no states, or an option is not accepted.
        DynamicShapeError: The model computes first steps, or those of one token, differently; or a
            text in steps differently from one without a cache. Nothing has been saved.
        OnnxExporterError: As ``onnx_aot.export`` raises.
    """
    if _check_arguments(model, options, (*DECIDED, "dynamic_shapes")).is_encoder_decoder:
        return _decoder_after_encoder(model, f, options)
    layout = _layout_of(model, bounded)
    refused: OnnxExporterError | None = None
    for way in _ways(model, layout) if by_token is None else (by_token,):
        kept = _layout_of(model, False) if way and layout.windows else layout
        try:
            with warnings_held() as held:
                program = _export_steps(model, kept, way, options, alone=by_token is True)
        except OnnxExporterError as error:
            refused = refused or error
        else:
            for message, code in held:
                warn(message, code)
            if f is not None:
                save_program(program, f, options)
            return program
    assert refused is not None
    raise refused


def save_program(program: ONNXProgram, f: Any, options: Mapping[str, Any]) -> None:
    """Saves a program as ``onnx_aot.export`` does with the same options."""
    program.save(
        f,
        include_initializers=options.get("export_params", True),
        keep_initializers_as_inputs=options.get("keep_initializers_as_inputs", False),
        external_data=options.get("external_data", "auto"),
    )


def verify_steps(program: ONNXProgram, model: Any) -> None:
    """Compares steps of a decoder whose cache is written in place with PyTorch, without padding.

    Args:
        program: A result of ``export_decoder`` with ``bounded=False``, which may have been changed.
        model: The model, of transformers.

    Raises:
        OnnxExporterError: As ``onnx_aot.export`` raises if results differ.
    """
    layout = _layout_of(model, bounded=False)
    kinds = [dataclasses.replace(sizes, padded=False) for sizes in IN_PLACE]
    step = functools.partial(make_step_forward, layout=layout, by_token=False)
    with replace_forward(model, step, decoder_inputs(model, layout, CAPTURED)):
        _verify_kinds(program, model, lambda sizes: decoder_inputs(model, layout, sizes), kinds)


def is_recurrent(model: Any) -> bool:
    """True if a decoder has states of a fixed size.

    Raises:
        InvalidOptionError: The model is not of transformers, or keeps no states.
    """
    _check_arguments(model, {}, ())
    return _layout_of(model, True).is_recurrent


def _layout_of(model: Any, bounded: bool) -> Layout:
    return cached_states(model, {"input_ids": torch.ones(2, 1, dtype=torch.int64)}, bounded=bounded)


def _ways(model: Any, layout: Layout) -> tuple[bool, ...]:
    """Returns the values of ``by_token`` that are tried, in this order.

    Raises:
        InvalidOptionError: There are recurrent states, and weights have no values.
    """
    if not layout.is_recurrent:
        return (False,)
    if layout.sums_up and any(weight.is_meta for weight in model.parameters()):
        raise InvalidOptionError(
            f"{type(model).__name__} has recurrent states, and weights without values: whether "
            "steps give what a whole text gives is found by computing both. Export it with the "
            "values of its weights",
            code="OA701",
        )
    if not continues_text(model):
        return (True,)
    return (True, False) if layout.sums_up else (False, True)


def _export_steps(
    model: Any, layout: Layout, by_token: bool, options: Mapping[str, Any], alone: bool
) -> ONNXProgram:
    """Exports a decoder without an encoder; ``alone`` is that of ``refuse_other_texts``."""
    parameter = str(cache_parameter(model.forward))
    given = decoder_inputs(model, layout, CAPTURED)
    axes = {name: dict(AXES[name]) for name in given if name in AXES}
    if not layout.has_all_positions:  # no state tells how many tokens there were
        axes["attention_mask"][1] = TOTAL
    step = functools.partial(make_step_forward, layout=layout, by_token=by_token)
    with all_experts(model), replace_forward(model, step, given):
        program = _export_program(
            model,
            lambda sizes: decoder_inputs(model, layout, sizes),
            options,
            dynamic_shapes={**axes, parameter: _axes_of(layout, PAST)},
            input_names=[*axes, *(state.name for state in layout.states)],
            output_names=["logits", *(state.present for state in layout.states)],
        )
    if layout.is_recurrent:
        refuse_limits(program, model)
    if layout.is_recurrent or layout.windows:
        refuse_other_texts(program, model, layout, alone)
    return program


def export_encoder(
    model: torch.nn.Module,
    f: str | os.PathLike[str] | Any | None = None,
    *,
    inputs: Mapping[str, torch.Tensor] | None = None,
    dynamic_shapes: Mapping[str, Any] | None = None,
    **options: Any,
) -> ONNXProgram:
    """Exports the encoder of an encoder-decoder, with the keys and values for the decoder's side.

    The program is run once per generation, before ``export_decoder``'s. Its outputs are
    ``last_hidden_state``, ``[batch_size, encoder_sequence_length, size]``, and
    ``present.<layer>.encoder.key`` and ``.value``, ``[batch_size, heads, encoder_sequence_length,
    size of a head]`` for every layer of the decoder.

    Args:
        model: A ``...ForConditionalGeneration`` of transformers, in evaluation mode.
        f: Where to save it, as in ``onnx_aot.export``.
        inputs: Example inputs of the encoder by parameter of ``model.forward``. By default, for
            models that read tokens, ``input_ids`` and ``attention_mask``, int64 of shape
            ``[batch_size, encoder_sequence_length]``.
        dynamic_shapes: Their dynamic dimensions, as in ``onnx_aot.export``; by default the batch,
            and for the default inputs also the length.
        **options: Other options of ``onnx_aot.export``.

    Raises:
        InvalidOptionError: The model has no encoder, reads something other than tokens and no
            ``inputs`` are given, or an option is not accepted.
        OnnxExporterError: As ``onnx_aot.export`` raises.
    """
    config = _check_arguments(model, options, DECIDED)
    name, read = type(model).__name__, main_input(model)
    if not config.is_encoder_decoder:
        raise InvalidOptionError(
            f"{name} has no encoder; export it with export_decoder alone", code="OA701"
        )
    if inputs is None and not reads_tokens(model):
        raise InvalidOptionError(
            f"the encoder of {name} reads {read}; pass an example of it: "
            f"export_encoder(model, inputs={{{read!r}: ...}})",
            code="OA701",
        )
    axes = {0: BATCH} if inputs is not None else {0: BATCH, 1: ENCODED}
    given = dict(encoder_inputs(model) if inputs is None else inputs)
    cross = cached_states(model, encoder_outputs(model), "encoder")
    with all_experts(model), replace_forward(model, make_encoder_forward, given):
        return export(
            model,
            f=f,
            kwargs=given,
            dynamic_shapes=dict(dynamic_shapes or dict.fromkeys(given, axes)),
            input_names=list(given),
            output_names=["last_hidden_state", *(state.present for state in cross.states)],
            **options,
        )


def _decoder_after_encoder(model: Any, f: Any, options: Mapping[str, Any]) -> ONNXProgram:
    example = encoder_outputs(model)
    own, cross = (cached_states(model, example, side, False) for side in ("decoder", "encoder"))

    def make_inputs(sizes: Sizes) -> dict[str, Any]:
        return step_inputs(model, own, cross, sizes)

    captured = make_inputs(CAPTURED)
    named = [name for name in captured if name in AXES]
    width = example["encoder_outputs"].last_hidden_state.shape[-1]
    forward = functools.partial(make_decoder_forward, width=width)
    with all_experts(model), replace_forward(model, forward, captured):
        program = _export_program(
            model,
            make_inputs,
            options,
            dynamic_shapes={
                **{name: AXES[name] for name in named},
                "past_key_values": {
                    "self_attention_cache": _axes_of(own, PAST),
                    "cross_attention_cache": _axes_of(cross, ENCODED),
                },
            },
            input_names=[*named, *(state.name for state in (*own.states, *cross.states))],
            output_names=["logits", *(state.present for state in own.states)],
        )
    if f is not None:
        save_program(program, f, options)
    return program


def _export_program(
    model: torch.nn.Module,
    inputs: Callable[[Sizes], dict[str, Any]],
    options: Mapping[str, Any],
    **decided: Any,
) -> ONNXProgram:
    """Exports a program, and checks that the steps that were not captured are right too.

    ``export`` itself verifies sizes that satisfy all guards of the capture, and so neither a step
    without a past nor one of a single token. With a cache that is written in place, it cannot: the
    captured step has two rows, and only one can have several tokens behind a past.
    """
    example, verify = inputs(CAPTURED), options.get("verify")
    in_place = writes_in_place(options)
    if in_place:
        options = {**options, "verify": False}
    with own_caches(example):
        program = export(model, kwargs=example, **decided, **options)
        refuse_other_ways(program, model, inputs)
        if verify and program.has_values:
            kinds = IN_PLACE if _zeroes_padding(program) else PADDED_BEFORE
            _verify_kinds(program, model, inputs, kinds if in_place else KINDS)
    return program


def _zeroes_padding(program: ONNXProgram) -> bool:
    """True if torch's operator computes attention: it gives zeros for padding, as the fusion does.

    Where a model computes it with other operators, padding gets the average of all values.
    """
    assert program.exported_program is not None
    nodes = program.exported_program.graph.nodes
    return any("scaled_dot_product_attention" in str(node.target) for node in nodes)


def _verify_kinds(
    program: ONNXProgram,
    model: torch.nn.Module,
    inputs: Callable[[Sizes], dict[str, Any]],
    kinds: Sequence[Sizes],
) -> None:
    from onnx_aot.inspection.verification import make_error

    results = []
    for sizes in kinds:
        for result in program.verify(model, (), inputs(sizes), sizes=False).results:
            # Sizes of 0 would excuse a runtime that refuses the step; an empty past must not.
            shown = {name: size for name, size in result.sizes.items() if size}
            results.append(dataclasses.replace(result, is_example=False, sizes=shown))
    if any(result.failed for result in results):
        raise make_error(results)


# --- names and options ---------------------------------------------------------------------------


def _axes_of(layout: Layout, length: str) -> list[dict[int, str] | None]:
    """Dimensions of all states, as ``dynamic_shapes`` takes those of a container."""

    def axes(state: State | None) -> dict[int, str] | None:
        if state is None or state.axis is None:
            return None if state is None else {0: BATCH}
        if state.window is None:
            return {0: BATCH, state.axis: length}
        suffix = "" if len(layout.windows) == 1 else f"_{state.window}"
        return {0: BATCH, state.axis: WINDOW + suffix}

    return [axes(state) for state in layout.leaves]


def _check_arguments(model: Any, options: Mapping[str, Any], decided: Sequence[str]) -> Any:
    """Checks the model and the options, and returns the model's configuration.

    Raises:
        InvalidOptionError: The model is not of transformers, or an option is not accepted.
    """
    transformers = sys.modules.get("transformers")  # imported already if it made the model
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        raise InvalidOptionError(
            f"model is a {type(model).__name__}; expected a language model of transformers, such "
            "as AutoModelForCausalLM returns. Export other models with onnx_aot.export, which "
            "takes a cache among the inputs, and names in input_names and output_names",
            code="OA701",
        )
    wrong = [name for name in decided if name in options]
    if wrong:
        raise InvalidOptionError(
            f"this function sets {', '.join(wrong)} itself. Use onnx_aot.export for other inputs "
            "and names",
            code="OA701",
        )
    if options.get("runtime_checks"):
        raise InvalidOptionError(
            "runtime_checks=True makes the model refuse sizes for which its code has shortcuts, "
            "such as steps without a past or of one token, although these give the same "
            "results. Leave it out; verify=True compares such steps with PyTorch",
            code="OA703",
        )
    return model.config
