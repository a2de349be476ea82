"""An analysis from the input to the page."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pages import CHROMIUM, Page, in_browser
from polars.testing import assert_frame_equal

from tamis.analysis import Analysis, analyze, inputs
from tamis.errors import ColumnError, DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.quickstart import sample_files
from tamis.stages.io import JsonlReader

EVIL = '<script>document.title="broken"</script><img src=x onerror=\'document.title="broken"\'>"&'


def look_at(paths: Any, output: Path, **settings: Any) -> Analysis:
    return analyze(paths, output=str(output), progress="off", **settings)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return look_at(sample_files(), tmp_path_factory.mktemp("quickstart"))


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def quickstart_texts() -> list[str]:
    (reader,) = JsonlReader(sample_files(), on_error="quarantine").decompose()[1:]
    splits = JsonlReader(sample_files()).decompose()[0].process(None)  # type: ignore[arg-type]  # a source needs none
    batches = [found for split in splits for found in reader.process(split) if hasattr(found, "data")]
    return [text for batch in batches for text in batch.data["text"].to_pylist()]


# --- a real data set ------------------------------------------------------------------------------------------------


def test_counts_are_those_of_plain_python(quickstart: Analysis) -> None:
    texts = quickstart_texts()
    summary = quickstart.summary
    assert quickstart.documents == len(texts) == 3717
    assert summary.total("characters") == sum(map(len, texts))
    assert summary.total("words") == sum(len(text.split()) for text in texts)
    assert summary.total("empty") == sum(not text.strip() for text in texts)
    assert summary.distinct().duplicate_share == pytest.approx(1 - len(set(texts)) / len(texts))
    assert quickstart.coverage.is_whole
    assert quickstart.quarantined == 3


def test_languages_and_columns(quickstart: Analysis) -> None:
    assert quickstart.shares("language")[0][0] == "en"
    assert dict(quickstart.shares("script"))["Cyrl"] > 100
    assert {"id", "text", "lang", "url"} <= set(quickstart.summary.columns["name"])


def test_the_recipe_keeps_what_was_foretold(quickstart: Analysis, tmp_path: Path) -> None:
    recipe = Path(quickstart.output, "recipe.yaml").read_text(encoding="utf-8")
    recipe = recipe.replace("{path: curated}", f"{{path: {tmp_path / 'curated'}}}")
    result = Pipeline.from_recipe(recipe).run(run_dir=str(tmp_path / "run"), progress="off")
    assert result.rows == round(quickstart.proposed_share() * quickstart.documents)
    assert 0.9 <= quickstart.proposed_share() < 0.91


def test_the_files_can_be_read(quickstart: Analysis) -> None:
    sample = pl.read_parquet(Path(quickstart.output, "sample.parquet"))
    scores = pl.read_parquet(Path(quickstart.output, "scores.parquet"))
    assert len(sample) == 3717
    assert {"source", "position", "word_count", "language", "script", "excerpt"} <= set(sample.columns)
    assert Counter(scores.filter(measure="word_count")["kind"])["percentile"] == 9
    assert set(scores["kind"]) == {"percentile", "bin", "default", "proposed alone", "proposed together"}
    per_bin = scores.filter(kind="bin").group_by("measure").agg(pl.col("documents").sum())
    assert set(per_bin["documents"]) == {3717}


def test_documents_know_where_they_are(quickstart: Analysis) -> None:
    row = quickstart.sample.filter(pl.col("source").str.ends_with("docs-mixed.jsonl")).row(0, named=True)
    line = Path(row["source"]).read_bytes()[row["position"] :].partition(b"\n")[0]
    assert json.loads(line)["text"].startswith(row["excerpt"])


def test_one_worker_or_two(quickstart: Analysis, tmp_path: Path) -> None:
    other = look_at(sample_files(), tmp_path, workers=0)
    assert other.recipe == quickstart.recipe
    for name in ("scores.parquet", "sample.parquet"):
        one, two = (pl.read_parquet(Path(found.output, name)) for found in (quickstart, other))
        assert_frame_equal(one, two)


# --- the page -------------------------------------------------------------------------------------------------------


def page_of(analysis: Analysis) -> str:
    return Path(analysis.output, "index.html").read_text(encoding="utf-8")


def test_the_page_shows_the_data_set(quickstart: Analysis) -> None:
    page = Page(page_of(quickstart))
    for shown in ("3,717", "50 to 100,000", "Cyrillic (Cyrl)", "docs-mixed.jsonl:", "All 3,717 documents"):
        assert shown in page.text
    assert page.attributes.count(("class", "chart")) == len(quickstart.filters) + 2


def test_the_page_is_complete_in_itself(quickstart: Analysis) -> None:
    page = Page(page_of(quickstart))
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert all((value or "").startswith("#") for name, value in page.attributes if name in ("src", "href", "action"))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
def test_in_a_browser(tmp_path: Path) -> None:
    """Nothing hostile runs, and what is in the data is shown as it is."""
    rows = [{"text": f"{EVIL} {'word ' * number}", EVIL: number} for number in range(40)]
    analysis = look_at(write_jsonl(tmp_path / "in" / "a.jsonl", rows), tmp_path / "out")
    dom = in_browser(Path(analysis.output, "index.html"), tmp_path / "profile")
    assert "<title>broken" not in dom
    page = Page(dom)
    assert ("type", "button") in page.attributes  # made by the page's own script
    assert EVIL in page.text
    assert page.tags.count("rect") > 10


# --- input ----------------------------------------------------------------------------------------------------------


def test_other_formats(tmp_path: Path) -> None:
    frame = pl.DataFrame({"body": ["one two", "three", ""]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    (tmp_path / "a.txt").write_text("one two three", encoding="utf-8")
    for name, field, words in (("a.parquet", "body", 3), ("a.csv", "body", 3), ("a.txt", "text", 3)):
        found = look_at(str(tmp_path / name), tmp_path / "out", text_field=field)
        assert found.summary.total("words") == words


def test_a_sample_is_spread_over_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SAMPLE_BLOCK", "8KiB")
    monkeypatch.setattr(inputs, "LEAST_SPLITS", 8)
    for number in range(40):
        rows = [{"text": f"the text {number} {row} " + "and more " * 20} for row in range(40)]
        write_jsonl(tmp_path / "in" / f"{number:02d}.jsonl", rows)
    found = [look_at(str(tmp_path / "in"), tmp_path / "out", sample=200, workers=workers) for workers in (0, 2)]
    one = found[0]
    assert one.coverage.splits_read < one.coverage.splits
    assert 140 < one.documents < 260
    assert 1400 < one.documents_in_all < 1800
    assert one.sample["source"].n_unique() >= 5
    assert "A sample of" in page_of(one)
    assert_frame_equal(one.sample, found[1].sample)


def test_a_fraction(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": f"text {number}"} for number in range(2000)])
    assert 150 < look_at(path, tmp_path / "out", fraction=0.1).documents < 250


def test_a_sample_too_small_for_its_thresholds_is_said_to_be(tmp_path: Path, quickstart: Analysis) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": f"the text {number} " * number} for number in range(1, 300)])
    small = look_at(path, tmp_path / "out", fraction=0.2)
    assert small.unseen_loss() > 0.1
    assert "The sample is small" in page_of(small)
    assert quickstart.unseen_loss() == 0
    assert "The sample is small" not in page_of(quickstart)


def test_only_some_filters(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "word " * number} for number in range(1, 101)])
    found = look_at(path, tmp_path / "out", filters=["word_count"], keep_rate=0.8)
    (proposal,) = found.together
    assert proposal.filter.bounds() == (11, 90)
    assert found.recipe.count("Filter:") == 2  # ScoreFilter and WordCountFilter


def test_without_the_language_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycld2", None)
    found = look_at(write_jsonl(tmp_path / "a.jsonl", [{"text": "a b"}]), tmp_path / "out")
    assert "Languages were not identified: language identification needs the package" in page_of(found)
    assert found.shares("script") == [("Latn", 1)]


def test_only_empty_documents(tmp_path: Path) -> None:
    found = look_at(write_jsonl(tmp_path / "a.jsonl", [{"text": ""}, {"text": None}]), tmp_path / "out")
    assert found.summary.total("empty") == 2
    assert found.proposed_share() == 0
    assert "More cannot be kept" in page_of(found)


def test_what_cannot_work_is_said(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"content": "a", "n": 1}])
    with pytest.raises(DataError, match=r"no such file or directory(.|\n)*Did you mean 'a.jsonl'"):
        look_at(str(tmp_path / "b.jsonl"), tmp_path / "out")
    with pytest.raises(ColumnError, match=r"no column 'contents', only content, n\. Did you mean 'content'"):
        look_at(path, tmp_path / "out", text_field="contents")
    with pytest.raises(DataError, match="'n' holds int64, not text"):
        look_at(path, tmp_path / "out", text_field="n")
    with pytest.raises(PlanError, match="sample, fraction and everything exclude each other"):
        look_at(path, tmp_path / "out", text_field="content", sample=1, fraction=0.5)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty.jsonl: it contains no documents"):
        look_at(str(tmp_path / "empty.jsonl"), tmp_path / "out")
    with pytest.raises(PlanError, match=r"is inside the input .* Choose another directory"):
        look_at(str(tmp_path), tmp_path / "out")
    (tmp_path / "b.csv").write_text("text\na\n")
    with pytest.raises(DataError, match="several formats"):
        look_at(str(tmp_path), tmp_path.parent / "out")
