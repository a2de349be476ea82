"""Writing: names, formats, modes, partitions, and that a file is there whole or not at all."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import ColumnError, DataError, PlanError
from tamis.runs.publication import publish
from tamis.stages.emit import Publish
from tamis.stages.io import (
    CsvReader,
    CsvWriter,
    JsonlReader,
    JsonlWriter,
    ParquetReader,
    ParquetWriter,
    TextWriter,
    destination,
)
from tamis.stages.io.card_files import CARD_FILES
from tamis.stages.io.output_directory import MARKER
from tamis.tasks import DocumentBatch, FileGroup

TABLE = pa.table({"text": ["a", "b é", None], "n": [1, 2, 3]})


def files(root: Path) -> list[str]:
    about = (MARKER, *CARD_FILES)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name not in about)


def json_of(column: pa.Array, write: Any, tmp_path: Path) -> list[Any]:
    write(JsonlWriter(str(tmp_path / "one")), [pa.table({"v": column})])
    return [
        json.loads(line)["v"]
        for line in (tmp_path / "one" / "part-000000.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]


def test_one_file_for_each_task(tmp_path: Path, write: Any) -> None:
    groups: list[FileGroup] = write(JsonlWriter(str(tmp_path / "out")), [TABLE, TABLE.slice(1)])
    assert files(tmp_path / "out") == ["part-000000.jsonl", "part-000001.jsonl"]
    assert (tmp_path / "out" / "part-000000.jsonl").read_text(encoding="utf-8") == (
        '{"text":"a","n":1}\n{"text":"b é","n":2}\n{"text":null,"n":3}\n'
    )
    assert groups[0].data == [str(tmp_path / "out" / "part-000000.jsonl")]
    assert groups[0].slices[0].size == (tmp_path / "out" / "part-000000.jsonl").stat().st_size


def test_a_file_is_invisible_until_it_is_published(tmp_path: Path) -> None:
    [stage] = JsonlWriter(str(tmp_path / "out")).decompose()
    finished, _ = stage.process(DocumentBatch(TABLE, order=(4,)))  # type: ignore[misc]  # two emissions
    assert isinstance(finished, Publish)
    assert finished.final == str(tmp_path / "out" / "part-000004.jsonl")
    assert Path(finished.temporary).parent == tmp_path / "out"
    assert Path(finished.temporary).name.startswith(".part-000004.jsonl.")
    assert (finished.rows, finished.nbytes) == (3, Path(finished.temporary).stat().st_size)
    assert not os.path.exists(finished.final)
    publish(finished)
    publish(finished)  # doing it again changes nothing
    assert files(tmp_path / "out") == ["part-000004.jsonl"]


def test_two_attempts_do_not_disturb_each_other(tmp_path: Path) -> None:
    [stage] = JsonlWriter(str(tmp_path / "out")).decompose()
    task = DocumentBatch(TABLE, order=(0,))
    first, second = (next(iter(stage.process(task))) for _ in range(2))  # type: ignore[arg-type]  # an iterator
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.temporary != second.temporary
    assert first.final == second.final


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    [stage] = JsonlWriter(str(tmp_path / "out")).decompose()
    with pytest.raises(DataError):
        list(stage.process(DocumentBatch({"b": [b"x"]}, order=(0,))))  # type: ignore[arg-type]  # an iterator
    assert files(tmp_path) == []


def test_batches_without_rows_write_nothing(tmp_path: Path, write: Any) -> None:
    assert write(JsonlWriter(str(tmp_path / "out")), [TABLE.slice(0, 0)]) == []
    assert files(tmp_path) == []


@pytest.mark.parametrize("compression", [None, "gz", "zst"])
@pytest.mark.parametrize("writer", [JsonlWriter, CsvWriter, TextWriter])
def test_equal_rows_give_equal_bytes(tmp_path: Path, write: Any, writer: Any, compression: str | None) -> None:
    for name in ("one", "two"):
        write(writer(str(tmp_path / name), compression=compression), [TABLE])
    [one], [two] = files(tmp_path / "one"), files(tmp_path / "two")
    assert (tmp_path / "one" / one).read_bytes() == (tmp_path / "two" / two).read_bytes()


def test_equal_rows_give_equal_parquet(tmp_path: Path, write: Any) -> None:
    for name in ("one", "two"):
        write(ParquetWriter(str(tmp_path / name)), [TABLE])
    name = "part-000000.parquet"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_gzip_header_holds_neither_time_nor_name(tmp_path: Path, write: Any) -> None:
    write(JsonlWriter(str(tmp_path / "out"), compression="gz"), [TABLE])
    assert (tmp_path / "out" / "part-000000.jsonl.gz").read_bytes()[3:8] == bytes(5)


def test_compressed_files_can_be_read_by_others(tmp_path: Path, write: Any) -> None:
    write(JsonlWriter(str(tmp_path / "gz"), compression="gz"), [TABLE])
    write(JsonlWriter(str(tmp_path / "zst"), compression="zst", compression_level=9), [TABLE])
    plain = gzip.decompress((tmp_path / "gz" / "part-000000.jsonl.gz").read_bytes())
    assert zstandard.decompress((tmp_path / "zst" / "part-000000.jsonl.zst").read_bytes()) == plain
    assert [json.loads(line) for line in plain.splitlines()] == TABLE.to_pylist()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
COLUMNS = {
    "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.none() | st.booleans(),
    "tags": st.none() | st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    "meta": st.fixed_dictionaries(
        {"a": st.none() | st.integers(-5, 5), "b": st.lists(st.text(max_size=3), max_size=2)}
    ),
}
ROWS = st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=10)
SCHEMA = pa.schema(
    [
        ("text", pa.large_string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("flag", pa.bool_()),
        ("tags", pa.large_list(pa.large_string())),
        ("meta", pa.struct([("a", pa.int64()), ("b", pa.large_list(pa.large_string()))])),
    ]
)


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, compression=st.sampled_from([None, "gz", "zst"]))
def test_rows_written_as_json_are_read_back(
    tmp_path: Path, read: Any, write: Any, rows: list[Any], compression: str | None
) -> None:
    target = tmp_path / str(compression)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    write(JsonlWriter(str(target), compression=compression), [table])
    assert read(JsonlReader(str(target))).rows == rows


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_rows_written_as_parquet_are_read_back(tmp_path: Path, read: Any, write: Any, rows: list[Any]) -> None:
    write(ParquetWriter(str(tmp_path / "out")), [pa.Table.from_pylist(rows, schema=SCHEMA)])
    assert read(ParquetReader(str(tmp_path / "out"))).rows == rows


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]))


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.fixed_dictionaries({"a": TEXTS, "b": TEXTS}), min_size=1, max_size=8))
def test_rows_written_as_csv_are_read_back(tmp_path: Path, read: Any, write: Any, rows: list[Any]) -> None:
    table = pa.Table.from_pylist(rows, schema=pa.schema([("a", pa.string()), ("b", pa.string())]))
    write(CsvWriter(str(tmp_path / "out")), [table])
    assert read(CsvReader(str(tmp_path / "out"))).rows == rows


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUES, min_size=1, max_size=5))
def test_any_value_survives_once_as_json(tmp_path: Path, read: Any, write: Any, values: list[Any]) -> None:
    """Whatever JSON is read, writing and reading it again changes nothing more."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"v": v}) + "\n" for v in values))
    table = read(JsonlReader(str(tmp_path / "in.jsonl"))).table
    write(JsonlWriter(str(tmp_path / "out")), [table])
    assert read(JsonlReader(str(tmp_path / "out"))).rows == table.to_pylist()


def test_odd_floats_become_null(tmp_path: Path, write: Any) -> None:
    column = pa.array([1.5, float("nan"), float("inf"), 1e300, 5e-324, 0.1])
    assert json_of(column, write, tmp_path) == [1.5, None, None, 1e300, 5e-324, 0.1]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5)], pa.timestamp("s")), "2020-01-02T03:04:05.000"),
        (pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5, 6)], pa.timestamp("us")), "2020-01-02T03:04:05.000006"),
        (pa.array([datetime.datetime(2020, 1, 2)], pa.timestamp("us", "UTC")), "2020-01-02T00:00:00+00:00"),
        (pa.array([datetime.date(2020, 1, 2)]), "2020-01-02"),
        (pa.array([decimal.Decimal("1.50")]), "1.50"),
        (pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2)), "1.50"),
        (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array([{"a": None, "b": [1.5]}]), {"a": None, "b": [1.5]}),
        (pa.array(['\u2028"\\\n\0😀']), '\u2028"\\\n\0😀'),
    ],
)
def test_other_types_as_json(tmp_path: Path, write: Any, column: pa.Array, expected: Any) -> None:
    assert json_of(column, write, tmp_path) == [expected]


@pytest.mark.parametrize("column", [pa.array([b"x"]), pa.array([[b"x"]]), pa.array([b"xy"], pa.binary(2))])
def test_bytes_are_refused_as_json(tmp_path: Path, write: Any, column: pa.Array) -> None:
    with pytest.raises(DataError) as error:
        write(JsonlWriter(str(tmp_path)), [pa.table({"image": column})])
    assert "column 'image' is" in str(error.value)
    assert "JSON cannot hold bytes" in str(error.value)
    assert "or write Parquet" in str(error.value)


def test_two_columns_of_one_name_are_refused_as_json(tmp_path: Path, write: Any) -> None:
    with pytest.raises(DataError, match="there are two columns 'a'"):
        write(JsonlWriter(str(tmp_path)), [pa.table([[1], [2]], names=["a", "a"])])


def test_rows_without_columns_stay_rows(tmp_path: Path, read: Any, write: Any) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n{}\n")
    write(JsonlWriter(str(tmp_path / "out")), [b.data for b in read(JsonlReader(str(tmp_path / "in.jsonl"))).batches])
    assert (tmp_path / "out" / "part-000000.jsonl").read_text() == "{}\n{}\n"


def test_nested_columns_are_refused_as_csv(tmp_path: Path, write: Any) -> None:
    with pytest.raises(DataError, match=r"column 'tags' is list<.*>, which CSV cannot hold"):
        write(CsvWriter(str(tmp_path)), [pa.table({"tags": [["a"]]})])


def test_text_with_a_separator(tmp_path: Path, write: Any) -> None:
    write(TextWriter(str(tmp_path / "out"), separator="\n--\n"), [TABLE])
    assert (tmp_path / "out" / "part-000000.txt").read_text(encoding="utf-8") == "a\n--\nb é\n--\n\n--\n"


def test_fields_are_chosen(tmp_path: Path, write: Any) -> None:
    write(ParquetWriter(str(tmp_path / "out"), fields=["n"]), [TABLE])
    assert pq.read_table(tmp_path / "out" / "part-000000.parquet").column_names == ["n"]


def test_a_missing_field_is_named(tmp_path: Path, write: Any) -> None:
    with pytest.raises(ColumnError, match=r"there is no column 'txt' to write, only text, n\. Did you mean 'text'\?"):
        write(JsonlWriter(str(tmp_path), fields=["txt"]), [TABLE])


def test_long_texts_are_written_without_a_dictionary(tmp_path: Path, write: Any) -> None:
    table = pa.table({"text": [f"{i}" * 100 for i in range(100)], "lang": ["en"] * 100})
    write(ParquetWriter(str(tmp_path)), [table])
    group = pq.ParquetFile(tmp_path / "part-000000.parquet").metadata.row_group(0)
    assert group.column(0).compression == "ZSTD"
    assert not group.column(0).has_dictionary_page
    assert group.column(1).has_dictionary_page


def test_arguments_of_the_format(tmp_path: Path, write: Any) -> None:
    write(ParquetWriter(str(tmp_path), write_kwargs={"compression": "snappy", "row_group_size": 2}), [TABLE])
    metadata = pq.ParquetFile(tmp_path / "part-000000.parquet").metadata
    assert metadata.num_row_groups == 2
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("part-{order}", "part-000012-0003.jsonl"),
        ("{dataset}-{task_id}", "data-task12.3.jsonl"),
        ("{source}.{order}", "data.000012-0003.jsonl"),
    ],
)
def test_names_are_made_from_a_template(tmp_path: Path, write: Any, template: str, expected: str) -> None:
    write(JsonlWriter(str(tmp_path / "out"), filename=template), [TABLE], orders=[(12, 3)])
    assert files(tmp_path / "out") == [expected]


def test_the_source_is_the_stem_of_the_first_file(tmp_path: Path) -> None:
    [stage] = JsonlWriter(str(tmp_path), filename="{source}-{order}").decompose()
    batch = DocumentBatch(TABLE, order=(0,), _metadata={"source_files": ["/in/wiki.jsonl.gz", "/in/b.jsonl"]})
    finished = next(iter(stage.process(batch)))  # type: ignore[arg-type]  # an iterator
    assert isinstance(finished, Publish)
    assert Path(finished.final).name == "wiki-000000.jsonl"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filename": "part-{ordr}"}, r"there is no \{ordr\}.*Did you mean 'order'\?"),
        ({"filename": "all"}, "every task would write the same file"),
        ({"filename": "a/{order}"}, "must not contain '/'"),
        ({"filename": "_{order}"}, "must not start with"),
        ({"filename": "{order"}, "filename='{order'"),
        ({"mode": "overwrit"}, r"mode='overwrit'.*Did you mean 'overwrite'\?"),
        ({"file_extension": "/../../x"}, "file_extension='./../../x'.*must not contain '/'"),
        ({"file_extension": "a\\b"}, "must not contain '/'"),
        ({"filename": "x\n{order}"}, "control characters"),
        ({"mode": "replace"}, "mode='replace'.*must be one of 'error', 'overwrite', 'append', 'ignore'"),
        ({"compression": "gzip"}, r"compression='gzip'.*Did you mean 'gz'\?"),
        ({"fields": "text"}, "give a list of column names"),
        ({"shard_bytes": "big"}, "'big' is not a valid size"),
        ({"write_kwargs": {"force_asci": True}}, r"Did you mean 'force_ascii'\?"),
        ({"write_kwargs": {"force_ascii": True}}, "always False here"),
    ],
)
def test_mistakes_are_refused_when_the_writer_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        JsonlWriter("out", **settings)


def test_levels_that_do_not_exist_are_refused() -> None:
    with pytest.raises(PlanError, match=r"compression_level=12\): the levels of gz are 1 to 9"):
        JsonlWriter("out", compression="gz", compression_level=12)


def test_text_has_one_column() -> None:
    with pytest.raises(PlanError, match="only the column 'text' is written"):
        TextWriter("out", fields=["text", "n"])


def test_unknown_arguments_of_parquet_are_refused() -> None:
    with pytest.raises(PlanError, match=r"Did you mean 'compression_level'\?"):
        ParquetWriter("out", write_kwargs={"compresion_level": 3})


def test_partitions_by_value(tmp_path: Path, read: Any, write: Any) -> None:
    table = pa.table({"text": list("abcdef"), "site": ["x", "y/z", "x", None, "__null__", ""]})
    [group] = write(JsonlWriter(str(tmp_path / "out"), partition_by="site"), [table])
    assert files(tmp_path / "out") == [
        f"site={value}part-000000.jsonl" for value in ("%5F_null__/", "/", "__null__/", "x/", "y%2Fz/")
    ]
    assert len(group.data) == 5
    rows = [(r["text"], r["site"]) for r in read(JsonlReader(str(tmp_path / "out"))).rows]
    assert sorted(rows, key=str) == sorted(zip(*table.to_pydict().values(), strict=True), key=str)
    assert (tmp_path / "out" / "site=x" / "part-000000.jsonl").read_text() == (
        '{"text":"a","site":"x"}\n{"text":"c","site":"x"}\n'
    )


def test_partitions_by_a_column_that_is_not_written(tmp_path: Path, write: Any) -> None:
    write(JsonlWriter(str(tmp_path / "out"), partition_by="n", fields=["text"]), [TABLE])
    assert files(tmp_path / "out") == [f"n={n}/part-000000.jsonl" for n in (1, 2, 3)]
    assert (tmp_path / "out" / "n=1" / "part-000000.jsonl").read_text() == '{"text":"a"}\n'


def test_partitions_by_lists_are_refused(tmp_path: Path, write: Any) -> None:
    with pytest.raises(DataError, match=r"partition_by='tags': list<.*> values cannot be names of directories"):
        write(JsonlWriter(str(tmp_path), partition_by="tags"), [pa.table({"tags": [["a"]]})])


def test_overwrite_removes_earlier_output(tmp_path: Path, write: Any) -> None:
    write(JsonlWriter(str(tmp_path), compression="gz"), [TABLE, TABLE])
    write(JsonlWriter(str(tmp_path), partition_by="n", mode="ignore"), [TABLE])
    (tmp_path / ".part-000009.jsonl.0123456789abcdef.tmp").write_text("left by a killed run")
    (tmp_path / ".gitignore").write_text("*")
    write(JsonlWriter(str(tmp_path), mode="overwrite"), [TABLE])
    assert files(tmp_path) == [".gitignore", "part-000000.jsonl"]


@pytest.mark.parametrize("foreign", ["thesis.docx", "part-000001.parquet", "in/part-000001.jsonl", "data.jsonl"])
def test_overwrite_removes_nothing_when_there_are_other_files(tmp_path: Path, write: Any, foreign: str) -> None:
    (tmp_path / foreign).parent.mkdir(exist_ok=True)
    (tmp_path / foreign).write_text("mine")
    (tmp_path / "part-000000.jsonl").write_text("old")
    with pytest.raises(PlanError, match=f"files of another kind: {foreign}. Nothing was removed"):
        write(JsonlWriter(str(tmp_path), mode="overwrite"), [TABLE])
    assert files(tmp_path) == sorted([foreign, "part-000000.jsonl"])


def test_overwrite_does_not_touch_a_home_or_working_directory(tmp_path: Path, monkeypatch: Any, write: Any) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "work")
    for path in ("/", str(tmp_path), str(tmp_path / "home"), "."):
        with pytest.raises(PlanError, match="does not work on a home or working directory"):
            write(JsonlWriter(path, mode="overwrite"), [TABLE])


def test_nothing_is_written_outside_of_the_directory(tmp_path: Path, write: Any) -> None:
    target = destination.Destination(str(tmp_path / "out"), ending=".jsonl")
    for relative in ("../x.jsonl", "a/../../x.jsonl", "/etc/x", "a//x", "."):
        with pytest.raises(PlanError, match="would be outside of"):
            target.write(relative, 0, lambda sink: None)
    values = ["../../x", "..", "/etc", "\\..", "a\0b", "."]
    write(JsonlWriter(str(tmp_path / "out"), partition_by="site"), [pa.table({"site": values})])
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_dir()) == sorted(
        ["site=..%2F..%2Fx", "site=..", "site=%2Fetc", "site=%5C..", "site=a%00b", "site=."]
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "site=x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match=r"site=x/part-000000.jsonl: this output file would be outside of"):
        write(JsonlWriter(str(tmp_path / "linked"), partition_by="site"), [pa.table({"site": ["x"]})])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_names_of_sources_are_made_safe(tmp_path: Path) -> None:
    [stage] = JsonlWriter(str(tmp_path), filename="{source}-{dataset}-{order}").decompose()
    task = DocumentBatch(TABLE, dataset_name="../x\n", order=(0,), _metadata={"source_files": ["a/..\\b.jsonl"]})
    assert stage.name_for(task) == "data-.._x_-000000.jsonl"  # type: ignore[attr-defined]  # every sink has it


def test_an_output_directory_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"out\\xff: the name of an output directory must be valid UTF-8"):
        JsonlWriter(f"{tmp_path}/out\udcff")


def test_a_partition_is_by_one_column(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"JsonlWriter\(partition_by=\['lang'\]\): give the name of one column"):
        JsonlWriter(str(tmp_path), partition_by=["lang"])


def test_making_a_writer_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "part-000000.jsonl").write_text("old")
    JsonlWriter(str(tmp_path), mode="overwrite")
    JsonlWriter(str(tmp_path / "new"))
    assert files(tmp_path) == ["part-000000.jsonl"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("newlines", [True, False])
@pytest.mark.parametrize("blocksize", [None, 2])
@pytest.mark.parametrize("values", [["x", None, "y", "", None], [None], [None, None, "x"]])
def test_nulls_of_a_single_column_come_back_from_csv(
    tmp_path: Path, write: Any, read: Any, values: list[str | None], newlines: bool, blocksize: int | None
) -> None:
    write(CsvWriter(str(tmp_path / "out")), [pa.table({"a": pa.array(values, pa.string())})])
    reader = CsvReader(str(tmp_path / "out"), newlines_in_values=newlines, blocksize=blocksize)
    assert [row["a"] for row in read(reader).rows] == values


def test_directories_of_long_values_are_cut_and_stay_apart(tmp_path: Path, write: Any, read: Any) -> None:
    values = ["語" * 60, "語" * 300, "語" * 299 + "x", "/" * 300, "+"]
    table = pa.table({"a long name of a column " * 5: values})
    write(JsonlWriter(str(tmp_path / "out"), partition_by=table.column_names[0]), [table])
    names = sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_dir())
    assert len(names) == len(values)
    assert max(len(name.encode()) for name in names) < 255
    assert any(name.endswith("=" + "語" * 60) for name in names)
    assert sorted(row[table.column_names[0]] for row in read(JsonlReader(str(tmp_path / "out"))).rows) == sorted(values)
