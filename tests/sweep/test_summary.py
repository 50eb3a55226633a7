"""A sweep as a comment on a pull request."""

from __future__ import annotations

from onnx_aot.sweep.results import Result
from onnx_aot.sweep.summary import summarize

RESULTS = [
    Result("a", "right", options={"opset": 18, "dynamic": True}),
    Result("b", "right", options={"opset": 20, "dynamic": True}),
    Result("c", "wrong", options={"opset": 20, "dynamic": True}, reason="a <b> of 3\nmore"),
]

TEXT = """\
**2 of 3 rows are right.**

| | right | wrong |
| --- | ---: | ---: |
| all | 2 | 1 |
| opset 18 | 1 | 0 |
| opset 20 | 1 | 1 |

<details><summary>Rows that are not right</summary>

- `c`: wrong, a &lt;b> of 3

</details>
"""


def test_counts_and_reasons() -> None:
    assert summarize(RESULTS) == TEXT
    many = [Result(str(number), "failed") for number in range(60)]
    assert "- and 10 more" in summarize(many)
