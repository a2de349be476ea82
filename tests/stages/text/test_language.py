"""Filters and a stage by language and script, with the built-in model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.quickstart import sample_files
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import LanguageFilter, ScoreFilter, ScriptFilter
from tamis.stages.text.language import AddLanguage
from tamis.tasks import DocumentBatch

GERMAN = "Die Bibliothek ist jeden Tag der Woche geöffnet, außer am Sonntagnachmittag."
CHINESE = "圖書館每天都開放。星期日下午除外。這裡還有兒童閱覽區與學習資料。"
TEXTS = st.lists(
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aéж語か한 1.\0"))), max_size=5
)


@pytest.mark.parametrize(
    ("languages", "text", "kept"),
    [
        (["de"], GERMAN, True),
        (["fr", "DE"], GERMAN, True),
        (["fr"], GERMAN, False),
        (["zh"], CHINESE, True),
        (["zh_hant"], CHINESE, True),
        (["de"], "", False),
        (["und"], "", False),
    ],
)
def test_languages_are_kept(languages: list[str], text: str, kept: bool) -> None:
    keep = LanguageFilter(languages)
    assert keep.keep_document(keep.score_document(text)) is kept


@pytest.mark.parametrize(
    ("scripts", "text", "share"),
    [
        (["Latn"], "Straße 12, два", 6 / 9),
        (["Cyrl", "Latn"], "Straße 12, два", 1.0),
        (["Jpan"], "日本語のテキスト", 1.0),
        (["Kore"], "한국어 韓國語 abc", 6 / 9),
        (["Hant"], CHINESE, 1.0),
        (["Latn"], "12 + 3 = 15 👩\u200d🚀", 0.0),
        (["Hebr"], "\u200fשבת\u0301", 1.0),
    ],
)
def test_share_of_a_script(scripts: list[str], text: str, share: float) -> None:
    assert ScriptFilter(scripts).score_document(text) == pytest.approx(share)


@settings(deadline=None)
@given(texts=TEXTS)
@example(texts=["", " ", "\0", "\x85", "\uffff", "e\u0301", "שלום\u200f", "語" * 3000])
def test_both_forms_agree(texts: list[str]) -> None:
    column = pa.chunked_array([pa.array([*texts, None], pa.string())])
    for keep in (
        LanguageFilter(["en", "ja", "und"]),
        ScriptFilter(["Jpan", "Cyrl"]),
        ScriptFilter(["Latn"], min_share=0),
    ):
        scores = keep.score_column(column)
        assert np.asarray(scores).tolist() == [keep.score_document(text) for text in [*texts, ""]]
        assert keep.keep_scores(scores).tolist() == [keep.keep_document(score) for score in scores]


def test_filters_run_on_threads_with_the_built_in_model() -> None:
    assert ScoreFilter([LanguageFilter(["en"]), ScriptFilter(["Latn"])]).releases_gil
    assert AddLanguage().releases_gil


def test_reasons_name_what_was_wanted() -> None:
    assert LanguageFilter(["de", "fr"]).reason() == "language not de or fr (score < 0.5)"
    assert ScriptFilter(["Latn"]).reason() == "script not Latn (share < 0.5)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LanguageFilter(["english"]), "knows no language 'english'"),
        (lambda: LanguageFilter("en"), "give a list of codes"),  # type: ignore[arg-type]  # the mistake under test
        (lambda: LanguageFilter([]), "give a list of codes"),
        (lambda: LanguageFilter(["en"], min_score=0), "min_score=0"),
        (lambda: LanguageFilter(["en"], max_bytes=0), "max_bytes=0"),
        (lambda: ScriptFilter(["latin"]), "no script 'latin'. Did you mean 'Latn'?"),
        (lambda: ScriptFilter(["Cyri"]), "Did you mean 'Cyrl'?"),
        (lambda: AddLanguage(max_bytes=0), "max_bytes=0"),
        (lambda: AddLanguage(language_field="text"), "get in each other's way"),
        (lambda: AddLanguage(script_field="language"), "get in each other's way"),
    ],
)
def test_mistakes_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make()


def test_columns_that_are_added() -> None:
    batch = DocumentBatch({"body": [GERMAN, CHINESE, None, "\0"], "language": ["a", "b", "c", "d"]})
    table = AddLanguage("body", script_field="script").process(batch).data
    assert table.column_names == ["body", "language", "language_score", "script"]
    assert table["language"].to_pylist() == ["de", "zh-Hant", "und", "und"]
    assert table["script"].to_pylist() == ["Latn", "Hani", "Zyyy", "Zyyy"]
    assert AddLanguage("body", score_field=None).process(batch).get_columns() == ["body", "language"]


def output(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*.jsonl"))}


def test_documents_are_sent_on_by_language(tmp_path: Path) -> None:
    (file,) = [file for file in sample_files() if file.endswith("docs-world-2.jsonl.gz")]

    def run(workers: int) -> dict[str, bytes]:
        folder = tmp_path / str(workers)
        branches = {code: [JsonlWriter(str(folder / code))] for code in ("de", "fr")}
        stages = [
            JsonlReader(file, blocksize="100KiB"),
            AddLanguage(),
            Route("language", branches, otherwise=[JsonlWriter(str(folder / "rest"))]),
        ]
        Pipeline("route", stages=stages).run(
            LocalExecutor(workers), run_dir=str(tmp_path / f"run-{workers}"), progress="off"
        )
        return output(folder)

    alone = run(1)
    assert {name.partition("/")[0] for name in alone} == {"de", "fr", "rest"}
    assert run(4) == alone
