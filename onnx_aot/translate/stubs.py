"""Generates the code that an error suggests for an unsupported operator; it runs as it is."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from onnx_aot.ops.registry import MEMORY_ARGUMENTS
from onnx_aot.torch_compat import OpOverload, schema_of

__all__ = ["parameters", "write_stub"]


def parameters(target: OpOverload) -> tuple[str, ...]:
    """Parameter names of an operator's translation after ``op``."""
    names = [argument.name for argument in schema_of(target).arguments]
    return tuple(_escape_keyword(name) for name in names if name not in MEMORY_ARGUMENTS)


def write_stub(target: OpOverload) -> str:
    """Code of a translation that emits a node in the operator's own domain."""
    schema = schema_of(target)
    tensors, attributes = [], []
    for argument in schema.arguments:
        if argument.name in MEMORY_ARGUMENTS:
            continue
        name, kind = _escape_keyword(argument.name), str(argument.type)
        if "Tensor" in kind:
            tensors.append(f"*{name}" if kind.startswith("List") else name)
        else:
            attributes.append(f"{name}={name}")
    domain, _, op_type = schema.name.partition("::")
    rest = [
        *tensors,
        *attributes,
        *_outputs_keyword(target),
        f"_domain={domain!r}".replace("'", '"'),
    ]
    code = [f"return op.{_to_camel_case(op_type)}({', '.join(rest)})"]
    if "_outputs=len(op.result)" in rest:
        code = [
            code[0].replace("return", "values =", 1),
            "return values if isinstance(values, tuple) else [values]",
        ]
    return "\n".join(
        [
            f"def {str(target).replace('.', '_')}({', '.join(('op', *parameters(target)))}):",
            f"    # {_describe_return(target)}; with operators of ONNX: op.Add(x, y), ...",
            *(f"    {line}" for line in code),
        ]
    )


def _escape_keyword(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _to_camel_case(name: str) -> str:
    """Turns ``my_gadget`` into ``MyGadget``, the form in which ``op`` takes operator names."""
    camel = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", name))
    return camel if camel[:1].isupper() else f"Op{camel}"


def _written_arguments(target: OpOverload) -> Sequence[str]:
    """Arguments that an operator writes; a translation also returns their new values."""
    return [
        argument.name
        for argument in schema_of(target).arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _result_types(target: OpOverload) -> list[str]:
    """Types of the results that are not written arguments."""
    returns = schema_of(target).returns
    return [
        str(r.type) for r in returns if not (r.alias_info is not None and r.alias_info.is_write)
    ]


def _outputs_keyword(target: OpOverload) -> list[str]:
    results = _result_types(target)
    if any(kind.startswith("List") for kind in results):
        return ["_outputs=len(op.result)"]
    count = len(results) + len(_written_arguments(target))
    return [f"_outputs={count}"] if count > 1 else []


def _describe_return(target: OpOverload) -> str:
    """Describes what to return: the results, then the new values of written arguments."""
    written = _written_arguments(target)
    parts = ["the ONNX value(s)"] * bool(_result_types(target))
    parts += [f"the new value of {', '.join(written)}"] * bool(written)
    return "return " + (" and ".join(parts) or "None")
