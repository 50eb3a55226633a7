"""Conditions on sizes, read from their text."""

from __future__ import annotations

import pytest

from onnx_aot.dimensions import conditions

# --- conditions that a call checks ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("x.shape[0] % 2 == 0", 4, True),
        ("x.shape[0] % 2 == 0 and not x.shape[0] > 5", 6, False),
        ("3 < x.shape[0] <= 2**3 or x.shape[0] == -1", 9, False),
        ("math.trunc(0.5 * float(x.shape[0])) == max(2, x.shape[0] // 2, 1)", 5, True),
        ("(1 if x.shape[0] > 3 else 0) == 1", 3, False),
        ("33 <= x.shape[0] and x.shape[0] <= math.inf", 3, False),
        ("math.pi < x.shape[0]", 3, None),
        ("y.shape[0] == 2", 3, None),
        ("x.shape[0] // 0 == 2", 3, None),
        ("__import__('os').system('true') == 0", 3, None),
        ("[1][x.shape[0]] == 1", 3, None),
        ("9**9**9**9 == x.shape[0]", 3, None),
        ("(((((9**64)**64)**64)**64)**64)**64 > x.shape[0]", 3, None),
        ("-" * 200_000 + "1", 3, None),
        ("(" * 500 + "1" + ")" * 500, 3, None),
        ("x.shape[0] ==", 3, None),
    ],
)
def test_conditions_are_interpreted(text: str, size: int, expected: bool | None) -> None:
    assert conditions.holds(text, {"x.shape[0]": size}) is expected


# --- many sizes at once --------------------------------------------------------------------------

SIZES = range(3000)


@pytest.mark.parametrize(
    "text",
    [
        "n % 7 == 3",
        "n <= 2047",
        "2 < n and not n > 1500 or n == 2999",
        "math.trunc(0.1 * float(n)) == 12",
        "(1 if n > 3 else 0) == 1",
        "1 == 1",
        "1.0 / 3 == 0",
        "n + 1 - n == 1.0 and n + 1.0 - n == 1",
        "100 // (n - 2000) == 0",  # unknown for one size
        "n ** n > 0",  # unknown for large ones
        "m == 2",
        "n ==",
    ],
)
def test_sizes_are_selected_as_they_are_tested_alone(text: str) -> None:
    expected = [n for n in SIZES if conditions.holds(text, {"n": n}) is not False]
    assert list(conditions.select_fulfilling(text, "n", SIZES)) == expected
    assert list(conditions.select_fulfilling(text, "n", iter([5, 5, 2]))) == [
        n for n in (5, 5, 2) if n in expected
    ]


def test_equal_parts_are_computed_once() -> None:
    """A size that is padded again and again is written with itself three times at each level."""
    size = "n"
    for _ in range(6):
        size = f"({size} + (-({size})) % 8 - ({size}) // 2)"
    steps = conditions._compile_condition(f"{size} > 3", ("n",))
    assert len(steps._steps) < 40
    assert conditions.holds(f"{size} > 3", {"n": 1000}) is eval(f"{size} > 3", {"n": 1000})


def test_few_sizes_are_tested_for_an_early_answer() -> None:
    asked = iter(range(10_000))
    assert next(conditions.select_fulfilling("n >= 2", "n", asked)) == 2
    assert next(asked) < 100
