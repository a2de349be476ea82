"""The parts of the report that are read from the run directory: flow, time, drops, scores; also from damaged files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from pages import Page
from sample_runs import ANSI, EVIL, branched_run, failed_run, running_run, write_metrics

from tamis.errors import DataError
from tamis.runs.drops import SCHEMA, write_drops
from tamis.runs.pages.drop_query import Cursor, DropFilter, DropLedgerReader
from tamis.runs.pages.findings import find_bottleneck, find_stragglers
from tamis.runs.pages.flow import Edge, edges_of, layout
from tamis.runs.pages.run_view import load_view
from tamis.runs.pages.set_aside_rows import set_aside_rows
from tamis.runs.pages.timeline import last_sample, read_samples
from tamis.runs.quarantine import FailedRows
from tamis.runs.report import write_report
from tamis.tasks import DocumentBatch

STAGES = ["list", "read", "words", "write"]


# --- the flow -------------------------------------------------------------------------------------------------------


def test_branches_have_lines_of_their_own_that_meet_again() -> None:
    edges = [Edge(0, 1, "out"), Edge(1, 2, "de"), Edge(1, 3, "fr"), Edge(2, 4, "out"), Edge(3, 4, "out")]
    rows = layout(5, range(5), edges)
    assert [row.lane for row in rows] == [0, 0, 0, 1, 0]
    assert rows[1].leaving == [(0, ""), (1, "")]
    assert rows[3].ports == ["fr"]
    assert sorted(rows[4].entering) == [(0, ""), (1, "")]


def test_a_damaged_plan_makes_no_circle() -> None:
    vertices = [{"name": "a", "edges": {"out": 0}}, {"name": "b", "internal": True, "edges": {"out": 0, "x": 9**9}}]
    assert edges_of(vertices) == []


def test_the_picture_names_the_branches(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text())
    for branch in ("dropped", "de", "otherwise", "fr"):
        assert f"\n{branch}\n" in page.text
    assert "WordCountFilter(min_words=10, max_words=100000, lang='en')" in page.text


# --- time -----------------------------------------------------------------------------------------------------------


def test_what_limits_a_run_is_found(tmp_path: Path) -> None:
    write_metrics(tmp_path, STAGES)
    samples = read_samples(str(tmp_path))
    assert len(samples) == 61
    tail = find_stragglers(samples, STAGES)
    assert tail is not None
    assert (round(tail.seconds), tail.running, tail.workers) == (16, 1, 8)
    from tamis.runs.stats import StageStats

    found = find_bottleneck([StageStats("read", seconds=180), StageStats("words", seconds=20)], samples)
    assert found is not None
    assert (found.stage, found.share, found.busy) == ("read", 0.9, 0.75)


def test_the_stages_that_one_is_made_of_count_for_it_in_what_limits_a_run() -> None:
    from tamis.runs.stats import StageStats

    inner = [
        StageStats("unique (hash)", internal=True, seconds=25),
        StageStats("unique (join)", internal=True, seconds=25),
    ]
    found = find_bottleneck([StageStats("words", seconds=40), *inner, StageStats("unique", seconds=10)])
    assert found is not None
    assert (found.stage, found.share) == ("unique", 0.6)


def test_a_large_file_is_read_in_places(tmp_path: Path) -> None:
    names = [f"stage {number}" for number in range(40)]
    write_metrics(tmp_path, names, seconds=2000)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"t": 2001, "state": "half')
    assert path.stat().st_size > 2 * 2**20
    samples = read_samples(str(tmp_path), most=100)
    assert 90 <= len(samples) <= 101
    assert (samples[0].seconds, samples[-1].seconds) == (0, 2000)
    last = last_sample(str(tmp_path))
    assert last is not None
    assert last.seconds == 2000


def test_a_run_that_goes_on_after_a_stop_is_shown_as_a_whole(tmp_path: Path) -> None:
    lines = [{"start": 1}, {"t": 1, "stages": {}}, {"start": 2}, {"t": 2, "stages": {}}, {"t": 3, "stages": {}}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [sample.seconds for sample in read_samples(str(tmp_path))] == [1, 2, 3]


def test_a_file_in_which_time_begins_again_is_shown_from_there(tmp_path: Path) -> None:
    write_metrics(tmp_path, STAGES, seconds=10)
    path = tmp_path / "metrics.jsonl"
    first = path.read_text()
    write_metrics(tmp_path, STAGES, seconds=5)
    path.write_text(first + path.read_text())
    assert [sample.seconds for sample in read_samples(str(tmp_path))] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", ["", "\n\n", "[1]\n", '{"t": "x"}\n', '{"t": 1, "stages": {"a": 3}}\n', "\x00\xff"])
def test_odd_metrics_are_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(content)
    assert all(sample.stages == {} for sample in read_samples(str(tmp_path)))


# --- drops ----------------------------------------------------------------------------------------------------------


def ledger(folder: Path, files: int, rows: int) -> DropLedgerReader:
    """A drop ledger of some files with two stages and three reasons."""
    import pyarrow as pa

    (folder / "drops").mkdir(parents=True)
    for number in range(files):
        numbers = np.arange(rows)
        table = pa.table(
            {
                "stage": [f"stage {n % 2}" for n in numbers],
                "reason": [f"reason {n % 3}" for n in numbers],
                "score": numbers.astype(float),
                "score_text": pa.nulls(rows, pa.string()),
                "source": [f"{number}.jsonl"] * rows,
                "position": numbers * 10,
                "part": pa.nulls(rows, pa.string()),
            }
        ).cast(SCHEMA)
        write_drops(table, str(folder / "drops" / f"{number:04d}.parquet"))
    return DropLedgerReader(str(folder))


def test_drops_are_paged_forth_and_back(tmp_path: Path) -> None:
    reader = ledger(tmp_path, 3, 12)
    wanted = DropFilter(stage="stage 1", reason="reason 0")
    everything = list(reader.after(wanted))
    assert [row.name for row in everything] == [f"{f}.jsonl:{n}" for f in range(3) for n in (30, 90)]
    third = everything[2].place
    assert list(reader.after(wanted, third)) == everything[2:]
    assert list(reader.before(wanted, third)) == everything[1::-1]
    assert [row.source for row in reader.after(DropFilter(source="2.JSON"))] == ["2.jsonl"] * 12
    assert list(reader.after(DropFilter(stage="no such"))) == []
    assert list(reader.after(wanted, Cursor(99, 0))) == []
    assert reader.rows == 36


def test_the_first_page_of_millions_of_drops_is_quick(tmp_path: Path) -> None:
    reader = ledger(tmp_path, 2, 600_000)
    began = time.monotonic()
    rows = reader.after(DropFilter(stage="stage 1"))
    assert [next(rows).position for _ in range(50)] == [10 + 20 * n for n in range(50)]
    assert time.monotonic() - began < 3


def test_examples_are_the_texts_in_the_sources(tmp_path: Path) -> None:
    result = branched_run(tmp_path, tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text())
    dropped = result.drops().to_pylist()
    short = next(row for row in dropped if row["stage"] == "word_count")
    line = Path(short["source"]).read_bytes()[short["position"] :].split(b"\n")[0]
    assert f"{short['source']}:{short['position']}" in page.text
    assert json.loads(line)["text"].strip() in page.text


def test_examples_of_sources_that_are_gone_say_so(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "run")
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    assert "the source is gone" in write_report(tmp_path / "run").read_text()


def test_scores_of_drops_are_shown_where_there_are_no_histograms(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "run")
    assert "keeps 10 to 100,000" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "run" / "scores.json").unlink()
    page = write_report(tmp_path / "run").read_text()
    assert "only the scores of dropped rows are known" in page
    assert "word_count: word_count outside 10..100000" in page


def test_histograms_of_a_part_of_the_rows_say_so(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "run")
    path = tmp_path / "run" / "scores.json"
    scores = json.loads(path.read_text())
    scores["stages"]["word_count"]["word_count"]["bins"] = [[16.0, 17.0, 100, 0]]
    path.write_text(json.dumps(scores))
    assert "only 100 of 240 rows were counted" in write_report(tmp_path / "run").read_text()


# --- hostile and damaged --------------------------------------------------------------------------------------------


def test_hostile_data_does_nothing_in_the_report(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "run", evil=True)
    source = (tmp_path / "run" / "report.html").read_text()
    page = Page(source)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert EVIL in page.text
    assert not set(ANSI) & {"\x1b", "\x07", "\u202e"} & set(source)


@pytest.mark.parametrize("name", ["plan.json", "scores.json", "metrics.jsonl"])
@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"vertices": [1]}', '{"vertices": [{"name": "a", "edges": {"x": "y"}}]}']
)
def test_damaged_files_cost_only_their_part(tmp_path: Path, name: str, content: str) -> None:
    branched_run(tmp_path, tmp_path / "run", rows=20)
    (tmp_path / "run" / name).write_text(content)
    (tmp_path / "run" / "drops" / "9.parquet").write_text("no Parquet")
    assert "Why rows were dropped" in write_report(tmp_path / "run").read_text()


def test_links_lead_to_what_is_there(tmp_path: Path) -> None:
    branched_run(tmp_path, tmp_path / "a run")
    page = Page(write_report(tmp_path / "a run", tmp_path / "elsewhere.html").read_text())
    links = {value for name, value in page.attributes if name == "href"}
    assert "./a%20run/ledger/" in links
    assert "./a%20run/drops/" in links


# --- runs that have not ended ---------------------------------------------------------------------------------------


def test_a_running_run_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    running_run(tmp_path / "run", STAGES)
    view = load_view(str(tmp_path / "run"))
    assert (view.is_running, view.summary.pipeline, len(view.samples)) == (True, "going on", 61)
    assert view.summary.stages[1].rows_in > 1000


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run directory"):
        load_view(str(tmp_path))


def test_the_quarantine_is_read_in_both_forms(tmp_path: Path) -> None:
    failed = tmp_path / "run"
    failed_run(failed, tmp_path)
    (failed / "quarantine").mkdir(exist_ok=True)
    (failed / "quarantine" / "a.jsonl").write_text('{"stage": "read", "problem": "cut off"}\n')
    rows = DocumentBatch({"text": ["the text"], "stage": ["of the data"]}).named("a.jsonl")
    FailedRows("embed", rows, ["ValueError"], ["too long"], ["in line 1"]).write(
        str(failed / "quarantine" / "b.parquet")
    )
    (failed / "quarantine" / "c.parquet").write_text("damaged")
    found = set_aside_rows(str(failed), 10)
    problems = [row["problem"] for row in found if row["stage"] in ("read", "embed")]
    assert problems[-2:] == ["cut off", "ValueError: too long"]
    assert json.loads(found[-1]["raw"]) == {"text": "the text", "stage": "of the data"}
    assert (found[-1]["source"], found[-1]["position"]) == ("a.jsonl", 0)
