"""Registers classes that hold tensors with torch's pytree, on the user's behalf.

``torch.export`` takes inputs and outputs apart with ``torch.utils._pytree``, which knows tuples,
lists, dicts and named tuples, and rejects other classes unless registered.
``register_containers`` looks through a value and registers, once per process:

* dataclasses and ``SimpleNamespace``: the fields that hold data, in their order;
* subclasses of dict, ``UserDict``, list and tuple: their entries;
* key-value caches, recognized by attributes: ``layers`` with ``keys`` and ``values``, a pair of
  such caches, or lists ``key_cache`` and ``value_cache``. The tensors of every layer are data.

Objects are rebuilt attribute by attribute, without calling ``__init__``: its results are in the
attributes already. Attributes that are not data (a type, a flag of a cache) are kept beside the
structure, and compared when a program is called. Classes that the user or a library registered
keep their registration.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import enum
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from onnx_aot.errors import InvalidOptionError
from onnx_aot.pytrees.paths import is_named_tuple
from onnx_aot.torch_compat import deregister_pytree_node, pytree

__all__ = [
    "INPUTS",
    "Constant",
    "Rest",
    "forget_caches",
    "own_caches",
    "recall_caches",
    "register_containers",
    "same_constant",
    "unwrap_constants",
    "wrap_constants",
]

INPUTS = "example inputs"
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
PLAIN = (torch.Tensor, int, float, bool, str, type(None), *SYMBOLIC)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
BY_TORCH = (torch.nn.Module, torch.ScriptObject)  # left to torch.export


class Constant:
    """Wraps a value that ``torch.export`` ignores, such as a dtype or an enum, as a container.

    It has no leaves; the value is part of the structure.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass(frozen=True, eq=False)
class Rest:
    """Structure and attributes of an object, without its data.

    Attributes:
        names: Attributes or keys that hold the data, in order.
        constants: The other attributes by name, which are compared.
        hidden: Attributes whose names begin with an underscore, which are not.
    """

    names: tuple[Any, ...]
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)
    hidden: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rest):
            return NotImplemented
        return self.names == other.names and same_constant(self.constants, other.constants)

    def __hash__(self) -> int:
        return hash(self.names)


def same_constant(left: Any, right: Any) -> bool:
    """True if two values are the same to a model: 1 is neither True nor 1.0, NaN equals NaN."""
    if left is right:
        return True
    for kind in (bool, int, float, complex, str):  # subclasses count as these
        if isinstance(left, kind) or isinstance(right, kind):
            if not (isinstance(left, kind) and isinstance(right, kind)):
                return False
            break
    if isinstance(left, float):
        signs = math.copysign(1, left) == math.copysign(1, right)
        return (left == right and signs) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return False  # tensors are data
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_constant(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        same = type(left) is type(right) and len(left) == len(right)
        return same and all(map(same_constant, left, right))
    try:
        return bool(left == right)
    except Exception:  # objects that cannot be compared
        return False


# --- looking through values ----------------------------------------------------------------------


def register_containers(value: Any, path: str, what: str) -> None:
    """Registers the classes of all containers in a value.

    Args:
        value: An input or output.
        path: The value as the user would write it, such as ``batch`` or ``args[0]``.
        what: ``INPUTS`` or ``"outputs"``, for messages.

    Raises:
        InvalidOptionError: There is an object of an unsupported class, a NumPy array or a sparse
            tensor.
    """
    node = pytree.SUPPORTED_NODES.get(type(value))
    if node is None and not is_named_tuple(value):
        if isinstance(value, (*PLAIN, *BY_TORCH)):
            if isinstance(value, torch.Tensor) and what == INPUTS:
                _refuse_kind(value, path)
            return
        if not _register(value):
            if not _is_constant(value):
                raise InvalidOptionError(_not_understood(value, path, what), code="OA005")
            return
    if node is not None and node.flatten_with_keys_fn is None and what == INPUTS:
        raise InvalidOptionError(
            f"{path} of the {what} is a {_full_name(type(value))}, which is registered with "
            "torch's pytree without flatten_with_keys_fn; torch.export needs it to name the "
            "contents. It returns [(pytree.GetAttrKey(name), child), ...] and the context",
            code="OA005",
        )
    for below, child in _list_children(value):
        register_containers(child, path + below, what)


def _list_children(value: Any) -> Iterable[tuple[str, Any]]:
    """Accessors such as ``[0]`` and ``.keys``, and children, of a registered container."""
    if is_named_tuple(value):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    node = pytree.SUPPORTED_NODES[type(value)]
    if node.flatten_with_keys_fn is None:
        return [(f"[{i}]", child) for i, child in enumerate(node.flatten_fn(value)[0])]
    return [(pytree.keystr((key,)), child) for key, child in node.flatten_with_keys_fn(value)[0]]


def wrap_constants(value: Any) -> Any:
    """Wraps each leaf that ``torch.export`` does not accept in a ``Constant``."""
    if all(map(_is_plain, pytree.tree_leaves(value))):
        return value
    return pytree.tree_map(lambda leaf: leaf if _is_plain(leaf) else Constant(leaf), value)


def unwrap_constants(value: Any) -> Any:
    """Inverse of ``wrap_constants``."""
    is_constant = _is_kind(Constant)
    if not any(map(is_constant, pytree.tree_leaves(value, is_leaf=is_constant))):
        return value
    return pytree.tree_map(
        lambda leaf: leaf.value if is_constant(leaf) else leaf, value, is_leaf=is_constant
    )


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, (*PLAIN, *BY_TORCH)) and not isinstance(leaf, enum.Enum)


def _is_kind(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_constant(value: Any) -> bool:
    """True if a value that is not a container is immutable and compares by value."""
    if type(value).__module__ == "numpy":
        return _is_hashable(value)  # a dtype or a number; arrays can change
    known = (enum.Enum, type, torch.dtype, torch.device, torch.layout, slice, *FUNCTIONS)
    if isinstance(value, known):
        return True
    compares = "__eq__" in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}
    return compares and _is_hashable(value) and not _has_tensors(value)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _has_tensors(value: Any) -> bool:
    """True if an object has tensors in its attributes or elements."""
    held = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, (set, frozenset)):
        held += value
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(held))


def _refuse_kind(tensor: torch.Tensor, path: str) -> None:
    """Checks that a tensor is dense and of a plain type, as ONNX requires."""
    if tensor.is_nested:
        found, fix = "is a nested tensor", "to_padded_tensor(0.0) of it and a mask"
    elif hasattr(type(tensor), "__tensor_flatten__"):
        found = f"is a {_full_name(type(tensor))}, a tensor that is made of others"
        fix = "these, and make it in forward"
    elif tensor.layout != torch.strided:
        found, fix = f"has the layout {tensor.layout}", "to_dense() of it"
    elif tensor.is_quantized:
        found, fix = f"is {tensor.dtype}", "int_repr() of it"
    else:
        return
    raise InvalidOptionError(
        f"{path} of the {INPUTS} {found}; inputs of an ONNX model are dense tensors. Pass {fix}",
        code="OA006",
    )


def _not_understood(value: Any, path: str, what: str) -> str:
    cls = type(value)
    is_input = what == INPUTS
    place = f"{path} of the {what}" if is_input else f"{path} of forward"
    verb = "Pass" if is_input else "Return"
    if cls.__module__ == "numpy":
        array = "torch.from_numpy of it" if is_input else "a tensor"
        return f"{place} is a NumPy array. {verb} {array}"
    if isinstance(value, (set, frozenset)):
        return (
            f"{place} is a {cls.__name__}; its elements have no order, and the inputs and outputs "
            f"of an ONNX model need one. {verb} a list, a tuple or a dict"
        )
    if isinstance(value, (Iterator, collections.abc.MappingView)):
        return (
            f"{place} is a {cls.__name__}, and the elements of an iterator or a view are not part "
            f"of it. {verb} a list of them, list(...), or a tuple or a dict"
        )
    names = list(getattr(value, "__dict__", {})) or list(getattr(cls, "__slots__", ()))
    short = cls.__name__
    return (
        f"{place} is a {_full_name(cls)}, a class that torch.export cannot flatten. "
        "Tensors, numbers, strings, None, tuples, lists, dicts, dataclasses and key-value caches "
        f"are supported. {verb} one of these, or register before the export how to flatten and "
        "rebuild it:\n\n"
        "    from torch.utils import _pytree as pytree\n\n"
        f"    NAMES = {names}\n\n"
        "    pytree.register_pytree_node(\n"
        f"        {short},\n"
        "        lambda value: ([getattr(value, name) for name in NAMES], None),\n"
        f"        lambda children, context: {short}(*children),\n"
        f'        serialized_type_name="{_full_name(cls)}",\n'
        "        flatten_with_keys_fn=lambda value: (\n"
        "            [(pytree.GetAttrKey(name), getattr(value, name)) for name in NAMES], None\n"
        "        ),\n"
        "    )"
    )


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# --- registering ---------------------------------------------------------------------------------

_caches: dict[type, bool] = {}
"""Classes of caches and their layers that were registered here; True if they still are."""


def forget_caches() -> None:
    """Withdraws the registrations of caches, so that a library can make its own."""
    for cls, held in _caches.items():
        if held:
            deregister_pytree_node(cls)
            _caches[cls] = cls in pytree.SUPPORTED_NODES


def recall_caches() -> None:
    """Restores what ``forget_caches`` withdrew, except classes that a library registered since."""
    for cls, held in _caches.items():
        if not held and cls not in pytree.SUPPORTED_NODES:
            _register_cache(cls)


@contextlib.contextmanager
def own_caches(value: Any) -> Iterator[None]:
    """Context that flattens caches as this package does, even if a library registered its own way.

    Args:
        value: A cache, or a container of caches.
    """
    again = {
        cls: deregister_pytree_node(cls)
        for cls in _cache_classes(value)
        if cls in pytree.SUPPORTED_NODES and not _caches.get(cls)
    }
    replaced = [cls for cls in again if cls not in pytree.SUPPORTED_NODES]
    for cls in replaced:
        _register_cache(cls)
    try:
        yield
    finally:
        for cls in replaced:
            deregister_pytree_node(cls)
            del _caches[cls]
            again[cls]()


def _cache_classes(value: Any) -> set[type]:
    if _is_cache(value) or _is_cache_layer(value):
        return {type(value)}.union(*map(_cache_classes, vars(value).values()))
    found: set[type] = set()
    if isinstance(value, (list, tuple, Mapping)):
        found.update(*map(_cache_classes, value.values() if isinstance(value, Mapping) else value))
    return found


def _register_cache(cls: type) -> None:
    _register_class(cls, _cache_parts, _rebuilt_object, pytree.GetAttrKey)
    _caches[cls] = True


def _register(value: Any) -> bool:
    """Registers the class of a value; returns False if the class is not supported."""
    cls = type(value)
    if isinstance(value, (dict, collections.UserDict)):
        _register_class(cls, _mapping_parts, _rebuild_mapping, pytree.MappingKey)
    elif isinstance(value, (list, tuple)):
        _register_class(cls, _sequence_parts, _rebuilt_sequence, pytree.SequenceKey)
    elif _is_record(value):
        _register_class(cls, _object_parts, _rebuilt_object, pytree.GetAttrKey)
    elif _is_cache(value) or _is_cache_layer(value):
        _register_cache(cls)
    else:
        return False
    return True


def has_parts(value: Any) -> bool:
    """True if a value is an object whose attributes are understood: a record or a cache.

    An object that cannot be asked is neither: for attributes that it lacks, its class raises
    another error than ``AttributeError``, such as ``KeyError`` where it looks them up in a dict.
    """
    try:
        return _is_record(value) or _is_cache(value) or _is_cache_layer(value)
    except Exception:
        return False


def _is_record(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace)


def _is_cache(value: Any) -> bool:
    if isinstance(value, (type, *BY_TORCH)):
        return False
    if hasattr(value, "self_attention_cache") and hasattr(value, "cross_attention_cache"):
        return True
    if all(isinstance(getattr(value, name, None), list) for name in ("key_cache", "value_cache")):
        return True
    layers = getattr(value, "layers", None)
    if not isinstance(layers, (list, tuple)) or not hasattr(value, "update"):
        return False
    return all(map(_is_cache_layer, layers))


def _is_cache_layer(value: Any) -> bool:
    """True if a value is a layer of a cache, of attention or of recurrent states."""
    if isinstance(value, (type, *BY_TORCH)) or not hasattr(value, "__dict__"):
        return False
    attributes = value.__dict__
    return {"keys", "values"} <= attributes.keys() or "recurrent_states" in attributes


Parts = tuple[list[Any], Rest]


def _register_class(
    cls: type,
    parts: Callable[[Any], Parts],
    rebuilt: Callable[[type, list[Any], Rest], Any],
    key: Callable[[Any], Any],
) -> None:
    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Rest]:
        children, rest = parts(value)
        return [(key(name), child) for name, child in zip(rest.names, children, strict=True)], rest

    pytree.register_pytree_node(
        cls,
        parts,
        lambda children, rest: rebuilt(cls, list(children), rest),
        serialized_type_name=_full_name(cls),
        to_dumpable_context=_to_dumpable,
        from_dumpable_context=_from_dumpable,
        flatten_with_keys_fn=with_keys,
    )


def _to_dumpable(rest: Rest) -> Any:
    """Context for ``torch.export.save``; JSON rejects constants that it cannot hold."""
    return [list(rest.names), rest.constants]


def _from_dumpable(dumped: Any) -> Rest:
    names, constants = dumped
    return Rest(tuple(names), constants)


def _mapping_parts(value: Any) -> Parts:
    attributes = {k: v for k, v in getattr(value, "__dict__", {}).items() if k != "data"}
    return list(value.values()), _make_rest(tuple(value.keys()), attributes)


def _rebuild_mapping(cls: type, children: list[Any], rest: Rest) -> Any:
    made: Any = cls.__new__(cls)  # type: ignore[call-overload]
    _restore(made, rest)
    entries = dict(zip(rest.names, children, strict=True))
    if isinstance(made, collections.UserDict):
        made.data = entries
    else:
        dict.update(made, entries)
    return made


def _sequence_parts(value: Any) -> Parts:
    return list(value), _make_rest(tuple(range(len(value))), getattr(value, "__dict__", {}))


def _rebuilt_sequence(cls: type, children: list[Any], rest: Rest) -> Any:
    made: Any
    if issubclass(cls, tuple):
        made = tuple.__new__(cls, children)
    else:
        made = cls.__new__(cls)
        list.extend(made, children)
    _restore(made, rest)
    return made


def _object_parts(value: Any) -> Parts:
    """Splits an object into fields that hold data or plain values, and constants."""
    attributes = _collect_attributes(value)
    names = tuple(name for name, held in attributes.items() if _is_field(held))
    others = {name: held for name, held in attributes.items() if name not in names}
    return [attributes[name] for name in names], _make_rest(names, others)


def _is_field(held: Any) -> bool:
    return (
        _is_plain(held)
        or type(held) in pytree.SUPPORTED_NODES
        or is_named_tuple(held)
        or not _is_constant(held)
    )


def _cache_parts(value: Any) -> Parts:
    """Splits a cache into tensors, their containers and lengths, and constants (all others)."""
    attributes = _collect_attributes(value)
    names = tuple(name for name, held in attributes.items() if _is_state(name, held))
    others = {name: held for name, held in attributes.items() if name not in names}
    return [attributes[name] for name in names], _make_rest(names, others)


def _is_state(name: str, held: Any) -> bool:
    if name.startswith("_"):
        return False
    if name in ("keys", "values") or name.startswith("cumulative_length"):
        return True  # None before the first use; a number that grows with each call
    return _holds_tensors(held)


def _holds_tensors(held: Any) -> bool:
    if isinstance(held, (torch.Tensor, *SYMBOLIC)) or _is_cache(held) or _is_cache_layer(held):
        return True
    if isinstance(held, Mapping):
        return any(map(_holds_tensors, held.values()))
    return isinstance(held, (list, tuple)) and any(map(_holds_tensors, held))


def _collect_attributes(value: Any) -> dict[str, Any]:
    """Dataclass fields in their order, then other attributes that have been set."""
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    held = {
        field.name: getattr(value, field.name) for field in fields if hasattr(value, field.name)
    }
    return held | getattr(value, "__dict__", {})


def _rebuilt_object(cls: type, children: list[Any], rest: Rest) -> Any:
    namespace = issubclass(cls, types.SimpleNamespace)
    made: Any = types.SimpleNamespace.__new__(cls) if namespace else object.__new__(cls)
    _restore(made, rest)
    for name, child in zip(rest.names, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def _make_rest(names: tuple[Any, ...], attributes: Mapping[str, Any]) -> Rest:
    constants = {k: _copy_containers(v) for k, v in attributes.items() if not k.startswith("_")}
    hidden = {k: v for k, v in attributes.items() if k.startswith("_")}
    return Rest(names, constants, hidden)


def _restore(made: Any, rest: Rest) -> None:
    for name, held in (rest.hidden | rest.constants).items():
        object.__setattr__(made, name, _copy_containers(held))


def _copy_containers(held: Any) -> Any:
    """Copies dicts and lists, so that two objects do not share one that a model may write to."""
    if type(held) is dict:
        return {key: _copy_containers(value) for key, value in held.items()}
    return [_copy_containers(item) for item in held] if type(held) is list else held


pytree.register_pytree_node(
    Constant,
    lambda constant: ([], constant.value),
    lambda _, value: Constant(value),
    serialized_type_name="onnx_aot.Constant",
    flatten_with_keys_fn=lambda constant: ([], constant.value),
)
