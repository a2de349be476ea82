"""Reading text: files, lines, paragraphs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import DataError, PlanError
from tamis.stages.io import TextReader

SAMPLE = "One\ntwo\n\n \t\nThree é\n\n\n\nfour\nfive"


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("file", [SAMPLE]),
        ("line", SAMPLE.split("\n")),
        ("paragraph", ["One\ntwo", "Three é", "four\nfive"]),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("mark", ["", "﻿"])
def test_units(tmp_path: Path, read: Any, unit: str, expected: list[str], ends: str, last: str, mark: str) -> None:
    (tmp_path / "a.txt").write_bytes((mark + SAMPLE + last).replace("\n", ends).encode())
    rows = read(TextReader(str(tmp_path), unit=unit)).rows
    expected = [SAMPLE + last] if unit == "file" else expected
    assert [r["text"] for r in rows] == expected


@pytest.mark.parametrize("unit", ["line", "paragraph"])
@pytest.mark.parametrize("packed", [False, True])
def test_large_files_come_in_several_batches(tmp_path: Path, read: Any, unit: str, packed: bool) -> None:
    data = "".join(f"line {i}\nand more\n\n" for i in range(2000))
    (tmp_path / ("a.txt.gz" if packed else "a.txt")).write_bytes(
        gzip.compress(data.encode()) if packed else data.encode()
    )
    result = read(TextReader(str(tmp_path), unit=unit, blocksize=5000))
    assert len(result.batches) > 3
    expected = data[:-1].split("\n") if unit == "line" else data[:-2].split("\n\n")
    assert [r["text"] for r in result.rows] == expected


def test_a_row_for_each_file_with_its_path(tmp_path: Path, read: Any) -> None:
    for name in ("a.txt", "b.md", "c.rst"):
        (tmp_path / name).write_text(name)
    (tmp_path / "d.txt").write_text("")
    result = read(TextReader(str(tmp_path), include_path="path"))
    assert len(result.batches) == 1
    assert [(r["text"], Path(r["path"]).name) for r in result.rows] == [
        ("a.txt", "a.txt"),
        ("b.md", "b.md"),
        ("", "d.txt"),
    ]


@pytest.mark.parametrize("unit", ["file", "line", "paragraph"])
def test_invalid_utf8_is_located(tmp_path: Path, read: Any, unit: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\nthr\xffee\n\nfour\n")
    with pytest.raises(DataError, match=r"a\.txt, line 4, byte 12: invalid UTF-8: byte 0xff"):
        read(TextReader(str(tmp_path), unit=unit))


@pytest.mark.parametrize(
    ("unit", "kept", "raw"),
    [
        ("file", ["fine"], b"one\ntwo\n\nthr\xffee\n\nfour\n"),
        ("line", ["one", "two", "", "", "four", "fine"], b"thr\xffee"),
        ("paragraph", ["one\ntwo", "four", "fine"], b"thr\xffee"),
    ],
)
def test_invalid_utf8_is_set_aside(tmp_path: Path, read: Any, unit: str, kept: list[str], raw: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\nthr\xffee\n\nfour\n")
    (tmp_path / "b.txt").write_text("fine")
    result = read(TextReader(str(tmp_path), unit=unit, on_error="quarantine"))
    assert [r["text"] for r in result.rows] == kept
    assert [(b.line, b.byte, b.raw) for b in result.bad] == [(4, 12, raw)]


@pytest.mark.parametrize("unit", ["line", "paragraph"])
@pytest.mark.parametrize("content", ["", "\n\n", "   "])
def test_blank_files(tmp_path: Path, read: Any, unit: str, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    expected = [] if unit == "paragraph" or not content else content.removesuffix("\n").split("\n")
    assert [r["text"] for r in read(TextReader(str(tmp_path), unit=unit)).rows] == expected


def test_the_column_can_have_another_name(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert read(TextReader(str(tmp_path), text_field="content")).rows == [{"content": "x"}]


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(PlanError, match=r"unit='paragraf'.*Did you mean 'paragraph'\?"):
        TextReader("data", unit="paragraf")
