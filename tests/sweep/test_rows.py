"""Names of folders and keys of rows."""

from __future__ import annotations

import dataclasses

from onnx_aot.sweep.rows import Limits, Row, first_line, folder_name, key_of


def test_names_of_folders_differ_as_names_do() -> None:
    names = ["plain", "a/b", "a_b", "a:b[x=1]", "../up", "A" * 300, "A" * 301, "ü"]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert folders[0] == "plain"
    assert all("/" not in folder and len(folder) < 120 for folder in folders)


def test_the_key_has_what_matters() -> None:
    row = Row("a", settings={"x": 1})
    key = key_of(row, {"torch": "2"})
    same = (
        dataclasses.replace(row, name="b"),
        dataclasses.replace(row, limits=Limits(5)),
        dataclasses.replace(row, cores=4),
    )
    assert {key_of(other, {"torch": "2"}) for other in same} == {key}
    others = (
        dataclasses.replace(row, settings={"x": 2}),
        dataclasses.replace(row, task="a:b"),
        dataclasses.replace(row, options={"opset": 18}),
        dataclasses.replace(row, torch="2.12.1"),
    )
    keys = {key_of(other, {"torch": "2"}) for other in others} | {key_of(row, {"torch": "3"})}
    assert len(keys | {key}) == 6


def test_rows_travel_as_json() -> None:
    row = Row("a", code=("m",), files=("f",), limits=Limits(3, 4), options={"opset": 18})
    assert Row.from_json(row.to_json()) == row


def test_first_lines() -> None:
    assert first_line("one\ntwo") == "one"
    assert first_line("\n  several:\n  - first\n") == "several: - first"
    assert first_line("") == ""
