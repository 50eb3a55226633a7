"""Programs that once gave wrong results, reduced as far as possible."""

from __future__ import annotations

import pytest

from tests.properties.check import check
from tests.properties.programs import Input, Program

EXAMPLE = {"n": 4, "m": 6}

COUNTEREXAMPLES = {
    "write to a copy of an input that repeats its elements": Program(
        (Input("x", "int32", ("n", "m"), layout="expanded"),),
        EXAMPLE,
        """
        v0 = x.flatten(-2, -1)
        v0.zero_()
        """,
        ("v0",),
    ),
    "differences of nothing": Program(
        (Input("x", "float32", ("n", "m")),),
        {"n": 3, "m": 5},
        """
        v0 = x[2 : -(-x.shape[1] // 3)]
        v1 = v0.diff(dim=0)
        """,
        ("v1",),
    ),
    "products with sizes from fractions": Program(
        (Input("x", "float64", ("n", "m")),),
        EXAMPLE,
        """
        v0 = torch.arange(x.shape[1] / 2)
        v1 = torch.kron(v0, v0.reshape(v0.shape[0], -1))
        """,
        ("v1",),
    ),
    "views of several tensors that are written one after the other": Program(
        (Input("x", "float32", ("n", "m")), Input("y", "float32", (1, "m"))),
        EXAMPLE,
        """
        v0 = x[:, :1]
        v1, v2 = torch.broadcast_tensors(v0, y)
        x.add_(1)
        v3 = v1 * 1
        y.add_(1)
        v4 = v2 * 1
        """,
        ("v3", "v4"),
    ),
    "halves of nothing": Program(
        (Input("x", "float32", ("n", "m")),),
        EXAMPLE,
        "v0 = F.glu(x.repeat_interleave(2, -1))",
        ("v0",),
    ),
    "remainder by zero, of nothing": Program(
        (Input("y", "int32", (2, 3)),),
        EXAMPLE,
        """
        v0 = y[3:1:2]
        v1 = v0.gather(0, v0.long() % v0.shape[0])
        """,
        ("v1",),
    ),
    "write of a size that is 1 in the example": Program(
        (Input("x", "int32", ("n", "m")),),
        {"n": 3, "m": 5},
        """
        v0 = torch.arange(1, x.shape[0], 2)
        v1 = self.memory[:, v0.long() % 3]
        v1[...] = v0
        """,
        ("v1",),
    ),
    "additions to one tensor of itself and of another": Program(
        (Input("x", "int32", ("n", "m")),),
        EXAMPLE,
        """
        v0 = torch.arange(x.shape[1]) // 2
        v1 = x.index_add(1, v0, x)
        v2 = x.index_add(1, v0, v1)
        """,
        ("v2",),
    ),
    "write to what changed its shape, under a view": Program(
        (Input("x", "bool", ("n", "m")),),
        {"n": 6, "m": 2},
        """
        v0 = x.clone()
        v1 = v0.split([1, v0.shape[1] - 1], 1)[1]
        v0.unsqueeze_(0)
        v0[:, -1] = False
        v2 = v1 + 1
        """,
        ("v0", "v2"),
    ),
    "search in other types": Program(
        (Input("x", "bfloat16", ("n", "m")),),
        EXAMPLE,
        "v0 = torch.searchsorted(torch.tensor([-2, 0, 3]), x, right=True)",
        ("v0",),
    ),
    "remainder by a size, of nothing": Program(
        (Input("z", "int64", ("n",)),),
        EXAMPLE,
        "z.index_fill_(0, z.long() % z.shape[0], 3)",
        ("z",),
    ),
    "write to an empty slice": Program(
        (Input("x", "int32", ("n", "m")),),
        EXAMPLE,
        """
        v0 = x.unflatten(-1, (-1, 1))
        v1 = v0.any(-1, keepdim=True)
        v0[:, :, :-1] = v1
        """,
        ("v1",),
    ),
    "sums at indices of nothing": Program(
        (Input("x", "int64", ("n", "m")), Input("y", "float32", (3, "n"))),
        EXAMPLE,
        """
        v0 = x.long() % y.shape[0]
        v1 = x.long() % y.shape[1]
        v2 = torch.ones_like(v0, dtype=y.dtype)
        y.index_put_((v0, v1), v2, accumulate=True)
        """,
        ("y",),
    ),
    "indices along a dimension of unknown size": Program(
        (Input("y", "int64", (3, "n")),),
        EXAMPLE,
        """
        v0 = torch.arange(1, y.shape[1] % 2 + 1, 2)
        v1 = torch.take_along_dim(v0, v0 % v0.shape[0], 0)
        """,
        ("v1",),
    ),
}


@pytest.mark.parametrize("program", COUNTEREXAMPLES.values(), ids=COUNTEREXAMPLES)
def test_counterexample(program: Program) -> None:
    checked = check(program)
    assert checked.sizes["sizes compared"] > 1, checked
