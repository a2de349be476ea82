"""Records out of files, documents out of records, and the whole source in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tamis import LocalExecutor, Pipeline
from tamis.errors import DataError, MissingExtraError, PlanError
from tamis.stages.emit import BadRows, Drop
from tamis.stages.io import JsonlWriter
from tamis.stages.text.download import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentExtractor,
    DocumentIterator,
    URLGenerator,
    URLList,
)
from tamis.stages.text.download.base import DocumentIterateExtractStage, URLGenerationStage
from tamis.tasks import DocumentBatch, FileGroup
from tamis.testing import run_everywhere, run_stage

if TYPE_CHECKING:
    from tests.stages.text.download.conftest import Server

Row = dict[str, Any]


@dataclass
class Lines(DocumentIterator):
    """A record per line; a line that says so breaks the file."""

    def iterate(self, file_path: str) -> Iterator[Row]:
        with Path(file_path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line == "broken\n":
                    raise ValueError("the rest is noise")
                yield {"raw": line.rstrip("\n"), "line": number}

    def output_columns(self) -> list[str]:
        return ["raw", "line"]


@dataclass
class Shout(DocumentExtractor):
    """Upper case; comments are left out, digits are an error."""

    def extract(self, record: Row) -> Row | None:
        if record["raw"].startswith("#"):
            return None
        if record["raw"].isdigit():
            raise ValueError(f"{record['raw']} is no word")
        return {"text": record["raw"].upper()}

    def input_columns(self) -> list[str]:
        return ["raw"]

    def output_columns(self) -> list[str]:
        return ["text"]

    def reason(self) -> str:
        return "a comment"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("one\n# two\n3\nfour\n", encoding="utf-8")
    return path


def test_records_without_an_extractor_are_the_documents(file: Path) -> None:
    run = run_stage(DocumentIterateExtractStage(Lines()), [FileGroup([str(file)])])
    assert run[0] == {"raw": "one", "line": 1, "file_name": "words.txt"}
    assert len(run) == 4


def test_nothing_is_lost_silently(file: Path) -> None:
    run = run_stage(DocumentIterateExtractStage(Lines(), Shout()), [FileGroup([str(file)])])
    assert [row["text"] for row in run] == ["ONE", "FOUR"]
    ((row, reason),) = run.dropped
    assert (row["raw"], reason) == ("# two", "a comment")
    (bad,) = run.quarantined
    assert bad["source"] == str(file)
    assert bad["problem"] == "record 3 cannot be extracted: ValueError: 3 is no word"
    assert '"raw": "3"' in bad["raw"]
    (stats,) = run.stages
    assert (stats.rows_in, stats.rows_out, stats.rows_dropped, stats.quarantined) == (4, 2, 1, 1)


def test_documents_are_named_after_their_file_and_record(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\n# two\nfour\n", encoding="utf-8")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    made = list(DocumentIterateExtractStage(Lines(), Shout()).process(FileGroup(files)))
    assert isinstance(made[0], DocumentBatch)
    assert isinstance(made[1], Drop)
    expected = [[f"{file}:{number}" for file in files for number in some] for some in ([0, 2], [1])]
    assert [batch.names and batch.names.to_texts() for batch in (made[0], made[1].batch)] == expected


def test_what_was_read_before_a_file_breaks_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nbroken\nthree\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("four\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.txt", "none.txt", "b.txt")]
    run = run_stage(DocumentIterateExtractStage(Lines()), [FileGroup(files)])
    assert [row["raw"] for row in run] == ["one", "two", "four"]
    problems = [bad["problem"] for bad in run.quarantined]
    assert problems[0] == "it cannot be read further than 2 records: ValueError: the rest is noise"
    assert "FileNotFoundError" in problems[1]


@pytest.mark.parametrize(("text", "words"), [("3\n", "record 1"), ("a\nbroken\n", "further than 1 records")])
def test_errors_stop_the_run_if_told_to(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    stage = DocumentIterateExtractStage(Lines(), Shout(), on_error="raise")
    with pytest.raises(DataError, match=words) as caught:
        list(stage.process(FileGroup([str(tmp_path / "a.txt")])))
    assert "a.txt" in str(caught.value)


def test_batches_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(("x" * 900 + "\n") * 25, encoding="utf-8")
    stage = DocumentIterateExtractStage(Lines(), block_bytes=10_000)
    batches = list(stage.process(FileGroup([str(tmp_path / "a.txt")])))
    assert [batch.num_items for batch in batches if isinstance(batch, DocumentBatch)] == [10, 10, 5]


def test_only_as_much_is_read_as_is_asked_for() -> None:
    read = []

    class Endless(Lines):
        def iterate(self, file_path: str) -> Iterator[Row]:
            for n in range(10**9):
                read.append(n)
                yield {"raw": "# no" if n % 2 else "yes", "line": n}

    stage = DocumentIterateExtractStage(Endless(), Shout(), record_limit=3)
    batch, drop = stage.process(FileGroup(["a", "b"]))
    assert isinstance(batch, DocumentBatch)
    assert isinstance(drop, Drop)
    assert (batch.num_items, len(drop.rows)) == (6, 4)  # three of each file: those left out do not count
    assert len(read) == 10


@pytest.mark.parametrize(("given", "column"), [(True, "file_name"), ("source", "source"), (False, None)])
def test_name_of_the_file_as_a_column(given: bool | str, column: str | None, file: Path) -> None:
    stage = DocumentIterateExtractStage(Lines(), Shout(), record_limit=1, add_filename_column=given)
    (row,) = run_stage(stage, [FileGroup([str(file)])])
    assert row == {"text": "ONE"} | ({column: "words.txt"} if column else {})
    assert stage.outputs()[1] == list(row)


class Given(DocumentIterator):
    """Whatever it is told."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def iterate(self, file_path: str) -> Iterator[Row]:
        return iter(self.rows) if self.rows is not None else None  # type: ignore[return-value]  # the error is the point

    def output_columns(self) -> list[str]:
        return ["a"]


def test_value_that_no_table_holds_is_set_aside_alone() -> None:
    rows = [{"a": "x"}, {"a": "\ud800"}, {"a": "y", "b": 2**70}, {"b": 1}]
    batch_or_bad = list(DocumentIterateExtractStage(Given(rows), add_filename_column=False).process(FileGroup(["f"])))
    *bad, batch = batch_or_bad
    assert len(bad) == 2
    assert all(isinstance(b, BadRows) for b in bad)
    assert isinstance(batch, DocumentBatch)
    assert batch.data.to_pylist() == [{"a": "x", "b": None}, {"a": None, "b": 1}]


def test_values_of_several_kinds_are_an_error_that_names_the_column() -> None:
    with pytest.raises(DataError, match="the values of 'a' are not all of one kind"):
        list(DocumentIterateExtractStage(Given([{"a": "x"}, {"a": 1}])).process(FileGroup(["f"])))


def test_iterator_that_gives_nothing_at_all_is_told() -> None:
    run = run_stage(DocumentIterateExtractStage(Given(None)), [FileGroup(["f"])])
    assert "iterate() returned None" in run.quarantined[0]["problem"]


def test_missing_package_is_not_taken_for_bad_data() -> None:
    class Needs(Shout):
        def extract(self, record: Row) -> Row | None:
            raise MissingExtraError("Needs", package="nothing", extra="none")

    with pytest.raises(MissingExtraError):
        list(DocumentIterateExtractStage(Given([{"raw": "x"}]), Needs()).process(FileGroup(["f"])))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url_limit": 0}, "url_limit=0"),
        ({"record_limit": 0}, "record_limit=0"),
        ({"add_filename_column": ""}, "add_filename_column=''"),
        ({"extractor_max_calls_per_worker": 0}, "max_calls_per_worker=0"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
    ],
)
def test_wrong_parameters_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        DocumentDownloadExtractStage(URLList(["a"]), DocumentDownloader("raw"), Lines(), **settings)
    assert words in str(caught.value)


def test_one_address_where_a_list_belongs_is_refused() -> None:
    with pytest.raises(PlanError, match="give a list"):
        URLList("https://example.org")  # type: ignore[arg-type]  # the error is the point


def test_generator_is_asked_once() -> None:
    class Index(URLGenerator):
        asked = 0

        def generate_urls(self) -> list[str]:
            Index.asked += 1
            return ["a", "b", "c"]

    stage = URLGenerationStage(Index(), limit=2)
    assert [t.data for _ in range(2) for t in stage.splits("")] == [["a"], ["b"]] * 2
    assert Index.asked == 1


def test_ray_is_told_when_to_replace_workers() -> None:
    source = DocumentDownloadExtractStage(
        URLList(["a"]), DocumentDownloader("raw"), Lines(), extractor_max_calls_per_worker=2
    )
    assert source.decompose()[2].ray_stage_spec() == {"max_calls_per_worker": 2}


def source(server: Server, folder: Path, **settings: Any) -> DocumentDownloadExtractStage:
    urls = [server.address(name) for name in ("a.txt", "none.txt", "b.txt", "c.txt")]
    downloader = DocumentDownloader(str(folder / "raw"), backoff_s=0.0)
    return DocumentDownloadExtractStage(URLList(urls), downloader, Lines(), Shout(), **settings)


def test_source_in_a_pipeline(server: Server, tmp_path: Path) -> None:
    server.files |= {"a.txt": b"one\n# two\n", "b.txt": b"three\n4\n", "c.txt": b"five\n"}
    server.troubles["b.txt"] = ("breaks off", 1)
    result = Pipeline("p", stages=[source(server, tmp_path), JsonlWriter(str(tmp_path / "out"))]).run(
        LocalExecutor(workers=2), run_dir=str(tmp_path / "run"), progress="off"
    )
    assert sum(stats.quarantined for stats in result.stages) == 2
    texts = "".join(Path(p).read_text(encoding="utf-8") for p in result.outputs)
    assert [word for word in ("ONE", "THREE", "FIVE") if word in texts] == ["ONE", "THREE", "FIVE"]
    assert result.stage("iterate_extract_lines_shout").dropped == {"a comment": 1}


def test_url_limit(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = b"one\n"
    assert [row["text"] for row in run_stage(source(server, tmp_path, url_limit=1), [])] == ["ONE"]


def test_the_same_address_twice_is_two_tasks(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = b"one\n2\n"
    twice = DocumentDownloadExtractStage(
        URLList([server.address("a.txt")] * 2), DocumentDownloader(str(tmp_path / "raw")), Lines(), Shout()
    )
    result = Pipeline("p", stages=[twice, JsonlWriter(str(tmp_path / "out"), filename="{task_id}")]).run(
        LocalExecutor(workers=2), run_dir=str(tmp_path / "run"), progress="off"
    )
    assert len(set(result.outputs)) == 2
    assert len(result.summary.quarantine) == 2


def test_same_result_with_any_number_of_workers(server: Server) -> None:
    server.files |= {"a.txt": b"one\n# two\n", "b.txt": b"three\n4\n", "c.txt": b"five\n"}
    rows: list[int] = []
    run_everywhere(
        lambda folder: Pipeline("p", stages=[source(server, folder), JsonlWriter(str(folder / "out"))]),
        check=lambda result: rows.append(result.rows),
        workers=2,
    )
    assert set(rows) == {3}


def test_download_runs_beside_extraction(server: Server, tmp_path: Path) -> None:
    plan = str(Pipeline("p", stages=[source(server, tmp_path)]).plan())
    groups = [line for line in plan.splitlines() if "download_documentdownloader" in line]
    assert groups
    assert all("iterate" not in line for line in groups)


def test_what_extraction_leaves_out_can_be_caught(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = b"one\n# two\n"
    run = run_stage(source(server, tmp_path, url_limit=1), [])
    assert [(row["raw"], reason) for row, reason in run.dropped] == [("# two", "a comment")]


def test_source_as_a_recipe_and_back() -> None:
    parts = URLList(["a.txt"]), DocumentDownloader("raw", retries=5), Lines(), Shout()
    pipeline = Pipeline("p", stages=[DocumentDownloadExtractStage(*parts)])
    recipe = pipeline.to_recipe()
    again = Pipeline.from_recipe(recipe)
    assert again.to_recipe() == recipe
    assert repr(again.stages[0]) == repr(pipeline.stages[0])
