"""Reading CSV: quotes, line breaks, broken rows."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import DataError, PlanError
from tamis.stages.io import CsvReader

BY_LINE = pytest.mark.parametrize("newlines", [True, False])


def test_every_column_is_text(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("zip,score\n01234,1.50\nNA,nan\n")
    assert read(CsvReader(str(tmp_path))).rows == [{"zip": "01234", "score": "1.50"}, {"zip": "NA", "score": "nan"}]


@BY_LINE
def test_types_are_given_by_name(tmp_path: Path, read: Any, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,0.5\n,\n")
    reader = CsvReader(str(tmp_path), types={"n": "int64", "s": "float64"}, newlines_in_values=newlines)
    assert read(reader).rows == [{"n": 1, "s": 0.5}, {"n": None, "s": None}]


@BY_LINE
def test_nothing_is_null_and_quoted_nothing_is_empty(tmp_path: Path, read: Any, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text('a,b\n,1\n"",2\n')
    assert [r["a"] for r in read(CsvReader(str(tmp_path), newlines_in_values=newlines)).rows] == [None, ""]


def test_quotes_delimiters_and_line_breaks_in_values(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"x, y","line\nbreak"\n"say ""hi""",é\n')
    assert read(CsvReader(str(tmp_path))).rows == [{"a": "x, y", "b": "line\nbreak"}, {"a": 'say "hi"', "b": "é"}]


@BY_LINE
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_rows_come_in_bounded_batches(tmp_path: Path, read: Any, newlines: bool, ends: str, packed: bool) -> None:
    data = ("﻿text,n" + ends + "".join(f"row {i},{i}{ends}" for i in range(5000))).encode()
    (tmp_path / ("a.csv.gz" if packed else "a.csv")).write_bytes(gzip.compress(data) if packed else data)
    result = read(CsvReader(str(tmp_path), blocksize=8192, newlines_in_values=newlines))
    assert len(result.batches) > 3
    assert result.rows == [{"text": f"row {i}", "n": f"{i}"} for i in range(5000)]


def test_other_delimiters(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n1\t2\n")
    assert read(CsvReader(str(tmp_path), delimiter="\t")).rows == [{"a": "1", "b": "2"}]


def test_files_with_other_columns_go_together(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,c\n3,4\n")
    result = read(CsvReader(str(tmp_path), include_path="path"))
    assert [[r["a"], r["b"], r["c"], Path(r["path"]).name] for r in result.rows] == [
        ["1", "2", None, "a.csv"],
        [None, "3", "4", "b.csv"],
    ]


@pytest.mark.parametrize("content", ["", "a,b\n", "a,b", "\n\n"])
@BY_LINE
def test_files_without_rows(tmp_path: Path, read: Any, content: str, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert read(CsvReader(str(tmp_path), newlines_in_values=newlines)).batches == []


@BY_LINE
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("blocksize", [None, 3])
def test_empty_lines_before_the_header_are_skipped(
    tmp_path: Path, read: Any, newlines: bool, mark: str, blocksize: int | None
) -> None:
    (tmp_path / "a.csv").write_text(f"{mark}\n\r\n\n\na,b\n1,2\n\n3\n", encoding="utf-8", newline="")
    reader = CsvReader(str(tmp_path), newlines_in_values=newlines, blocksize=blocksize, on_error="quarantine")
    assert reader.columns() == ["a", "b"]
    result = read(reader)
    assert result.rows == [{"a": "1", "b": "2"}]
    assert [(b.line, b.raw) for b in result.bad] == [(8, b"3")]


@BY_LINE
def test_a_row_with_too_many_values_is_located(tmp_path: Path, read: Any, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4,5\n6,7\n")
    with pytest.raises(DataError) as error:
        read(CsvReader(str(tmp_path), newlines_in_values=newlines))
    assert f"{tmp_path / 'a.csv'}, line 3" in str(error.value)
    assert "the row has 3 values, the header 2: 3,4,5" in str(error.value)


def test_lines_are_counted_over_line_breaks_in_values(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"1\n1\n1",2\n3\n')
    with pytest.raises(DataError, match="line 5: the row has 1 values, the header 2"):
        read(CsvReader(str(tmp_path)))


@BY_LINE
def test_broken_rows_are_set_aside(tmp_path: Path, read: Any, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4,5\n6,7\n8\n9,10\n")
    result = read(CsvReader(str(tmp_path), newlines_in_values=newlines, on_error="quarantine"))
    assert [r["a"] for r in result.rows] == ["1", "6", "9"]
    assert [(b.line, b.raw) for b in result.bad] == [(3, b"3,4,5"), (5, b"8")]


def test_broken_rows_of_a_range_are_located_in_the_file(tmp_path: Path, read: Any) -> None:
    rows = [f"{i},x" if i != 700 else "700" for i in range(1000)]
    (tmp_path / "a.csv").write_text("a,b\n" + "\n".join(rows) + "\n")
    result = read(CsvReader(str(tmp_path), newlines_in_values=False, blocksize=1000, on_error="quarantine"))
    assert [r["a"] for r in result.rows] == [f"{i}" for i in range(1000) if i != 700]
    [bad] = result.bad
    assert (bad.line, bad.raw) == (702, b"700")
    assert bad.byte == (tmp_path / "a.csv").read_bytes().index(b"\n700\n") + 1


@BY_LINE
def test_invalid_utf8_is_located_or_set_aside(tmp_path: Path, read: Any, newlines: bool) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,x\n2,\xff\n3,y\n")
    with pytest.raises(DataError, match="line 3, byte 10: column 'b': invalid UTF-8: byte 0xff"):
        read(CsvReader(str(tmp_path), newlines_in_values=newlines))
    result = read(CsvReader(str(tmp_path), newlines_in_values=newlines, on_error="quarantine"))
    assert [r["a"] for r in result.rows] == ["1", "3"]
    assert [b.raw for b in result.bad] == [b"2,\xff"]


def test_a_value_of_another_type_is_an_error_or_set_aside(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\noops,y\n")
    with pytest.raises(DataError, match="column 'a': 'oops' is not a valid int64"):
        read(CsvReader(str(tmp_path), types={"a": "int64"}))
    result = read(CsvReader(str(tmp_path), types={"a": "int64"}, on_error="quarantine"))
    assert result.rows == [{"a": 1, "b": "x"}]
    assert [b.raw for b in result.bad] == [b"oops,y"]


@BY_LINE
def test_what_comes_before_a_cut_goes_on(tmp_path: Path, read: Any, newlines: bool) -> None:
    packed = gzip.compress(("a,b\n" + "".join(f"{i},row {i}\n" for i in range(5000))).encode())
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="the gzip stream ends early"):
        read(CsvReader(str(tmp_path), newlines_in_values=newlines))
    result = read(CsvReader(str(tmp_path), newlines_in_values=newlines, on_error="quarantine"))
    assert 500 < len(result.rows) < 4500
    assert result.rows == [{"a": f"{i}", "b": f"row {i}"} for i in range(len(result.rows))]
    assert ["ends early" in b.problem for b in result.bad] == [True]


def test_a_missing_column_is_an_error(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("text,n\nx,1\n")
    with pytest.raises(DataError, match=r"there is no column 'txt', only text, n\. Did you mean 'text'\?"):
        read(CsvReader(str(tmp_path), fields=["txt"]))


def test_a_name_that_occurs_twice_in_the_header_is_an_error(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("a,a\n1,2\n")
    with pytest.raises(DataError, match="line 1: the header names 'a' twice"):
        read(CsvReader(str(tmp_path)))


def test_chosen_columns_come_in_the_order_asked_for(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    assert read(CsvReader(str(tmp_path), fields=["c", "a"])).table.column_names == ["c", "a"]


def test_columns_are_known_from_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"the text",n\nx,1\n')
    assert CsvReader(str(tmp_path)).columns() == ["the text", "n"]


def test_a_delimiter_is_one_character() -> None:
    with pytest.raises(PlanError, match="must be one character"):
        CsvReader("data", delimiter="||")
