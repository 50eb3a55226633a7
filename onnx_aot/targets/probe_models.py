"""Makes models of one node for runtimes that do not list their kernels, with what they compute.

The samples are ONNX's own tests of operators, which ``onnx`` installs. Each is tried in every
version of its operator and in all types that the standard accepts there. What is expected comes
from the installed ONNX Runtime, or from ONNX's reference implementation where it has no kernel.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import itertools
import json
import math
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_aot.graph.opset_range import BUILT_OPSET, MAX_OPSET
from onnx_aot.targets.kernels import Signature, signature

__all__ = ["Array", "Probe", "decode_array", "encode_probe", "make_probes", "probe_opsets"]

Array = np.ndarray[Any, Any]

TYPES = tuple(
    ir.DataType[name]
    for name in (
        *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64"),
        *("UINT8", "UINT16", "UINT32", "UINT64", "BOOL"),
    )
)
SIMPLEST = 3
COMBINATIONS = 140
ELEMENTS = 20_000
"""The simplest samples per operator, the combinations of types of each, and elements of inputs."""

# Attributes that name the type of a result.
TYPE_ATTRIBUTES = ("to", "dtype")

# Operators whose results are random, or not defined by their inputs.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


@dataclasses.dataclass(frozen=True)
class Probe:
    """A model of one node.

    Attributes:
        name: A name that no other probe has.
        op_type: The operator.
        version: Opset in which the operator last changed.
        types: Names of element types by type variable.
        model: The model.
        inputs: Inputs by name.
        outputs: Names of the outputs.
        expected: Values of the outputs; None if the runtime only has to run the model.
        alone: Whether one variable at a time has another type than in the sample, because there
            are too many combinations.
    """

    name: str
    op_type: str
    version: int
    types: dict[str, str]
    model: onnx.ModelProto
    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    expected: list[Array] | None
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class _Sample:
    """A node, with inputs and outputs."""

    name: str
    node: onnx.NodeProto
    inputs: dict[str, Array]
    outputs: dict[str, Array]

    @property
    def kind(self) -> list[str]:
        """Types of the inputs."""
        return [array.dtype.name for array in self.inputs.values()]


def encode_probe(probe: Probe) -> str:
    """Returns what a program in the runtime's environment reads, a line of JSON."""
    inputs = [{"name": name, **_encode(array)} for name, array in probe.inputs.items()]
    model = base64.b64encode(probe.model.SerializeToString()).decode()
    held = {"name": probe.name, "model": model, "inputs": inputs, "outputs": probe.outputs}
    return json.dumps(held)


def _encode(array: Array) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def decode_array(entry: Mapping[str, Any]) -> Array:
    """Reads an array from JSON."""
    dtype = ir.DataType.BFLOAT16.numpy() if entry["dtype"] == "bfloat16" else entry["dtype"]
    return np.frombuffer(base64.b64decode(entry["data"]), dtype).reshape(entry["shape"])


def probe_opsets() -> Iterator[Probe]:
    """Yields a model of ``Identity`` for each opset and for each IR version."""
    x = np.ones([2], np.float32)
    for opset in range(BUILT_OPSET, MAX_OPSET + 1):
        model = _make_model(helper.make_node("Identity", ["x"], ["y"]), opset, {"x": x}, {"y": x})
        yield Probe(f"opset.{opset}", "", opset, {}, model, {"x": x}, ("y",), [x])
    for version in range(8, onnx.IR_VERSION + 1):
        model = _make_model(
            helper.make_node("Identity", ["x"], ["y"]), BUILT_OPSET, {"x": x}, {"y": x}
        )
        model.ir_version = version
        yield Probe(f"ir_version.{version}", "", version, {}, model, {"x": x}, ("y",), [x])


def make_probes(operators: Container[str] | None = None) -> Iterator[Probe]:
    """Yields models in every version and type, from opset ``BUILT_OPSET`` on.

    Args:
        operators: The operators; all by default.
    """
    opsets = range(BUILT_OPSET, MAX_OPSET + 1)
    for op_type, samples in sorted(_collect_samples().items()):
        if operators is not None and op_type not in operators:
            continue
        found = {types.version for n in opsets if (types := signature(op_type, n)) is not None}
        for version in sorted(found):
            for sample, as_it_is in _choose(samples):
                yield from _vary(op_type, version, sample, as_it_is)


def _collect_samples() -> dict[str, list[_Sample]]:
    """Reads ONNX's tests that have one node, whose inputs and outputs are numbers."""
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[_Sample]] = collections.defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is None or not case.data_sets:
            continue
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].domain or case.model.functions:
            continue
        given, results = case.data_sets[0]
        inputs = _as_arrays(given)
        outputs = _as_arrays(results)
        if inputs is None or outputs is None or len(inputs) != len(graph.input):
            continue
        if sum(array.size for array in inputs) <= ELEMENTS:
            names = [value.name for value in graph.input], [value.name for value in graph.output]
            held = [
                dict(zip(*pair, strict=True)) for pair in zip(names, (inputs, outputs), strict=True)
            ]
            found[graph.node[0].op_type].append(_Sample(case.name, graph.node[0], *held))
    for sample in _make_further_samples():
        found[sample.node.op_type].insert(0, sample)
    return found


def _make_further_samples() -> Iterator[_Sample]:
    """Yields samples of operators for which ONNX has no test, or none that fits.

    Its tests of Loop are of an early opset, and those of Cast have numbers that most types lack.
    """
    x = np.array([[0.5, 1.5], [2.0, 3.0]], np.float32)
    cast = helper.make_node("Cast", ["x"], ["y"], to=ir.DataType.FLOAT.value)
    yield _Sample("small", cast, {"x": x}, {"y": x})
    like = helper.make_node("CastLike", ["x", "like"], ["y"])
    yield _Sample("small", like, {"x": x, "like": x}, {"y": x})
    for op_type in ("RandomNormal", "RandomUniform"):
        node = helper.make_node(op_type, [], ["y"], shape=[2, 2])
        yield _Sample("shape", node, {}, {"y": x})
        like = helper.make_node(f"{op_type}Like", ["x"], ["y"])
        yield _Sample("like", like, {"x": x}, {"y": x})
    samples = helper.make_node("Multinomial", ["x"], ["y"], sample_size=3)
    yield _Sample("samples", samples, {"x": x}, {"y": np.zeros([2, 3], np.int32)})
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes_on"]),
            helper.make_node("Add", ["held", "held"], ["doubled"]),
        ],
        "body",
        [
            _declare("step", np.int64(0), []),
            _declare("go", np.bool_(True), []),
            _declare("held", x, x.shape),
        ],
        [_declare("goes_on", np.bool_(True), []), _declare("doubled", x, x.shape)],
    )
    loop = helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)
    yield _Sample("steps", loop, {"steps": np.array(3, np.int64), "x": x}, {"y": 8 * x})


def _as_arrays(values: Sequence[Any]) -> list[Array] | None:
    """Converts values of a test to arrays; None if one is a text, a sequence or optional."""
    arrays = []
    for held in values:
        value = numpy_helper.to_array(held) if isinstance(held, onnx.TensorProto) else held
        if not isinstance(value, np.ndarray | np.generic):
            return None
        arrays.append(np.asarray(value))
    try:
        types = {ir.DataType.from_numpy(array.dtype) for array in arrays}
    except TypeError:
        return None
    return arrays if ir.DataType.STRING not in types else None


def _choose(samples: Sequence[_Sample]) -> Iterator[tuple[_Sample, bool]]:
    """Yields the simplest samples, and, with True, one of each other combination of types."""
    ordered = sorted(samples, key=lambda one: (len(one.node.attribute), len(one.node.input)))
    for place, sample in enumerate(ordered):
        kind = sample.kind
        if place < SIMPLEST:
            yield sample, False
        elif all(kind != other.kind for other in ordered[:place]):
            yield sample, True


def _vary(op_type: str, version: int, sample: _Sample, as_it_is: bool) -> Iterator[Probe]:
    """Yields a sample in a version of its operator, with its types or each combination of types."""
    opset = max(version, BUILT_OPSET)
    types = signature(op_type, opset)
    fitted = _fit_to_version(sample, opset)
    if types is None or fitted is None:
        return
    node, inputs = fitted
    bound = _bind(types, node, inputs, sample.outputs)
    choices = {
        variable: list(dict.fromkeys((dtype, *(t for t in TYPES if t in types.accepted[variable]))))
        for variable, dtype in bound.items()
    }
    if as_it_is:
        choices = {variable: [dtype] for variable, dtype in bound.items()}
    alone = math.prod(map(len, choices.values())) > COMBINATIONS
    for chosen in _combine(bound, choices, alone):
        made = _retype(types, node, inputs, sample.outputs, chosen)
        # Runtimes may need the inputs that are weights, sizes or axes to be constants.
        first = next(iter(inputs), "")
        for constant in (False, True) if len(inputs) > 1 else (False,):
            given = {first} if constant else set(inputs)
            try:
                model = _make_model(made[0], opset, made[1], made[2], given)
                onnx.checker.check_model(model)
                onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
            except (ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
                continue  # the types do not go together
            texts = ",".join(f"{variable}={dtype.name}" for variable, dtype in chosen.items())
            feeds = {name: array for name, array in made[1].items() if name in given}
            yield Probe(
                f"{op_type}.{version}.{sample.name}.{texts}.{'constant' * constant}",
                op_type,
                version,
                {key: dtype.name for key, dtype in chosen.items()},
                model,
                feeds,
                tuple(made[2]),
                None if op_type in RANDOM else _compute(model, feeds),
                alone,
            )


def _fit_to_version(sample: _Sample, opset: int) -> tuple[onnx.NodeProto, dict[str, Array]] | None:
    """Writes a node in an earlier opset, in which inputs may have been attributes."""
    node = onnx.NodeProto()
    node.CopyFrom(sample.node)
    inputs = dict(sample.inputs)
    schema = onnx.defs.get_schema(node.op_type, opset)
    newest = onnx.defs.get_schema(node.op_type, MAX_OPSET)
    for place in range(schema.max_input, len(node.input)):
        name = newest.inputs[min(place, len(newest.inputs) - 1)].name
        value = inputs.pop(node.input[place], None)
        if value is None or not value.size or name not in schema.attributes:
            return None
        node.attribute.append(helper.make_attribute(name, value.tolist()))
    del node.input[schema.max_input :]
    if any(attribute.name not in schema.attributes for attribute in node.attribute):
        return None
    return (node, inputs) if len(node.input) >= schema.min_input else None


def _bind(
    types: Signature,
    node: onnx.NodeProto,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> dict[str, ir.DataType]:
    """The types of the variables that the standard leaves open."""
    bound: dict[str, ir.DataType] = {}
    for variable, array in _pair(types, node, inputs, outputs):
        if variable in types.accepted:
            bound.setdefault(variable, ir.DataType.from_numpy(array.dtype))
    return bound


def _pair(
    types: Signature,
    node: onnx.NodeProto,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
) -> Iterator[tuple[str, Array]]:
    sides = ((types.inputs, node.input, inputs), (types.outputs, node.output, outputs))
    for variables, names, arrays in sides:
        for place, name in enumerate(names):
            variable = _variable_at(variables, place)
            if variable is not None and name in arrays:
                yield variable, arrays[name]


def _variable_at(variables: Sequence[str | None], place: int) -> str | None:
    return variables[min(place, len(variables) - 1)] if variables else None


def _combine(
    bound: Mapping[str, ir.DataType], choices: Mapping[str, list[ir.DataType]], alone: bool
) -> Iterator[dict[str, ir.DataType]]:
    """All combinations of types, or those that differ from the given ones in one variable."""
    if not alone:
        for chosen in itertools.product(*choices.values()):
            yield dict(zip(choices, chosen, strict=True))
        return
    yield dict(bound)
    for variable, dtypes in choices.items():
        for dtype in dtypes[1:]:
            yield {**bound, variable: dtype}


def _retype(
    types: Signature,
    node: onnx.NodeProto,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    chosen: Mapping[str, ir.DataType],
) -> tuple[onnx.NodeProto, dict[str, Array], dict[str, Array]]:
    """Returns a node, its inputs and its outputs in other types; the outputs have no values."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    new: list[dict[str, Array]] = []
    for variables, names, arrays in (
        (types.inputs, node.input, inputs),
        (types.outputs, node.output, outputs),
    ):
        held = {}
        for place, name in enumerate(names):
            if name in arrays:
                variable = _variable_at(variables, place)
                dtype = None if variable is None else chosen.get(variable)
                held[name] = arrays[name] if dtype is None else _convert(arrays[name], dtype)
        new.append(held)
    result = next(iter(new[1].values()), None)
    for attribute in made.attribute:
        if attribute.name in TYPE_ATTRIBUTES and result is not None:
            attribute.i = ir.DataType.from_numpy(result.dtype).value
    return made, new[0], new[1]


def _convert(array: Array, dtype: ir.DataType) -> Array:
    if ir.DataType.from_numpy(array.dtype) == dtype:
        return array
    if dtype == ir.DataType.BOOL:
        return np.asarray(array != 0)
    values = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=3.0, neginf=-3.0)
    if dtype.name.startswith("UINT"):
        values = np.abs(values)
    if not dtype.is_floating_point():
        values = np.round(values)
    with np.errstate(all="ignore"):  # the standard leaves open what is out of range
        return values.astype(dtype.numpy())


def _make_model(
    node: onnx.NodeProto,
    opset: int,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    given: set[str] | None = None,
) -> onnx.ModelProto:
    """A model of one node, in the lowest IR version; inputs that are not given are constants."""
    asked = inputs.keys() if given is None else given
    graph = helper.make_graph(
        [node],
        "probe",
        [_declare(name, array, array.shape) for name, array in inputs.items() if name in asked],
        [
            _declare(name, array, [f"{name}_{axis}" for axis in range(array.ndim)])
            for name, array in outputs.items()
        ],
        [
            ir.to_proto(ir.tensor(array, name=name))
            for name, array in inputs.items()
            if name not in asked
        ],
    )
    opsets = [helper.make_opsetid("", opset)]
    least = helper.find_min_ir_version_for(opsets)
    return helper.make_model(graph, opset_imports=opsets, ir_version=least)


def _declare(
    name: str, array: Array | np.generic, shape: Sequence[int | str]
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ir.DataType.from_numpy(array.dtype).value, shape)


def _compute(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    """Runs a model in the installed ONNX Runtime, or in ONNX's reference implementation."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in (
            lambda: onnxruntime.InferenceSession(data, options, providers).run(None, dict(feeds)),
            lambda: ReferenceEvaluator(model).run(None, dict(feeds)),
        ):
            try:
                return [np.asarray(array) for array in run()]
            except Exception:
                continue
    return None
