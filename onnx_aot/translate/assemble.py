"""Assembles the ONNX model from its interface, the walked graph and metadata."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import torch

from onnx_aot.builder.builder import Builder
from onnx_aot.dimensions.symbols import Dimensions
from onnx_aot.graph.names import Names
from onnx_aot.graph.opset_range import built_opset
from onnx_aot.metadata.stamp import Metadata
from onnx_aot.translate.interface import Interface
from onnx_aot.translate.ir_version import ir_version
from onnx_aot.translate.request import Request
from onnx_aot.translate.runtime_checks import collect_constraints, emit_checks
from onnx_aot.translate.walker import Statistics, Walker

__all__ = ["Translated", "translate"]


@dataclasses.dataclass(frozen=True)
class Translated:
    """The translated model and how it was made.

    Attributes:
        model: The model, in the opset that ``built_opset`` gives.
        statistics: How operators were translated.
        state: Current values of state that is an input, by input name.
        weights: Values of parameters and buffers that are inputs, also by input name.
    """

    model: ir.Model
    statistics: Statistics
    state: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


def translate(program: torch.export.ExportedProgram, request: Request) -> Translated:
    """Translates a functional program without changing it.

    Raises:
        UnsupportedOperatorError: Operators that cannot be translated, all of them.
        TranslationError: A translation failed on a node.
        InvalidOptionError: More names than there are values to name, a name given twice, or a
            name in ``weights_as_inputs`` that fits no weight.
    """
    names = Names(reserved=(*request.input_names, *request.output_names))
    op = Builder(request.opset, request.seed, request.custom_opsets)
    metadata = Metadata(request.metadata, request.relative_to)
    dimensions = Dimensions(request.dimension_names, program.range_constraints)
    op.state.sizes.algebra = dimensions
    walker = Walker(
        op=op,
        table=request.table,
        dimensions=dimensions,
        names=names,
        metadata=metadata,
        unsupported=request.unsupported,
        decompose=request.decompose,
    )
    graph = program.graph_module.graph
    walker.check_supported(graph)

    interface = Interface(program, request, walker, names, metadata, dimensions)
    interface.enter()
    walker.translate_nodes(graph)
    interface.finish()
    outputs = interface.outputs
    wanted = collect_constraints(program, interface.inputs, dimensions)
    if request.runtime_checks:
        outputs = emit_checks(op, wanted, interface.inputs, outputs, names)
    op.state.sizes.name_unknown(op.nodes, dimensions.unique)

    for constant in op.constants:
        if constant.uses():
            constant.name = names.unique(constant.name or "const")
    constants = [value for value in op.constants if value.uses()]
    main = ir.Graph(
        interface.inputs,
        outputs,
        nodes=op.nodes,
        initializers=[*interface.weights, *constants],
        opset_imports={"": built_opset(request.opset), **op.state.domains.imports},
        name="main_graph",
    )
    metadata.describe_graph(main, program)
    metadata.describe_dimensions(main, wanted.ranges, wanted.relations, wanted.conditions)
    functions = list(op.functions.values())
    model = ir.Model(
        main,
        ir_version=ir_version(main, functions),
        producer_name="onnx_aot",
        producer_version=request.producer_version,
        functions=functions,
    )
    return Translated(model, walker.statistics, interface.state, interface.weight_inputs)
