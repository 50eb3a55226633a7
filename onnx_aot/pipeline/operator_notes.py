"""Notes about operators of a translated model: what the target lacks, limits, placeholders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onnx_aot.options import Options
from onnx_aot.pipeline.recording import Note

if TYPE_CHECKING:
    import collections

    import onnx_ir as ir
    import torch

    from onnx_aot.targets import Adaptation

__all__ = [
    "describe_less_precise_types",
    "describe_limits",
    "describe_missing_kernels",
    "describe_unsupported",
    "describe_wide_integers",
]


def describe_less_precise_types(adaptations: Sequence[Adaptation], target: str) -> list[Note]:
    """Notes types for which the target has only a less precise kernel."""
    lossy = [
        f"{a.op_type} of {a.dtype} as {a.surrogate} ({a.count}x)" for a in adaptations if a.lossy
    ]
    if not lossy:
        return []
    return [
        Note(
            f"{target} has no kernel for the type of some nodes, which run in another and may be "
            f"less precise: {', '.join(lossy)}. target=None leaves them as they are",
            "OA405",
        )
    ]


def describe_missing_kernels(
    nodes: Sequence[ir.Node], target: str, captured: torch.export.ExportedProgram
) -> list[Note]:
    """Notes nodes that the target cannot run, with their lines."""
    if not nodes:
        return []
    from onnx_aot.metadata.keys import FX_NODE
    from onnx_aot.metadata.provenance import location
    from onnx_aot.targets import describe_nodes, find_kernels

    wanted = {str(node.meta.get(FX_NODE)) for node in nodes}
    lines = [location(node) for node in captured.graph.nodes if node.name in wanted]
    places = dict.fromkeys(str(line) for line in lines if line is not None)
    where = f" ({_list_some(places)})" if places else ""
    return [
        Note(
            f"{find_kernels(target).name} has no kernel for "
            f"{'; '.join(describe_nodes(nodes))}, and nothing replaces them, so the model does not "
            f"load there{where}. Compute in another type, such as float32, or choose another "
            "target",
            "OA405",
        )
    ]


def describe_wide_integers(captured: torch.export.ExportedProgram, options: Options) -> list[Note]:
    """Notes that quantized weights would be smaller, or faster, in a later opset."""
    from onnx_aot.dtypes import FOUR_BITS_SINCE  # onnx_ir is slow to import

    if options.opset >= FOUR_BITS_SINCE:
        return []
    user = captured.graph_signature.user_inputs
    nodes = [node for node in captured.graph.nodes if _is_small_weight(node, user)]
    if not nodes:
        return []
    return [
        Note(
            f"{len(nodes)} weight(s) of integers that four bits hold are stored one to a byte, "
            f"because opset {options.opset} has no such type. opset_version={FOUR_BITS_SINCE} "
            "stores two to a byte, with scales of groups in a form that ONNX Runtime multiplies "
            "without dequantizing",
            "OA408",
            quiet=True,
        )
    ]


def _is_small_weight(node: torch.fx.Node, user: Sequence[object]) -> bool:
    """True if a captured node dequantizes a weight whose integers fit into four bits."""
    import torch.fx

    from onnx_aot.torch_compat import OpOverload, schema_of

    if not isinstance(node.target, OpOverload) or not node.args:
        return False
    schema = schema_of(node.target)
    if "::dequantize_" not in schema.name:
        return False
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    low, high = given.get("quant_min"), given.get("quant_max")
    if not (isinstance(low, int) and isinstance(high, int) and high - low <= 15):
        return False
    held = node.args[0]
    return isinstance(held, torch.fx.Node) and held.op == "placeholder" and held.name not in user


def describe_limits(captured: torch.export.ExportedProgram) -> list[Note]:
    """Notes for the report about operators whose values ONNX Runtime computes differently."""
    import torch.fx

    from onnx_aot.metadata.provenance import location, target_name
    from onnx_aot.ops.registry import LIMITS, REPORTED

    found: dict[str, dict[str, None]] = {}
    for module in captured.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            types = REPORTED.get(node.target, ()) if node.op == "call_function" else ()
            given = node.all_input_nodes[:1]
            if not any(getattr(one.meta.get("val"), "dtype", None) in types for one in given):
                continue
            line = location(node)
            where = f"{target_name(node.target)}{'' if line is None else f' at {line}'}"
            found.setdefault(LIMITS[node.target], {})[where] = None
    return [
        Note(
            f"values may differ from PyTorch's in ONNX Runtime: {limit} ({_list_some(places)})",
            "OA406",
            quiet=True,
        )
        for limit, places in found.items()
    ]


def _list_some(places: Iterable[str], shown: int = 3) -> str:
    """The first places, and how many more there are."""
    first = list(places)
    more = f"; and {len(first) - shown} more" if len(first) > shown else ""
    return "; ".join(first[:shown]) + more


def describe_unsupported(
    unsupported: collections.Counter[str], model: ir.Model, options: Options
) -> list[Note]:
    """Notes operators that are nodes of their own names, and unused ``custom_opsets``."""
    notes = []
    if unsupported:
        shown = ", ".join(f"{target} ({n}x)" for target, n in unsupported.most_common())
        stands = "calls of local functions without a body" * (options.unsupported == "function")
        notes.append(
            Note(
                f"{len(unsupported)} operator(s) have no ONNX translation and are "
                f"{stands or 'nodes'} of domains of their own, which ONNX Runtime runs only with a "
                f"library of custom operators that has them: {shown}",
                "OA401",
            )
        )
    unused = (options.custom_opsets or {}).keys() - model.opset_imports.keys()
    if unused:
        notes.append(
            Note(
                f"custom_opsets names domains that the model has no operators of: {sorted(unused)}",
                "OA013",
            )
        )
    return notes
