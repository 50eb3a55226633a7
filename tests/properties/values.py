"""Instructions that compute: arithmetic, comparisons, reductions, products, new tensors."""

from __future__ import annotations

import torch

from tests.properties.choices import Choices, DoesNotFitError
from tests.properties.instruction import Instruction, always, never
from tests.properties.scope import Value

__all__ = ["COMPUTATIONS", "CREATIONS", "NUMBERS", "REDUCTIONS"]

TYPES = ("float32", "float64", "int64", "int32", "bool", "float16", "bfloat16")


def _binary(c: Choices) -> str:
    x = c.tensor()
    y = c.fitting(x)
    left, right = (x.name, y.name) if c.maybe() else (y.name, x.name)
    form = c.of(
        "{0} + {1}", "{0} * {1}", "{0} - {1}", "torch.maximum({0}, {1})", "torch.minimum({0}, {1})"
    )
    return form.format(left, right)


def _with_number(c: Choices) -> str:
    x = c.tensor(unbacked=True)
    number = c.number(x)
    form = c.of("{0} + {1}", "{0} * {1}", "{1} - {0}", "{0} - {1}", "{0}.add({1}, alpha=2)")
    return form.format(x.name, number)


def _compare(c: Choices) -> str:
    x = c.tensor(exact=True)
    sign = c.of(">", "<", "==", "!=", ">=", "<=")
    if c.maybe():
        return f"{x.name} {sign} {c.number(x)}"
    return f"{x.name} {sign} {c.fitting(x, lambda v: v.exact).name}"


def _logic(c: Choices) -> str:
    x = c.tensor(lambda v: not v.floating)
    y = c.fitting(x, lambda v: not v.floating)
    form = c.of(
        "{0} & {1}",
        "{0} | {1}",
        "{0} ^ {1}",
        "~{0}",
        "torch.logical_and({0}, {1})",
        "torch.logical_xor({0}, {1})",
    )
    return form.format(x.name, y.name)


def _where(c: Choices) -> str:
    x = c.tensor()
    y = c.fitting(x)
    form = c.between(0, 2)
    if form == 0:
        return f"torch.where({c.mask(x)}, {x.name}, {y.name})"
    if form == 1:
        return f"torch.where({c.mask(x)}, {y.name}, {c.number(x)})"
    return f"{x.name}.masked_fill({c.mask(x)}, {c.between(0, 3)})"


def _divide(c: Choices) -> str:
    """Division and remainder of whole numbers, including negative ones."""
    x = c.numbers(exact=True)
    if c.maybe():
        divisor = c.of("2", "3", "-2", "-3", c.size())
    else:
        y = c.fitting(x, lambda v: v.exact and v.dtype != torch.bool)
        divisor = f"torch.where({y.name} == 0, {c.of(2, -3)}, {y.name})"
    form = c.of(
        "{0} // {1}",
        "{0} % {1}",
        "torch.remainder({0}, {1})",
        "torch.fmod({0}, {1})",
        "torch.div({0}, {1}, rounding_mode='trunc')",
        "torch.div({0}, {1}, rounding_mode='floor')",
    )
    return form.format(x.name, divisor)


def _quotient(c: Choices) -> str:
    x = c.tensor()
    if c.maybe():
        return f"{x.name} / {c.of('2', '-3', '7.0', c.size())}"
    y = c.fitting(x, lambda v: v.exact)
    return f"{x.name} / ({y.name}.abs() + 1)"


def _unary(c: Choices) -> str:
    x = c.tensor(unbacked=True)
    form = c.of(
        "-{0}",
        "{0}.abs()",
        "{0}.square()",
        "torch.relu({0})",
        "{0}.clamp(-2, 3)",
        "{0}.clamp(min=1)",
        "{0}.positive()",
        "F.relu6({0})",
        "{0}.clamp_max(2)",
    )
    return form.format(x.name)


def _step(c: Choices) -> str:
    x = c.tensor(exact=True)
    form = c.of(
        "{0}.sign()",
        "{0}.floor()",
        "{0}.ceil()",
        "{0}.round()",
        "{0}.trunc()",
        "{0}.logical_not()",
        "{0}.isnan()",
        "{0}.long()",
        "{0}.bool()",
        "{0}.int()",
    )
    return form.format(x.name)


def _cast(c: Choices) -> str:
    x = c.tensor()
    dtype = c.of(*TYPES)
    if not x.exact and not dtype.startswith("float"):
        raise DoesNotFitError
    return f"{x.name}.to(torch.{dtype})"


def _smooth(c: Choices) -> str:
    x = c.floats()
    form = c.of(
        "{0}.sigmoid()",
        "{0}.tanh()",
        "{0}.abs().sqrt()",
        "{0}.clamp(max=3).exp()",
        "F.gelu({0})",
        "F.silu({0})",
        "{0}.sin()",
        "F.softplus({0})",
        "({0}.abs() + 1).log()",
    )
    return form.format(x.name)


def _softmax(c: Choices) -> str:
    x = c.floats(rank=1)
    name = c.of("softmax", "log_softmax")
    if name == "log_softmax" and x.dtype in (torch.float16, torch.bfloat16):
        raise DoesNotFitError  # eager rounds the sum before subtracting it
    return f"{x.name}.{name}({c.axis(x)})"


def _cumulate(c: Choices) -> str:
    x = c.numbers(rank=1, exact=True)
    form = c.of("cumsum({0})", "cumsum({0})", "cummax({0})[0]", "cummin({0})[0]", "cumprod({0})")
    of = _small(x) if "cumprod" in form else x.name
    return f"{of}.{form.format(c.axis(x))}"


def _small(x: Value) -> str:
    """Limits floats, whose product may overflow and then be 0 or NaN depending on the order."""
    return f"{x.name}.clamp(-1, 1)" if x.dtype.is_floating_point else x.name


def _sort(c: Choices) -> str:
    x = c.numbers(rank=1, exact=True)
    axis = c.axis(x)
    form = c.of(
        f"sort({axis})[0]",
        f"sort({axis}, descending=True)[0]",
        f"topk({c.between(1, 2)}, {axis})[0]",
        f"topk(1, {axis}, largest=False)[0]",
        f"argsort({axis}, stable=True)",
        f"kthvalue(1, {axis})[0]",
        f"median({axis})[0]",
    )
    return f"{x.name}.{form}"


def _difference(c: Choices) -> str:
    x = c.numbers(rank=1)
    return f"{x.name}.diff(dim={c.axis(x)})"


def _product(c: Choices) -> str:
    """Matrix products whose inner dimensions agree at every size.

    ONNX Runtime leaves the result of a batched product uninitialized if the inner size is 0.
    """
    x = c.tensor(
        lambda v: (
            v.dtype == torch.float32
            and (v.rank == 2 or (v.rank == 3 and len(set(v.sizes(-1))) == 1))
        )
    )
    form = c.between(0, 5)
    if form == 0:
        y = c.tensor(lambda v: v.dtype == x.dtype and v.rank == 2 and v.sizes(0) == x.sizes(-1))
        return f"{x.name} @ {y.name}"
    if form == 1:
        y = c.tensor(lambda v: v.dtype == x.dtype and v.rank == 2 and v.sizes(1) == x.sizes(-1))
        return f"F.linear({x.name}, {y.name})"
    if form == 2:
        y = c.tensor(lambda v: v.dtype == x.dtype and v.rank == 1 and v.sizes(0) == x.sizes(-1))
        return f"torch.matmul({x.name}, {y.name})"
    if form == 3 and x.rank == 2 and not x.name.startswith("v"):
        return f"torch.einsum('ij,kj->ik', {x.name}, {x.name})"
    if form == 4 and x.rank == 3:
        return f"torch.bmm({x.name}, {x.name}.mT)"
    return f"{x.name} @ {x.name}.mT"


def _outer(c: Choices) -> str:
    x = c.tensor(lambda v: v.rank == 1)
    y = c.tensor(lambda v: v.rank == 1 and v.dtype != torch.bool)
    return f"torch.outer({x.name}, {y.name})"


def _dims(c: Choices, rank: int, axis: int) -> str:
    """Arguments of a reduction: all axes, one or several, kept or not."""
    keep = c.of("", ", keepdim=True")
    if rank > 1 and c.between(0, 3) == 0:
        return f"(0, -1){keep}"
    return f"{axis}{keep}"


def _reduce(c: Choices) -> str:
    x = c.tensor(unbacked=True)
    name = c.of("sum", "sum", "amax", "amin", "prod", "count_nonzero", "any", "all")
    if name in ("count_nonzero", "any", "all") and not x.exact:
        raise DoesNotFitError
    of = _small(x) if name == "prod" else x.name
    if x.rank == 0 or c.between(0, 2) == 0:
        return f"{of}.{name}()"
    axis = c.axis(x)
    if name in ("prod", "any", "all"):
        return f"{of}.{name}({axis}{c.of('', ', keepdim=True')})"
    if name == "count_nonzero":
        return f"{x.name}.count_nonzero({axis})"
    if name == "sum" and c.between(0, 3) == 0:
        return f"{x.name}.sum({axis}, dtype=torch.{c.of('float64', 'float32', 'int64')})"
    return f"{x.name}.{name}({_dims(c, x.rank, axis)})"


def _extreme(c: Choices) -> str:
    x = c.numbers(rank=1, exact=True)
    form = c.of(
        "argmax({0})",
        "argmin({0})",
        "max({0})[0]",
        "min({0})[0]",
        "argmax({0}, keepdim=True)",
        "max({0}, keepdim=True)[0]",
        "aminmax(dim={0})[1]",
    )
    if c.between(0, 4) == 0:
        return f"{x.name}.{c.of('argmax()', 'max()', 'min()', 'argmin()')}"
    return f"{x.name}.{form.format(c.axis(x))}"


def _average(c: Choices) -> str:
    x = c.floats(unbacked=True)
    if x.rank == 0 or c.between(0, 2) == 0:
        return f"{x.name}.{c.of('mean()', 'norm()', 'std(correction=0)')}"
    axis = c.axis(x)
    form = c.of(
        f"mean({_dims(c, x.rank, axis)})",
        f"std({axis}, correction=0)",
        f"var({axis}, correction=0)",
        f"norm(dim={axis})",
        f"logsumexp({axis})",
    )
    return f"{x.name}.{form}"


def _create(c: Choices) -> str:
    x = c.tensor()
    dtype = c.of(*TYPES)
    form = c.of(
        "torch.arange({size})",
        "torch.arange({size}, dtype=torch.{dtype})",
        "torch.arange(1, {size}, 2)",
        "torch.arange({size}, 0, -1)",
        "torch.zeros({size}, {other}, dtype=torch.{dtype})",
        "torch.ones({size}, dtype=torch.{dtype})",
        "torch.full(({size}, 2), {number})",
        "torch.full(({size},), {other})",
        "torch.zeros_like({x})",
        "torch.full_like({x}, {number})",
        "{x}.new_ones({size}, 2)",
        "torch.eye({size}, {other})",
        "torch.ones({x}.shape, dtype=torch.{dtype})",
        "torch.tensor([1, -2, 3], dtype=torch.{numeric})",
        "torch.linspace(0, 1, {size})",
        "torch.scalar_tensor({size}, dtype=torch.{dtype})",
    )
    if dtype == "bool" and "arange" in form:
        raise DoesNotFitError
    return form.format(
        size=c.size() if "{size}" in form else "",
        other=c.size() if "{other}" in form else "",
        number=c.between(0, 1),
        dtype=dtype,
        numeric=c.of("float32", "int64"),
        x=x.name,
    )


def _number(c: Choices) -> str:
    """Makes a variable of a size."""
    if c.between(0, 5) == 0:
        x = c.tensor(lambda v: v.unbacked and v.rank > 0, unbacked=True)
        return f"{x.name}.shape[0]"
    return c.of(c.size(), f"{c.size()} + {c.size()}", f"{c.size()} * {c.size()}")


def _numel(c: Choices) -> str:
    return f"{c.tensor().name}.numel()"


NUMBERS = [Instruction("size", _number), Instruction("numel", _numel)]
CREATIONS = [Instruction("create", _create, always)]
COMPUTATIONS = [
    Instruction("binary", _binary, computes=True),
    Instruction("binary", _binary, computes=True),
    Instruction("with number", _with_number, computes=True),
    Instruction("with number", _with_number, computes=True),
    Instruction("compare", _compare, always),
    Instruction("logic", _logic),
    Instruction("where", _where),
    Instruction("divide", _divide),
    Instruction("quotient", _quotient, never, computes=True),
    Instruction("unary", _unary, computes=True),
    Instruction("step", _step),
    Instruction("cast", _cast),
    Instruction("smooth", _smooth, never, computes=True),
    Instruction("softmax", _softmax, never, computes=True),
    Instruction("cumulate", _cumulate),
    Instruction("sort", _sort),
    Instruction("difference", _difference, computes=True),
    Instruction("product", _product, computes=True),
    Instruction("outer", _outer, computes=True),
]
REDUCTIONS = [
    Instruction("reduce", _reduce, computes=True),
    Instruction("reduce", _reduce, computes=True),
    Instruction("extreme", _extreme),
    Instruction("average", _average, never, computes=True),
]
