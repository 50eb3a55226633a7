"""Caches of a model: what is traced does not stay in them, and sizes that are keys stay dynamic."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import onnx_aot
from onnx_aot.errors import DynamicShapeError
from onnx_aot.torch_compat import FakeTensor, pytree
from tests.torch_compat.models import Example
from tests.torch_compat.without import absent, differs, exported, message, shows

TABLE: dict[Any, Tensor] = {}
ALLOWED = {8: 2.0, 16: 3.0}
SHAPES = ({0: "batch", 1: "height", 2: "width"},)


@functools.lru_cache(maxsize=8)
def grid(height: int, width: int) -> Tensor:
    return torch.arange(height)[:, None] * 10.0 + torch.arange(width)


class ByFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + grid(x.shape[-2], x.shape[-1])


class ByMethods(nn.Module):
    @functools.cache  # noqa: B019
    def ramp(self, width: int) -> Tensor:
        return torch.arange(width) * 1.0

    @staticmethod
    @functools.lru_cache
    def scale(size: torch.Size, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(size, dtype=dtype) * 2

    @classmethod
    @functools.lru_cache
    def offset(cls, height: int) -> Tensor:
        return torch.arange(height)[:, None] + len(cls.__name__)

    def forward(self, x: Tensor) -> Tensor:
        scaled = (x + self.ramp(x.shape[-1])) * self.scale(x.shape[-2:])
        return scaled - self.offset(x.shape[-2])


class ByTable(nn.Module):
    """Keeps its grids in a dict of this file."""

    def forward(self, x: Tensor) -> Tensor:
        key = (x.shape[-2], x.shape[-1])
        if key not in TABLE:
            TABLE[key] = torch.arange(key[0])[:, None] * 10.0 + torch.arange(key[1])
        return x + TABLE[key]


class ByClass(nn.Module):
    grids: ClassVar[dict[Any, Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = str(x.dtype), x.shape[1:]
        known = self.grids.get(key)
        if known is None:
            known = torch.arange(x.shape[1])[:, None] * 10.0 + torch.arange(x.shape[2])
            self.grids[key] = known
        return x + known


class ByAttribute(nn.Module):
    """Keeps its grids in an attribute, and uses one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.grids: dict[Any, Tensor] = {}

    def find(self, height: int, width: int) -> Tensor:
        try:
            return self.grids[height, width]
        except KeyError:
            made = torch.arange(height)[:, None] * 10.0 + torch.arange(width)
            self.grids[height, width] = made
            return made

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.find(*x.shape[1:])) * self.find(*x.shape[1:])


class Store:
    """No module; it may be one for the whole program, or belong to a model."""

    grids: ClassVar[dict[Any, Tensor]] = {}
    last: Tensor | None = None

    def __init__(self) -> None:
        self.found: dict[Any, Tensor] = {}


STORE = Store()


class ByObject(nn.Module):
    """Keeps a grid in an object that it holds, and in one that it shares, and the last input."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()

    def forward(self, x: Tensor) -> Tensor:
        key = str(x.dtype)
        if key not in self.store.found:
            self.store.found[key] = torch.tensor(3.0) * 2
        if key not in STORE.found:
            STORE.found[key] = torch.tensor(3.0) + 2
        self.store.last = x
        Store.last = x
        scale = Store.grids.setdefault(key, torch.tensor(2.0))
        return x * scale + self.store.found[key] * STORE.found[key]


class ByDefault(nn.Module):
    """Keeps a grid in a default argument."""

    def forward(self, x: Tensor, *, known: dict[Any, Tensor] = {}) -> Tensor:  # noqa: B006
        key = str(x.dtype)
        if key not in known:
            known[key] = torch.tensor(3.0) * 2
        return x + known[key]


GRID: Tensor | None = None


class ByGlobal(nn.Module):
    """Keeps a grid in a global variable."""

    def forward(self, x: Tensor) -> Tensor:
        global GRID  # noqa: PLW0603
        if GRID is None:
            GRID = torch.tensor(3.0) * 2
        return x + GRID


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Computes an attribute when it is first read, and refuses to set others."""

    scale: float

    @functools.cached_property
    def grid(self) -> Tensor:
        return torch.tensor(self.scale) * 2


class ByCachedProperty(nn.Module):
    """Has an object with a cached property."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = Frozen(3.0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.frozen.grid


MODELS = (
    *(ByFunction, ByMethods, ByTable, ByClass, ByAttribute),
    *(ByObject, ByDefault, ByGlobal, ByCachedProperty),
)


@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("shapes", [None, SHAPES], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", MODELS)
def test_caches(kind: type[nn.Module], shapes: Any, is_called: bool) -> None:
    globals()["GRID"] = None
    x = torch.randn(2, 3 + is_called, 5)
    model = kind()
    if is_called:
        model(x)
    for _ in range(2):
        program = onnx_aot.export(model, (x,), dynamic_shapes=shapes)
        torch.testing.assert_close(program(x)[0], model(x))
        assert type(model(x)) is Tensor
    kept = (TABLE, ByClass.grids, getattr(model, "grids", {}))
    leaves = [leaf for table in kept for leaf in pytree.tree_leaves((list(table), table))]
    assert not any(isinstance(leaf, (FakeTensor, torch.SymInt)) for leaf in leaves)
    for size in ((2, 5, 7), (1, 1, 1), (3, 4, 9), (0, 2, 2)) if shapes else ():
        y = torch.randn(*size)
        torch.testing.assert_close(program(y)[0], model(y))


def chosen(x: Tensor) -> Tensor:
    return x * 2 if x.shape[1] in {8, 16} else x


def looked_up(x: Tensor) -> Tensor:
    return x * ALLOWED.get(x.shape[1], 1.0)


@pytest.mark.parametrize("model", [chosen, looked_up])
@pytest.mark.parametrize("size", [8, 9])
def test_other_tables_decide_about_the_size(model: Any, size: int) -> None:
    """The model computes something else for the sizes in the table, so they are refused."""
    with pytest.raises(DynamicShapeError, match=r"at .*test_memories\.py:"):
        onnx_aot.export(model, (torch.randn(2, size, 3),), dynamic_shapes=SHAPES)


def images(size: int) -> tuple[Tensor]:
    return (torch.arange(10.0 * size).reshape(2, size, 5),)


STATIC = Example(ByFunction, images, dynamic_shapes=None)
OF_FUNCTION = Example(ByFunction, images, dynamic_shapes=SHAPES)
OF_TABLE = Example(ByTable, images, dynamic_shapes=None)
OF_OBJECT = Example(ByObject, images, dynamic_shapes=None)
OF_SIZES = Example(ByAttribute, images, dynamic_shapes=SHAPES)


@shows("results of functions under functools.lru_cache in the code of the model")
def test_without_emptied_functions() -> None:
    grid.cache_clear()
    with absent("results of functions under functools.lru_cache in the code of the model"):
        exported(STATIC)
    assert isinstance(grid(STATIC.sizes[0], 5), FakeTensor)
    grid.cache_clear()
    assert not differs(STATIC, exported(STATIC), STATIC.sizes[:1])


@shows("functions under functools.lru_cache in the code of the model")
def test_without_memoized_functions() -> None:
    grid.cache_clear()
    with absent("functions under functools.lru_cache in the code of the model"):
        assert "unhashable type" in message(OF_FUNCTION)
    assert not differs(OF_FUNCTION, exported(OF_FUNCTION))


@shows("dicts of Python modules and classes in which the model keeps what it computes")
def test_without_tables() -> None:
    TABLE.clear()
    with absent("dicts of Python modules and classes in which the model keeps what it computes"):
        exported(OF_TABLE)
    assert any(isinstance(value, FakeTensor) for value in TABLE.values())
    TABLE.clear()
    exported(OF_TABLE)
    assert not TABLE


@shows("global variables and attributes in which the model keeps what it computes")
def test_without_attributes() -> None:
    Store.last = before = torch.ones(2)
    with absent("global variables and attributes in which the model keeps what it computes"):
        exported(OF_OBJECT)
    assert isinstance(Store.last, FakeTensor)
    Store.last = before
    for table in (STORE.found, Store.grids):  # which the same row empties
        table.clear()
    exported(OF_OBJECT)
    assert Store.last is before


@shows("torch:SymInt.__hash__")
def test_without_sizes_as_keys() -> None:
    with absent("torch:SymInt.__hash__"):
        assert "unhashable type" in message(OF_SIZES)
    assert not differs(OF_SIZES, exported(OF_SIZES))
