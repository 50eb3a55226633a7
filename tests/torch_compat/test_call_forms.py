"""A call form takes what ``inspect.Signature.bind`` takes."""

from __future__ import annotations

import functools
import inspect
import itertools

import pytest

from onnx_aot.torch_compat.call_forms import call_form


def plain(a, b, c=1):
    return a


def nameless(a, b=1, /, c=2):
    return a


def named(a, *, b, c=1):
    return a


def collecting(a, *args, b=1):
    return a


def open_ended(a, /, b=2, **kwargs):
    return a


def anything(*args, **kwargs):
    return args


def nothing():
    return None


FUNCTIONS = [plain, nameless, named, collecting, open_ended, anything, nothing]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_takes_what_binds(function):
    names = [{}, *(dict.fromkeys(chosen, 0) for k in (1, 2, 3) for chosen in _subsets(k))]
    for count, kwargs in itertools.product(range(5), names):
        args = (0,) * count
        try:
            inspect.signature(function).bind(*args, **kwargs)
            binds = True
        except TypeError:
            binds = False
        assert call_form(function).takes(args, kwargs) == binds, (args, kwargs)


def _subsets(count):
    return itertools.combinations(("a", "b", "c", "d"), count)


def test_takes_all():
    assert [f.__name__ for f in FUNCTIONS if call_form(f).takes_all] == ["anything"]


def test_closures_share_a_form_and_partials_have_their_own():
    def make(value):
        return lambda x, y=value: (x, y)

    assert call_form(make(1)) is call_form(make(2))
    assert call_form(functools.partial(plain, 1)).takes((2,), {})
    assert not call_form(functools.partial(plain, 1)).takes((2, 3, 4), {})
