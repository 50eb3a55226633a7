"""Looks up private names of torch; lists for each what is lost on a release without it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from onnx_aot.torch_compat.places import find_place

try:
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
except ImportError as error:  # without these there is no captured graph to read
    raise ImportError(
        f"onnx_aot does not work with torch {torch.__version__}, which lacks what captured graphs "
        f"consist of ({error}). Install a release that the README lists as tested"
    ) from error

__all__ = [
    "PRIVATE",
    "TORCH_FOLDER",
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "deregister_pytree_node",
    "hidden",
    "overload_of",
    "private",
    "private_attribute",
    "pytree",
]

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
"""Prefix of the paths of torch's own files."""

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_NODE = "torch.fx.experimental.sym_node:SymNode"
_PROGRAM = "torch.export:ExportedProgram"

_NO_COPIES = "Layers that repeat are all traced; the export of 64 equal layers takes twice as long."
_MODES_ARE_CALLED = "Captures of models with many weights take a tenth longer."
_BATCH_IS_FIXED = "Some operators under torch.vmap fix the dimension that it maps."
_NO_FUNCTION = "Custom operators need a translation if their kernel for CPUs is not in Python."

PRIVATE: dict[str, str] = {
    # programs
    f"{_PROGRAM}._guards_code": "Conditions on sizes of inputs are neither reported nor checked.",
    f"{_PROGRAM}._report": "Errors name no custom operators that lack a fake kernel.",
    "torch.fx._lazy_graph_module:_LazyGraphModule": (
        "Every copy of a graph generates its Python source, which takes as long as all passes."
    ),
    # sizes
    f"{_NODE}._expr": "Sizes are compared by their simplified expressions, which takes longer.",
    f"{_NODE}.expr": "Symbolic sizes are read without equalities that the capture found later.",
    f"{_NODE}.hint": (
        "Example values of sizes are unknown; dimensions of an ExportedProgram are not checked for "
        "sharing a name."
    ),
    f"{_SHAPES}:ShapeEnv.backed_var_to_val": "Example values of sizes are looked up elsewhere.",
    f"{_SHAPES}:ShapeEnv.var_to_range": "Limits of sizes are unknown; a size may be 0 or not.",
    f"{_SHAPES}:ShapeEnv.var_to_sources": "Errors do not say which input a size is of.",
    f"{_SHAPES}:ShapeEnv.var_to_stack": "Errors do not say which call gave a value.",
    f"{_SHAPES}:ShapeEnv.deferred_runtime_asserts": (
        "runtime_checks=True checks on both sides of a branch what the model states on one."
    ),
    f"{_SHAPES}:ShapeEnv._version_counter": (
        "A size of data that is a number on one way of a branch may count as that on the other."
    ),
    f"{_SHAPES}:ShapeEnv._replacements_version_counter": (
        "A size of data that is a number on one way of a branch may keep it on the other."
    ),
    f"{_SHAPES}:ShapeEnv.replacements": (
        "What a number of data is on one side of a branch, it counts as on the other, and sizes of "
        "1 that PyTorch repeats along a size of data are taken for that size."
    ),
    f"{_SHAPES}:ShapeEnv.guards": (
        "Models that pad to a multiple if that is necessary are captured once for each case."
    ),
    f"{_SHAPES}:ShapeEnv.size_like": "Questions about sizes of data have no answer.",
    f"{_SHAPES}:ShapeEnv.ignore_fresh_unbacked_symbols": (
        "Scripted models with sizes that depend on data are refused, as are models that write what "
        "weights compute to slices between numbers of data."
    ),
    f"{_SHAPES}:GuardOnDataDependentSymNode": (
        "Captures fail where they ask about the number of elements that data selects."
    ),
    f"{_SHAPES}:statically_known_true": "Scripted models keep branches that one side always takes.",
    f"{_SHAPES}:uninteresting_files": "Torch's own messages name lines of this package.",
    "torch:_sym_log2": "Logarithms of a dynamic size to base 2, and its number of bits, fix it.",
    "torch.utils._sympy.functions:FloorDiv": "Inner sizes that are quotients have no expression.",
    "torch.utils._sympy.functions:Max": "Inner sizes that are maxima have no expression.",
    "torch.utils._sympy.functions:Min": "Inner sizes that are minima have no expression.",
    "torch.utils._sympy.functions:Mod": "Inner sizes that are remainders have no expression.",
    "torch.utils._sympy.functions:simple_floordiv_gcd": (
        "Models that compute a size in many steps take a minute to be captured or refused."
    ),
    "torch.utils._sympy.printers:PythonPrinter": "Conditions are shown as Eq(n, 4), not n == 4.",
    "torch.utils._sympy.value_ranges:bound_sympy": "Questions about sizes of data have no answer.",
    "torch.utils._sympy.value_ranges:ValueRanges": "Questions about sizes of data have no answer.",
    "torch.utils._sympy.numbers:int_oo": "Questions about sizes of data have no answer.",
    "torch._dynamo.source:ConstantSource": "Relations such as n + 1 may be wrong for n = 0.",
    # tensors and tracing
    "torch:UntypedStorage._cdata": "Storages are told apart by weak references, which take longer.",
    "torch:Tensor._version": "Weights in files are mapped for a save, not copied by the system.",
    "torch._C._functorch:get_unwrapped": (
        "Writes to a buffer inside of torch.vmap are not seen if the row of vmap_impl is off, so a "
        "model that reads its value before takes it for a constant."
    ),
    "torch._C._functorch:is_batchedtensor": "x[k, rows] is refused where torch.vmap maps over k.",
    "torch._functorch.pyfunctorch:retrieve_current_functorch_interpreter": _BATCH_IS_FIXED,
    "torch._functorch.autograd_function:custom_function_call_vmap_helper": _BATCH_IS_FIXED,
    "torch._subclasses.fake_tensor:unset_fake_temporarily": (
        "Models that read numbers from buffers, constants and sizes in tensors are refused."
    ),
    "torch._subclasses.fake_tensor:in_kernel_invocation_manager": (
        "Layers that repeat are all traced, and torch works the shapes of views out: exports take "
        "longer."
    ),
    "torch._prims_common:is_contiguous_for_memory_format_or_false": (
        "Tensors with symbolic sizes count as not contiguous, so torch works their shapes out."
    ),
    "torch.fx.experimental.proxy_tensor:make_fx": (
        "No operator can be decomposed; one without a translation is unsupported."
    ),
    "torch.fx.experimental.proxy_tensor:disable_proxy_modes_tracing": (
        "Trial calls are recorded as nodes that nothing reads."
    ),
    "torch.fx.experimental.proxy_tensor:get_proxy_mode": "Models that set x.data are refused.",
    "torch.fx.experimental.proxy_tensor:get_proxy_slot": "Models that set x.data are refused.",
    "torch.fx.experimental.proxy_tensor:set_proxy_slot": "Models that set x.data are refused.",
    "torch._higher_order_ops.utils:reenter_make_fx": (
        "Models that branch on their data are refused."
    ),
    "torch._decomp:decomposition_table": (
        "Only the operators' own composite kernels take them apart; more are unsupported."
    ),
    "torch._ops:OpOverload._can_decompose": (
        "Only decompositions of torch's table are used; more operators are unsupported."
    ),
    "torch._higher_order_ops.map:map": "Keypoint models of torchvision cannot be exported.",
    "torch.utils._python_dispatch:TorchDispatchMode": (
        "verify=True refuses models whose rounding exceeds the tolerance in PyTorch too."
    ),
    "torch._C:DisableTorchFunction": "Switching gradients off is recorded in the graph.",
    "torch._guards:TracingContext.extract_stack": "Errors of strict captures name no line.",
    # registrations
    "torch._library.custom_ops:OPDEFS": _NO_FUNCTION,
    "torch._library.custom_ops:CustomOpDef._init_fn": _NO_FUNCTION,
    "torch.library:_impls": "Operators of torch.library.define need a translation.",
    "torch._C:DispatchKey": "Operators of torch.library.define need a translation.",
    "torch._C:DispatchKeySet": "Operators of torch.library.define need a translation.",
    "torch._library.custom_ops:CustomOpDef._opoverload": (
        "A function of torch.library.custom_op is no key of a translation table; torch.ops is."
    ),
    "torch.utils._pytree:_deregister_pytree_node": (
        "A library that registers a cache class in its own way does not get that way."
    ),
    "torch.utils._pytree:SUPPORTED_SERIALIZED_TYPES": (
        "A library that registers a cache class in its own way does not get that way."
    ),
    # copies of layers that repeat
    "torch.fx.experimental.proxy_tensor:track_tensor": _NO_COPIES,
    "torch.fx.experimental.symbolic_shapes:is_accessor_node": _NO_COPIES,
    "torch.fx.proxy:CapturedTraceback": _NO_COPIES,
    "torch.utils._python_dispatch:_disable_current_modes": _NO_COPIES,
    "torch.utils._python_dispatch:_get_current_dispatch_mode_stack": _NO_COPIES,
    "torch.overrides:_get_current_function_mode_stack": _NO_COPIES,
    "torch:_C._functions.DelayedError": _NO_COPIES,
    "torch:_lazy_clone": _NO_COPIES,
    # the modes that trace a model
    "torch:_C._len_torch_function_stack": _MODES_ARE_CALLED,
    "torch:_C._pop_torch_function_stack": _MODES_ARE_CALLED,
    "torch:_C._push_on_torch_function_stack": _MODES_ARE_CALLED,
}
"""Maps each place to what happens without it. ``tests/torch_compat`` has a case for each."""

_hidden: set[str] = set()
_found: dict[str, Any] = {}


def private(path: str) -> Any:
    """Returns the object at a place of ``PRIVATE``, or None if this torch does not have it."""
    if path not in _found:
        assert path in PRIVATE, path
        place = None if path in _hidden else find_place(path)
        _found[path] = None if place is None else place.value()
    return _found[path]


def private_attribute(value: Any, path: str, default: Any = None) -> Any:
    """Returns the attribute of an object that the last part of a path of ``PRIVATE`` names."""
    if _hidden and path in _hidden:
        return default
    return getattr(value, path.rpartition(".")[2], default)


def is_hidden(path: str) -> bool:
    """True if a place is to be treated as absent."""
    return path in _hidden


@contextlib.contextmanager
def hidden(*paths: str) -> Iterator[None]:
    """Treats places as absent from this release of torch, to see what is lost."""
    added = set(paths) - _hidden
    _hidden.update(added)
    _found.clear()
    try:
        yield
    finally:
        _hidden.difference_update(added)
        _found.clear()


def overload_of(target: Any) -> Any:
    """Returns the overload that a ``torch.library.custom_op`` function calls; else the target."""
    return private_attribute(target, "torch._library.custom_ops:CustomOpDef._opoverload", target)


def deregister_pytree_node(cls: type) -> Callable[[], None]:
    """Undoes ``pytree.register_pytree_node(cls, ...)``; returns a function that registers again."""
    forget = private("torch.utils._pytree:_deregister_pytree_node")
    serialized = private("torch.utils._pytree:SUPPORTED_SERIALIZED_TYPES") or {}
    node, names = pytree.SUPPORTED_NODES.get(cls), serialized.get(cls)
    if forget is None or node is None or names is None:
        return lambda: None
    forget(cls)
    return lambda: pytree.register_pytree_node(
        cls,
        node.flatten_fn,
        node.unflatten_fn,
        serialized_type_name=names.serialized_type_name,
        to_dumpable_context=names.to_dumpable_context,
        from_dumpable_context=names.from_dumpable_context,
        flatten_with_keys_fn=node.flatten_with_keys_fn,
    )
