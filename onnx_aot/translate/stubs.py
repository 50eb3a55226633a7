"""The code that an error proposes for an operator without a translation; it runs as it is."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from onnx_aot.ops.registry import MEMORY_ARGUMENTS
from onnx_aot.torch_compat import OpOverload, schema_of

__all__ = ["parameters", "stub"]


def parameters(target: OpOverload) -> tuple[str, ...]:
    """What a translation of an operator takes after ``op``."""
    names = [argument.name for argument in schema_of(target).arguments]
    return tuple(_safe(name) for name in names if name not in MEMORY_ARGUMENTS)


def stub(target: OpOverload) -> str:
    """A translation that emits a node of a domain of the operator's own."""
    schema = schema_of(target)
    tensors, attributes = [], []
    for argument in schema.arguments:
        if argument.name in MEMORY_ARGUMENTS:
            continue
        name, kind = _safe(argument.name), str(argument.type)
        if "Tensor" in kind:
            tensors.append(f"*{name}" if kind.startswith("List") else name)
        else:
            attributes.append(f"{name}={name}")
    domain, _, op_type = schema.name.partition("::")
    rest = [*tensors, *attributes, *_outputs(target), f"_domain={domain!r}".replace("'", '"')]
    code = [f"return op.{_camel(op_type)}({', '.join(rest)})"]
    if "_outputs=len(op.result)" in rest:
        code = [
            code[0].replace("return", "values =", 1),
            "return values if isinstance(values, tuple) else [values]",
        ]
    return "\n".join(
        [
            f"def {str(target).replace('.', '_')}({', '.join(('op', *parameters(target)))}):",
            f"    # {_meaning(target)}; with operators of ONNX: op.Add(x, y), ...",
            *(f"    {line}" for line in code),
        ]
    )


def _safe(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _camel(name: str) -> str:
    """``my_gadget`` gives ``MyGadget``, as ``op`` wants the names of operators."""
    camel = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", name))
    return camel if camel[:1].isupper() else f"Op{camel}"


def _written(target: OpOverload) -> Sequence[str]:
    """The arguments that an operator writes: a translation returns their new values too."""
    return [
        argument.name
        for argument in schema_of(target).arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _results(target: OpOverload) -> list[str]:
    """The types of the results that are no arguments written and returned."""
    returns = schema_of(target).returns
    return [
        str(r.type) for r in returns if not (r.alias_info is not None and r.alias_info.is_write)
    ]


def _outputs(target: OpOverload) -> list[str]:
    results = _results(target)
    if any(kind.startswith("List") for kind in results):
        return ["_outputs=len(op.result)"]
    count = len(results) + len(_written(target))
    return [f"_outputs={count}"] if count > 1 else []


def _meaning(target: OpOverload) -> str:
    """What is to be returned: an operator that writes has its results, then the new values."""
    written = _written(target)
    parts = ["the ONNX value(s)"] * bool(_results(target))
    parts += [f"the new value of {', '.join(written)}"] * bool(written)
    return "return " + (" and ".join(parts) or "None")
