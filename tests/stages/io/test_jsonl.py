"""Reading JSON lines from files: ranges, compression, broken files, many small files."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError, PlanError
from tamis.stages.io import JsonlReader, JsonlReaderStage
from tamis.stages.io.blocks import Part, block_of
from tamis.tasks import FileGroup, FileSlice

ROWS = [{"text": f"row {i} é", "n": i} for i in range(1000)]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda b: b,
    ".gz": lambda b: gzip.compress(b, mtime=0),
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def dump(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()


@pytest.mark.parametrize("ending", PACK)
def test_plain_and_compressed_files(tmp_path: Path, read: Any, ending: str) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](dump(ROWS)))
    assert read(JsonlReader(str(tmp_path))).rows == ROWS


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2", ".xz"])
def test_several_compressed_streams_in_one_file_are_one_file(tmp_path: Path, read: Any, ending: str) -> None:
    data = dump(ROWS)
    half = len(data) // 2  # in the middle of a line
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](data[:half]) + PACK[ending](data[half:]))
    assert read(JsonlReader(str(tmp_path))).rows == ROWS


def test_zeros_behind_a_gzip_stream_are_padding(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(dump(ROWS)) + b"\0" * 100)
    assert read(JsonlReader(str(tmp_path))).rows == ROWS


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_large_file_is_read_in_bounded_batches(tmp_path: Path, read: Any, ending: str) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](dump(ROWS)))
    result = read(JsonlReader(str(tmp_path), blocksize=4096))
    assert len(result.batches) > 5
    assert max(b.data.num_rows for b in result.batches) < 300
    assert result.rows == ROWS


def test_a_whole_file_for_each_task_is_still_read_in_bounded_batches(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    stage = JsonlReaderStage(block_bytes=4096)
    size = (tmp_path / "a.jsonl").stat().st_size
    batches = list(stage.process(FileGroup(["a"], slices=[FileSlice(str(tmp_path / "a.jsonl"), size=size)])))
    assert len(batches) > 5
    assert [row for b in batches for row in b.data.to_pylist()] == ROWS  # type: ignore[union-attr]  # no bad rows


def test_many_small_files_become_one_batch(tmp_path: Path, read: Any) -> None:
    for i in range(200):
        (tmp_path / f"{i:03d}.jsonl").write_bytes(dump([ROWS[i]]).rstrip() if i % 2 else dump([ROWS[i]]))
    result = read(JsonlReader(str(tmp_path)))
    assert len(result.batches) == 1
    assert result.rows == ROWS[:200]


def test_small_files_of_other_types_are_widened(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1, "a": "x"}')
    (tmp_path / "b.jsonl").write_text('{"n": 1.5, "b": [1]}')
    assert read(JsonlReader(str(tmp_path))).rows == [{"n": 1.0, "a": "x", "b": None}, {"n": 1.5, "a": None, "b": [1]}]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only where there is a /proc")
def test_a_file_that_does_not_know_its_size_is_read(read: Any) -> None:
    with pytest.raises(DataError, match="/proc/version, line 1, byte 0: Expecting value"):
        read(JsonlReader("/proc/version"))


def test_empty_files_give_no_batch(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b""))
    assert read(JsonlReader(str(tmp_path))).batches == []


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, read: Any, ending: str) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](b"\xef\xbb\xbf" + dump(ROWS)))
    assert read(JsonlReader(str(tmp_path), blocksize=4096)).rows == ROWS


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 30), max_size=20),
    cuts=st.lists(st.integers(0, 700), max_size=6),
    ends=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
)
def test_any_cut_into_ranges_reads_the_same_rows(
    tmp_path: Path, lengths: list[int], cuts: list[int], ends: str, last: bool
) -> None:
    rows = [{"a": "x" * n} for n in lengths]
    data = "".join(json.dumps(r) + ends for r in rows).encode()
    data = data if last else data.removesuffix(ends.encode())
    path = tmp_path / "cut.jsonl"
    path.write_bytes(data)
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    found = []
    for start, stop in itertools.pairwise(edges):
        group = FileGroup([str(path)], slices=[FileSlice(str(path), start, stop, len(data))])
        for batch in JsonlReaderStage().process(group):
            found += batch.data.to_pylist()  # type: ignore[union-attr]  # no bad rows
    assert found == rows


def test_a_line_longer_than_a_block_is_read_once(tmp_path: Path, read: Any) -> None:
    rows = [{"a": "x" * 200_000}, {"a": "y"}, {"a": "z" * 150_000}]
    (tmp_path / "a.jsonl").write_bytes(dump(rows))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(dump(rows)))
    assert read(JsonlReader(str(tmp_path), blocksize=10_000)).rows == rows * 2


def test_a_broken_line_is_located(tmp_path: Path, read: Any) -> None:
    data = dump(ROWS[:500]) + b'{"text": "cut of\n' + dump(ROWS[500:])
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(DataError) as error:
        read(JsonlReader(str(tmp_path), blocksize=4096))
    assert f"{tmp_path / 'a.jsonl'}, line 501, byte {len(dump(ROWS[:500]))}:" in str(error.value)
    assert 'Unterminated string starting at column 10: {"text": "cut of' in str(error.value)
    assert 'on_error="quarantine"' in str(error.value)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_broken_lines_are_set_aside_and_the_others_go_on(tmp_path: Path, read: Any, ending: str) -> None:
    data = dump(ROWS[:500]) + b"oops\n" + dump(ROWS[500:900]) + b'{"a": "\xff"}\n' + dump(ROWS[900:])
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](data))
    result = read(JsonlReader(str(tmp_path), blocksize=4096, on_error="quarantine"))
    assert result.rows == ROWS
    assert [(b.line, b.byte, b.raw) for b in result.bad] == [
        (501, len(dump(ROWS[:500])), b"oops"),
        (902, data.index(b'{"a": "\xff'), b'{"a": "\xff"}'),
    ]
    assert result.bad[1].problem == "invalid UTF-8: byte 0xff at column 8"


def test_a_broken_line_in_one_of_many_files_names_that_file(tmp_path: Path, read: Any) -> None:
    for i in range(20):
        (tmp_path / f"{i:02d}.jsonl").write_bytes(dump(ROWS[:3]) + (b"oops" if i == 7 else b""))
    [bad] = read(JsonlReader(str(tmp_path), on_error="quarantine")).bad
    assert (Path(bad.path).name, bad.line, bad.byte) == ("07.jsonl", 4, len(dump(ROWS[:3])))


def test_a_json_array_is_recognised(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS[:3], indent=1))
    with pytest.raises(DataError, match="seems to hold one JSON value over several lines"):
        read(JsonlReader(str(tmp_path)))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_cut_off_stream_is_an_error_that_says_where(tmp_path: Path, read: Any, ending: str) -> None:
    packed = PACK[ending](dump(ROWS))
    (tmp_path / f"a.jsonl{ending}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError) as error:
        read(JsonlReader(str(tmp_path)))
    kind = {".gz": "gzip", ".zst": "zstd"}[ending]
    assert f"the {kind} stream ends early, after {len(packed) // 2} compressed bytes" in str(error.value)
    assert f"a.jsonl{ending}, byte " in str(error.value)


def test_what_comes_before_the_cut_goes_on(tmp_path: Path, read: Any) -> None:
    packed = gzip.compress(dump(ROWS))
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.jsonl").write_bytes(dump(ROWS[:1]))
    result = read(JsonlReader(str(tmp_path), on_error="quarantine"))
    kept = len(result.rows) - 1
    assert 100 < kept < 900
    assert result.rows == ROWS[:kept] + ROWS[:1]
    [bad] = result.bad
    assert bad.line == kept + 1
    assert bad.byte == len(dump(ROWS[:kept]))
    assert "ends early" in bad.problem
    assert dump([ROWS[kept]]).startswith(bad.raw)


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz", ".bz2"])
def test_a_damaged_stream_is_an_error(tmp_path: Path, read: Any, ending: str) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(b"this is not compressed at all, whatever the name says")
    with pytest.raises(DataError, match=f"this is not a .* file, although its name ends in {ending}"):
        read(JsonlReader(str(tmp_path)))


def test_garbage_behind_a_stream_is_an_error(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(dump(ROWS)) + b"garbage")
    with pytest.raises(DataError, match="damaged"):
        read(JsonlReader(str(tmp_path)))


def test_a_file_that_vanished_is_an_error(tmp_path: Path) -> None:
    group = FileGroup([], slices=[FileSlice(str(tmp_path / "gone.jsonl"), size=10)])
    with pytest.raises(DataError, match=r"gone\.jsonl: there is no such file \(any more\)"):
        list(JsonlReaderStage().process(group))


def test_a_file_that_vanished_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    slices = [FileSlice(str(tmp_path / "gone.jsonl"), size=10), FileSlice(str(tmp_path / "a.jsonl"))]
    bad, batch = JsonlReaderStage(on_error="quarantine").process(FileGroup([], slices=slices))
    assert "there is no such file" in bad.rows[0].problem  # type: ignore[union-attr]  # the first is the bad row
    assert batch.data.num_rows == 1000  # type: ignore[union-attr]  # the second is the batch


def test_a_file_that_changed_since_it_was_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    group = FileGroup([], slices=[FileSlice(str(tmp_path / "a.jsonl"), size=10)])
    with pytest.raises(DataError, match="it changed while the run read it: 10 bytes when listed"):
        list(JsonlReaderStage().process(group))


def test_fields_are_chosen(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    result = read(JsonlReader(str(tmp_path), fields=["n", "nowhere"]))
    assert result.rows == [{"n": r["n"], "nowhere": None} for r in ROWS]


def test_types_are_the_same_in_every_block(tmp_path: Path, read: Any) -> None:
    rows: list[dict[str, Any]] = [{"a": 1} for _ in range(500)] + [{"a": 1.5} for _ in range(500)]
    (tmp_path / "a.jsonl").write_bytes(dump(rows))
    loose = read(JsonlReader(str(tmp_path), blocksize=4096))
    assert {str(b.data.schema.field("a").type) for b in loose.batches} == {"int64", "double"}
    strict = read(JsonlReader(str(tmp_path), blocksize=4096, types={"a": "float64", "b": "string"}))
    assert {str(b.data.schema) for b in strict.batches} == {"a: double\nb: large_string"}


@pytest.mark.parametrize("blank", [b"", b"\n"])
def test_the_path_of_each_row(tmp_path: Path, read: Any, blank: bytes) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(blank + dump(ROWS[: ord(name) - 96]))
    rows = read(JsonlReader(str(tmp_path), include_path="path")).rows
    assert [Path(r["path"]).name for r in rows] == ["a.jsonl", *["b.jsonl"] * 2, *["c.jsonl"] * 3]


def test_the_path_needs_a_column_of_its_own(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    with pytest.raises(DataError, match="include_path='text': the file has a column of that name"):
        read(JsonlReader(str(tmp_path), include_path="text"))


def test_batches_know_their_source(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    [batch] = read(JsonlReader(str(tmp_path))).batches
    assert batch._metadata["source_files"] == [str(tmp_path / "a.jsonl")]
    assert batch.dataset_name == tmp_path.name


def test_text_is_large_string_in_every_batch(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(dump(ROWS))
    assert read(JsonlReader(str(tmp_path))).table.schema.field("text").type == pa.large_string()


def test_columns_are_known_from_the_first_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(dump(ROWS)))
    assert JsonlReader(str(tmp_path), include_path="path").columns() == ["text", "n", "path"]
    assert JsonlReader(str(tmp_path), fields=["n"]).columns() == ["n"]


def test_the_schema_has_the_keys_of_all_lines_and_their_types(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "c": null}\n{"b": "x", "d": 1}\n{"d": "x"}\n')
    schema = JsonlReader(str(tmp_path), types={"e": "int8"}, include_path="path").schema()
    texts = dict.fromkeys("bd", pa.large_string())
    assert schema is not None
    assert {name: schema.field(name).type for name in schema.names} == {
        **texts,
        "a": pa.int64(),
        "c": pa.null(),
        "e": pa.int8(),
        "path": pa.large_string(),
    }


@pytest.mark.parametrize("content", [None, b"", b"oops\n", b"\xff\xfe"])
def test_looking_for_columns_never_fails(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.jsonl").write_bytes(content)
    assert JsonlReader(str(tmp_path)).columns() is None


def test_what_is_known_before_a_run(tmp_path: Path) -> None:
    stage = JsonlReader("data", fields=["text"], include_path="path").decompose()[1]
    assert stage.columns_after(None) == frozenset({"text", "path"})
    assert JsonlReader("data").decompose()[1].columns_after(None) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_error": "quarantin"}, r"on_error='quarantin'.*Did you mean 'quarantine'\?"),
        ({"fields": "text"}, r"fields='text'\): give a list of column names"),
        ({"fields": []}, "give a list of column names"),
        ({"fields": ["a", "a"]}, "'a' is named twice"),
        ({"fields": ["a"], "include_path": "a"}, "include_path='a' is also in fields"),
        ({"blocksize": "a lot"}, "'a lot' is not a valid size"),
        ({"read_kwargs": {"storage_option": {}}}, r"Did you mean 'storage_options'\?"),
        ({"types": {"a": "flaot64"}}, r"no such type.*Did you mean 'float64'\?"),
    ],
)
def test_mistakes_are_refused_when_the_reader_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        JsonlReader("data", **settings)


@pytest.mark.parametrize("path", [None, "path"])
def test_a_value_of_another_type_is_located_or_set_aside(tmp_path: Path, read: Any, path: str | None) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\n{"n": null}\n')
    (tmp_path / "b.jsonl").write_text('{"n": 2}\n\n{"n": "oops"}\nno json\n{"n": [3]}\n{"n": 4}')
    types = {"n": "float64"}
    result = read(JsonlReader(str(tmp_path), on_error="quarantine", include_path=path, types=types))
    assert [row["n"] for row in result.rows] == [1.0, None, 2.0, 4.0]
    assert [(Path(b.path).name, b.line, b.byte, b.raw) for b in result.bad] == [
        ("b.jsonl", 3, 10, b'{"n": "oops"}'),
        ("b.jsonl", 4, 24, b"no json"),
        ("b.jsonl", 5, 32, b'{"n": [3]}'),
    ]
    (tmp_path / "b.jsonl").write_text('{"n": 2}\n\n{"n": "oops"}\n')
    with pytest.raises(DataError, match=r"b\.jsonl, line 3, byte 10: column 'n': 'oops' is not a valid double"):
        read(JsonlReader(str(tmp_path), include_path=path, types=types))


def test_the_first_byte_of_each_row_is_known_whatever_is_between_them() -> None:
    lines = [b'{"n": 1}', b"oops", b"", b'{"n": "x"}', b' {"n": 2}', b'{"n": 3, "m": [1]}']
    block = block_of([Part("a", 0, b"\n".join(lines)), Part("b", 7, b'\n{"n": 4}\n'), Part("c", 0, b'{"n": 5}')])
    stage = JsonlReaderStage(on_error="quarantine", include_path="path")
    table, starts, broken = stage.parse_block(block, {"n": pa.int64()})
    assert table.column("n").to_pylist() == [1, 2, 3, 4, 5]
    assert [json.loads(block.data[start:].split(b"\n")[0])["n"] for start in starts.tolist()] == [1, 2, 3, 4, 5]
    assert table.column("path").to_pylist() == ["a", "a", "a", "b", "c"]
    assert [block.locate(start)[0].path for start in starts.tolist()] == ["a", "a", "a", "b", "c"]
    assert [block.data[line.start : line.stop] for line in broken] == [b"oops", b'{"n": "x"}']


def test_a_block_that_would_fill_the_memory_is_refused_with_its_file(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(b'{"%d": 1}\n' % i for i in range(20_000)))
    with pytest.raises(DataError, match=r"a\.jsonl, byte 0: 20,000 rows have 20,000 different keys"):
        read(JsonlReader(str(tmp_path)))
