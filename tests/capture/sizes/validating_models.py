"""Models with code that only validates data, and models with code that looks similar.

They are not in the module with the tests, whose assertions pytest rewrites.
"""

# ruff: noqa: C419, PT018, RET506, SIM114, SIM300, T201 -- the forms are what is tested

from __future__ import annotations

import contextlib
import logging
import sys
import warnings

import torch

__all__ = [
    "OTHERS",
    "RAISING",
    "Counting",
    "assertion_of_torch",
    "both",
    "catching",
    "mixed",
    "raising",
    "raising_twice",
    "writing",
]

Tensor = torch.Tensor
log = logging.getLogger(__name__)


def assertion(x: Tensor) -> Tensor:
    assert 0 <= x.min(), f"the smallest is {x.min()}"
    return x * 2


def assertion_of_a_chain(x: Tensor) -> Tensor:
    assert 0 <= x.min() <= 1
    return x * 2


def assertion_of_both(x: Tensor) -> Tensor:
    assert x.min() >= 0 and x.max() <= 1, "out of range"
    return x * 2


def assertion_of_one(x: Tensor) -> Tensor:
    assert x.min() >= 0 or x.max() <= 1
    return x * 2


def raising(x: Tensor) -> Tensor:
    if x.min() < 0:
        raise ValueError(f"the smallest is {x.min()}")
    return x * 2


def raising_a_message(x: Tensor) -> Tensor:
    if not (x >= 0).all():
        message = f"the smallest is {x.min()}"
        raise ValueError(message)
    return x * 2


def raising_if_both(x: Tensor) -> Tensor:
    if x.min() < 0 and x.max() > 1:
        raise ValueError
    return x * 2


def raising_if_either(x: Tensor) -> Tensor:
    if x.min() < 0 or (x.max() > 1).item():
        raise ValueError
    return x * 2


def raising_in_a_range(x: Tensor) -> Tensor:
    if 2 <= x.min() <= 3:
        raise ValueError
    return x * 2


def raising_otherwise(x: Tensor) -> Tensor:
    if x.min() >= 0:
        y = x * 2
    else:
        raise ValueError
    return y


def raising_at_the_end(x: Tensor) -> Tensor:
    if x.min() >= 0:
        return x * 2
    raise ValueError


def raising_twice(x: Tensor) -> Tensor:
    if x.min() < 0:
        raise ValueError
    elif x.max() > 1:
        raise ValueError
    else:
        y = x * 2
    return y


def raising_if_any(x: Tensor) -> Tensor:
    if any(part.min() < 0 for part in (x, x + 1)):
        raise ValueError
    assert all([part.max() <= 1 for part in (x, x - 1)])
    if bool((x > 1).any()):
        raise ValueError
    return x * 2


def check_range(x: Tensor) -> None:
    if x.min() < 0:
        raise ValueError


def calling(x: Tensor) -> Tensor:
    check_range(x)
    check_range(1 - x)
    return x * 2


def assertion_of_torch(x: Tensor) -> Tensor:
    torch._assert((x >= 0).all(), "negative")
    return x * 2


def equal(x: Tensor) -> Tensor:
    if not torch.equal(x, x.abs()) or not x.equal(x.abs()):
        raise ValueError
    return x * 2


def close(x: Tensor) -> Tensor:
    assert torch.allclose(x, x.abs()) and x.allclose(x.abs(), atol=1e-3)
    return x * 2


def counting(x: Tensor) -> Tensor:
    chosen = torch.nonzero(x.flatten() > 0.2)
    if chosen.numel() == 0:
        raise ValueError
    if chosen.shape[0] > 11:
        raise ValueError
    return x[0] * chosen.sum()


def writing(x: Tensor) -> Tensor:
    if torch.isnan(x).any():
        warnings.warn("not a number", stacklevel=2)
    if x.max() > 1:
        print("large", x.max())
    elif x.min() < 0:
        log.warning("small %s", x.min())
        logging.info("small")
    if x.min() < 0:
        if log.disabled:
            print("small")
        sys.stderr.write("small")
    return x * 2


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low = 0

    def forward(self, x: Tensor) -> Tensor:
        if x.min() < 0:
            self.low = 1
        return x * self.low


def returning(x: Tensor) -> Tensor:
    if x.min() < 0:
        return x
    return x * 2


def assigning(x: Tensor) -> Tensor:
    factor = 1
    if x.min() < 0:
        factor = 2
    return x * factor


def calling_another(x: Tensor) -> Tensor:
    if x.min() < 0:
        check_range(x)
    return x * 2


def writing_otherwise(x: Tensor) -> Tensor:
    if x.min() < 0:
        print("small")
    else:
        x = x + 1
    return x


def writing_and_returning(x: Tensor) -> Tensor:
    if x.min() < 0:
        print("small")
        return x
    return x * 2


def catching(x: Tensor) -> Tensor:
    try:
        assert (x.min() >= 0).item()
    except AssertionError:
        x = x.abs()
    return x * 2


def catching_a_call(x: Tensor) -> Tensor:
    with contextlib.suppress(ValueError):
        check_range(x)
        x = x + 1
    return x * 2


def asking_again(x: Tensor) -> Tensor:
    small = x.min() < 0
    if small and x.max() > 1:
        raise ValueError
    return x if small else x * 2


def writing_before(x: Tensor) -> Tensor:
    small = x.min() < 0
    if small:
        print("small")
    return x if small else x * 2


def raising_in_a_value(x: Tensor) -> Tensor:
    factor = (x.min() < 0 and 2) or 1
    return x * factor


def mixed(x: Tensor) -> Tensor:
    assert x.min() >= 0 and not (x > 1).any(), "out of range"
    if (
        x.min() < 0
        or not
        (x <= 1)
        .all()
    ):  # fmt: skip
        raise ValueError
    return x * 2


def both(x: Tensor) -> Tensor:
    assert x.min() >= 0
    return x if x.max() > 1 else x.long()


RAISING = [
    assertion,
    assertion_of_a_chain,
    assertion_of_both,
    assertion_of_one,
    raising,
    raising_a_message,
    raising_if_both,
    raising_if_either,
    raising_in_a_range,
    raising_otherwise,
    raising_at_the_end,
    raising_twice,
    raising_if_any,
    calling,
    assertion_of_torch,
    equal,
    close,
    counting,
]

OTHERS = [
    returning,
    assigning,
    calling_another,
    writing_otherwise,
    writing_and_returning,
    catching,
    catching_a_call,
    asking_again,
    writing_before,
    raising_in_a_value,
]
