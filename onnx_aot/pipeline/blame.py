"""Finds the cause when an exported model differs from PyTorch, and says how to fix it."""

from __future__ import annotations

import inspect
import linecache
import logging
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch.fx

from onnx_aot.capture.sizes.squeezes import may_change_rank
from onnx_aot.errors import SourceLocation
from onnx_aot.inspection.size_checks import other_sizes
from onnx_aot.inspection.verification import Blame, describe_sizes
from onnx_aot.metadata.keys import FX_NODE
from onnx_aot.metadata.provenance import place
from onnx_aot.options import Options
from onnx_aot.torch_compat import OpOverload, overload_of, schema_of

if TYPE_CHECKING:
    from onnx_aot.inspection.comparison import Comparison
    from onnx_aot.inspection.differences import SizeResult
    from onnx_aot.program.program import ONNXProgram

__all__ = ["blame"]

logger = logging.getLogger(__name__)

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def blame(
    program: ONNXProgram, inputs: Inputs, results: Sequence[SizeResult], options: Options
) -> Blame | None:
    """Finds the cause of a failed verification.

    The candidates, in this order: a kernel that the runtime lacks; a squeeze of a dynamic
    dimension; an optimization without which the value is right; the translation of the first
    operator that is wrong by itself; a model that computes something else while it is captured.

    Args:
        program: The program that failed.
        inputs: Example inputs, positional and by keyword.
        results: Results of the verification, per set of sizes.
        options: Options that the program was made with.

    Returns:
        The cause, or None if it is none of these.
    """
    failed = next(result for result in results if result.failed)
    if failed.runtime_refuses:
        return _missing_kernels(program, options.target)
    others = () if failed.is_example else other_sizes(program, *inputs)
    sizes = [(s.args, s.kwargs) for s in others if s.sizes == failed.sizes]
    args, kwargs = sizes[0] if sizes else inputs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were issued before
            comparison = program.compare(args, kwargs)
            if comparison.first is not None:
                return _first_wrong(program, comparison, options)
            return _captured_otherwise(program, args, kwargs, failed)
    except Exception as error:  # the difference that is being explained matters more
        logger.info("what is to blame could not be found: %s: %s", type(error).__name__, error)
        return None


def _missing_kernels(program: ONNXProgram, target: str | None) -> Blame | None:
    from onnx_aot.targets import FAMILY, RUNTIME, find_kernels, unsupported_nodes

    if target is not None and find_kernels(target).runtime in FAMILY:
        return None
    nodes = unsupported_nodes(program.model, RUNTIME)
    if not nodes:
        return None
    kinds: dict[str, None] = {}
    for node in nodes:
        typed = next((value for value in node.inputs if value is not None), node.outputs[0])
        kinds[f"{node.op_type} of {typed.dtype}"] = None
    return Blame(
        f"ONNX Runtime has no kernel for {', '.join(kinds)}, which the model has with "
        f"target={target!r}",
        _find_lines(program, (node.meta.get(FX_NODE) for node in nodes)),
        'export with target="onnxruntime", the default, which writes such nodes so that they run; '
        "or compute in another type, such as float32",
    )


def _first_wrong(program: ONNXProgram, comparison: Comparison, options: Options) -> Blame | None:
    """Blames the optimization or translation that the first wrong value comes from."""
    row = comparison.first
    assert row is not None
    places = _find_lines(program, [row.fx_node])
    node = _node_of(program, row.fx_node)
    if node is not None and may_change_rank(node) and row.expected != row.actual:
        return Blame(
            f"{row.operator} removes dynamic dimensions where their size is 1, so PyTorch's result "
            f"is {row.expected} there; values of an ONNX model have one rank at every size, and it "
            f"gives {row.actual}",
            places,
            "name dimensions that are always 1, as in squeeze(1) instead of squeeze(); or make the "
            "result of one rank with reshape",
        )
    found = comparison.bisect()
    if found.guilty:
        names = " and ".join(found.guilty)
        makes = "makes" if len(found.guilty) == 1 else "make"
        return Blame(
            f"the optimization {names} {makes} {row.fx_node} wrong, which is right without",
            places,
            f"export with optimize={_set_of(found.optimize)}, which leaves {names} out, and report "
            f"{names} as a bug of onnx_aot",
        )
    if row.origin != "own":
        return Blame(found.reason, places, "program.compare() shows every value")
    yours = _function_of_user(None if node is None else node.target, options)
    if yours is None and node is not None and _may_order_equals(program, comparison, node):
        return Blame(
            f"{row.operator} finds the same values at other places; PyTorch does not define which "
            "of equal values comes first",
            places,
            "if values may be equal there, let results depend on the values only, or make them "
            "distinct, as by adding their positions times a tiny number; if not, report it as a "
            "bug of onnx_aot",
        )
    if yours is None:
        return Blame(
            f"the translation of {row.operator} gives another {row.fx_node} than PyTorch does, "
            "from the same inputs",
            places,
            f"report it as a bug of onnx_aot; meanwhile give {row.operator} a translation of your "
            "own: custom_translation_table={operator: function}",
        )
    return Blame(
        f"your translation of {row.operator}, {getattr(yours, '__name__', repr(yours))}, gives "
        f"another {row.fx_node} than PyTorch does, from the same inputs",
        (*places, *_find_definition(yours)),
        "correct the function, or leave it out of custom_translation_table where onnx_aot has a "
        "translation of its own",
    )


_CHOOSING = {"topk", "sort", "kthvalue", "median", "nanmedian", "mode", "max", "min"}
"""Operators that return values and, as the last result, the places where they are."""


def _may_order_equals(program: ONNXProgram, comparison: Comparison, node: torch.fx.Node) -> bool:
    """True if the places that an operator such as ``topk`` returns differ, and no value does."""
    target = node.target
    if (
        not isinstance(target, OpOverload)
        or schema_of(target).name.removeprefix("aten::") not in _CHOOSING
    ):
        return False
    rows = [row for row in comparison.rows if _node_of(program, row.fx_node) is node]
    return len(rows) > 1 and [row.within for row in rows] == [True] * (len(rows) - 1) + [False]


def _captured_otherwise(
    program: ONNXProgram, args: Any, kwargs: Any, failed: SizeResult
) -> Blame | None:
    """Blames the capture of a model whose ONNX values all agree with the captured graph's."""
    if not failed.is_example:
        return Blame(
            "the ONNX model answers as the graph that was captured at the size of the example, and "
            f"the model's own code does something else at {describe_sizes(failed)}",
            (),
            "look for Python code that depends on the size, such as `if x.shape[0] == 1:`, and "
            "compute the same at every size; report.notes lists such lines",
        )
    from onnx_aot.inspection.verify import verify_against

    assert program.exported_program is not None
    differences = verify_against(program, program.exported_program.module(), args, kwargs)
    if not all(difference.right for difference in differences):
        return None
    return Blame(
        "the ONNX model answers as the graph that torch.export captured, and that graph answers "
        "otherwise than the model: its code does something else while it is captured",
        (),
        "look for code that asks torch.onnx.is_in_onnx_export(), torch.compiler.is_exporting() or "
        "is_compiling(), or for values, as of a mask in which nothing is masked, and do without; "
        "or give example inputs for which both agree, such as a mask that masks something, if the "
        "model will get only such",
    )


def _set_of(names: Iterable[str] | None) -> str:
    return f"{{{', '.join(map(repr, sorted(names)))}}}" if names else "False"


def _find_lines(program: ONNXProgram, names: Iterable[Any]) -> tuple[SourceLocation, ...]:
    """Lines of the user's code that captured nodes come from."""
    assert program.exported_program is not None
    wanted = set(names)
    found = [place(n) for n in program.exported_program.graph.nodes if n.name in wanted]
    return tuple(dict.fromkeys(where for where in found if where is not None))


def _node_of(program: ONNXProgram, name: str) -> torch.fx.Node | None:
    """The captured node of a name; for an item of several results, the node that computes them."""
    assert program.exported_program is not None
    nodes = {node.name: node for node in program.exported_program.graph.nodes}
    node = nodes.get(name, nodes.get(name.rpartition("__")[0]))
    while node is not None and getattr(node.target, "__name__", "") == "getitem":
        node = node.args[0] if isinstance(node.args[0], torch.fx.Node) else None
    return node


def _function_of_user(target: Any, options: Options) -> Any:
    """The user's translation of an operator, or None."""
    custom = options.custom_translation_table or {}
    table = {overload_of(key): value for key, value in custom.items()}
    given = table.get(target, table.get(getattr(target, "overloadpacket", None)))
    if given is None:
        from onnx_aot.ops.user.process_registrations import registered_translations

        entries = registered_translations().get(target)
        given = entries[0].function if entries else None
    return given[0] if isinstance(given, (list, tuple)) else given


def _find_definition(function: Any) -> tuple[SourceLocation, ...]:
    """First line of a function; empty for callables without Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ()
    file, line = code.co_filename, code.co_firstlineno
    return (SourceLocation(file, line, code.co_name, linecache.getline(file, line).strip()),)
