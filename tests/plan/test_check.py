"""What a plan refuses before anything runs: missing input and columns, replaced columns, limits that cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError, RecipeError
from tamis.pipeline import Pipeline
from tamis.pipeline.catalogue import catalogue
from tamis.pipeline.parameters import parameters_of
from tamis.pipeline.recipe import load_recipe
from tamis.plan import Plan
from tamis.stages.base import ProcessingStage
from tamis.stages.flow import Dropped, Route
from tamis.stages.function_decorators import processing_stage
from tamis.stages.image.filters import (
    ImageAestheticFilterStage,
    ImageNSFWFilterStage,
    ImageTextSimilarityFilter,
)
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader
from tamis.stages.mixing import Blend, ReadSources, Resample, ScoreBuckets, ScoreEnsemble
from tamis.stages.text.classifiers import (
    ContentTypeClassifier,
    DistributedDataClassifier,
    DomainClassifier,
    InstructionDataGuardClassifier,
    MultilingualDomainClassifier,
    QualityClassifier,
)
from tamis.stages.text.columns import AddId, DropColumns
from tamis.stages.text.decontamination import Benchmark, Decontaminate
from tamis.stages.text.filters import DocumentFilter, Filter, Score, ScoreFilter, UrlsFilter, WordCountFilter
from tamis.stages.text.filters.base import SHARE, ThresholdFilter
from tamis.stages.text.language import AddLanguage
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.stages.text.modifiers import CleanLines, Modify, PiiRedactor, RefinedWebLineCleaner, UrlRemover
from tamis.stages.text.segments import DocumentSplitter
from tamis.stages.text.tokenization import TokenCount, Tokenize
from tamis.stages.text.trained_classifier import TrainedClassifier
from tamis.tasks import DocumentBatch

Stage = ProcessingStage[Any, Any]

ROW = '{"text": "a b", "n": 5, "words": 2, "lang": "en"}\n'


@pytest.fixture
def reader(tmp_path: Path) -> JsonlReader:
    """Rows with text and numbers."""
    (tmp_path / "in.jsonl").write_text(ROW * 3)
    return JsonlReader(str(tmp_path / "in.jsonl"))


def plan(*stages: Stage) -> Plan:
    return Pipeline("p", stages=stages).plan(LocalExecutor(workers=0))


# --- input ----------------------------------------------------------------------------------------------------------


def test_missing_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match=r"dat: there is no such file or directory\n  Did you mean 'data'?"):
        plan(JsonlReader(str(tmp_path / "dat")))
    with pytest.raises(DataError, match="is in this directory: it is empty"):
        plan(JsonlReader(str(tmp_path / "data")))
    with pytest.raises(DataError, match="no such file"):
        plan(ReadSources({"web": JsonlReader(str(tmp_path / "missing"))}))


# --- columns that are needed ----------------------------------------------------------------------------------------

NEEDS_TEXT: list[Stage] = [
    ScoreFilter(WordCountFilter(), text_field="n"),
    Modify(UrlRemover(), input_fields="n"),
    AddLanguage(text_field="n"),
    DocumentSplitter("\n", text_field="n"),
    CleanLines(RefinedWebLineCleaner(), text_field="n"),
    TokenCount("tokenizer.json", text_field="n"),
    Decontaminate({"quiz": Benchmark("quiz.jsonl")}, text_field="n"),
]


@pytest.mark.parametrize("stage", NEEDS_TEXT, ids=lambda stage: type(stage).__name__)
def test_a_text_column_of_integers_is_refused(reader: JsonlReader, stage: Stage) -> None:
    with pytest.raises(
        ColumnError, match=r"works on text, but the column 'n' holds int64\. Columns with text: lang, text"
    ):
        plan(reader, stage)


def test_types_are_known_of_parquet_too_and_through_other_stages(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1.5], "other": ["x"]}), tmp_path / "a.parquet")
    source = ParquetReader(str(tmp_path))
    with pytest.raises(ColumnError, match=r"the column 'text' holds double\. Columns with text: other"):
        plan(source, AddId("id"), Route("other", {"x": [ScoreFilter(WordCountFilter())]}))
    plan(source, Modify(str, input_fields="text"), ScoreFilter(WordCountFilter()))  # the type is not known any more


def test_what_takes_other_values_than_text_is_not_refused(reader: JsonlReader) -> None:
    class Large(DocumentFilter):
        def score_document(self, text: Any) -> float:
            return float(text)

        def keep_document(self, score: Any) -> bool:
            return bool(score > 3)

    stages = (ScoreFilter(Large(), text_field="n"), Filter(WordCountFilter(), "n"), Modify(str, input_fields="n"))
    planned = plan(reader, *stages)
    assert [type(v.stage) for v in planned.vertices][-3:] == [type(stage) for stage in stages]


def test_a_column_that_no_row_has_is_refused_also_where_rows_differ(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b", "url": "c"}\n')
    with pytest.raises(ColumnError, match=r"needs the column 'txt'.*Available: text, url. Did you mean 'text'"):
        plan(JsonlReader(str(tmp_path)), ScoreFilter(WordCountFilter(), text_field="txt"))
    plan(JsonlReader(str(tmp_path)), ScoreFilter(UrlsFilter(), text_field="url"))


# --- columns that are replaced --------------------------------------------------------------------------------------

REPLACES_WORDS: list[Stage] = [
    Score(WordCountFilter(), "words"),
    ScoreFilter(WordCountFilter(), score_field="words"),
    ScoreFilter([UrlsFilter(), WordCountFilter()], score_field=[None, "words"]),
    Modify(str.upper, output_fields="words"),
    Modify(PiiRedactor(counts_field="words")),
    AddLanguage(language_field="words"),
    AddLanguage(score_field="words"),
    AddLanguage(script_field="words"),
    AddId("words"),
    TokenCount("tokenizer.json", count_field="words"),
    Tokenize("tokenizer.json", tokens_field="words"),
    DocumentSplitter("\n", segment_id_field="words"),
    CleanLines(RefinedWebLineCleaner(), removed_words_field="words"),
    Blend({"en": 1}, by="lang", repeat_field="words"),
    Resample("lang", {"en": 2}, repeat_field="words"),
    ScoreBuckets("n", bucket_field="words"),
    ScoreEnsemble(["n"], score_field="words"),
    TokenizerStage("model", tokens_field="words"),
    TrainedClassifier("model", score_field="words"),
    ContentTypeClassifier(score_field="words"),
    DistributedDataClassifier(model_identifier="model", score_field="words"),
    DomainClassifier(score_field="words"),
    InstructionDataGuardClassifier(score_field="words"),
    MultilingualDomainClassifier(score_field="words"),
    QualityClassifier(score_field="words"),
    ImageAestheticFilterStage("model", embedding_field="n", score_field="words"),
    ImageNSFWFilterStage("model", embedding_field="n", score_field="words"),
    ImageTextSimilarityFilter("model", text_field="text", embedding_field="n", score_field="words"),
]


@pytest.mark.parametrize("stage", REPLACES_WORDS, ids=lambda stage: type(stage).__name__)
def test_a_column_that_is_there_is_replaced_only_if_asked(reader: JsonlReader, stage: Stage) -> None:
    with pytest.raises(ColumnError, match="would replace the column 'words', which is already there"):
        plan(reader, stage)
    plan(reader, stage.with_(overwrite_columns=True))
    plan(reader, DropColumns(["words"]), stage)


def test_every_stage_that_adds_a_column_says_so() -> None:
    """A parameter that names a column to write to makes a difference to what the stage says that it adds."""
    written = (
        "score_field",
        "count_field",
        "tokens_field",
        "language_field",
        "id_field",
        "repeat_field",
        "source_field",
    )
    stages = [entry.cls for entry in catalogue().values() if entry.kind == "stage"]
    found = {cls for cls in stages if any(p.name in written for p in parameters_of(cls))}
    read_only = {"Decontaminate", "PackSequences"}
    read_only |= {cls.__name__ for cls in found if cls.__module__.startswith("tamis.stages.deduplication")}
    covered = {type(stage).__name__ for stage in REPLACES_WORDS} | {"ReadSources"} | read_only
    assert {cls.__name__ for cls in found} - covered == set()


def test_a_source_field_that_is_there_is_refused(tmp_path: Path, reader: JsonlReader) -> None:
    with pytest.raises(ValueError, match="have a column 'lang' of their own; give another source_field"):
        plan(ReadSources({"web": reader}, source_field="lang"))


def test_changing_a_column_in_its_place_is_no_replacement(reader: JsonlReader) -> None:
    planned = plan(
        reader,
        Modify([str.upper, str.strip]),
        Modify(str.upper, output_fields="upper"),
        Modify(str, input_fields="upper"),
    )
    assert sum(isinstance(v.stage, Modify) for v in planned.vertices) == 3
    plan(reader, Modify([str.upper, str.lower], input_fields=["text", "x"], output_fields=["x", "x"]))


def test_a_result_that_a_later_step_would_replace_is_refused(reader: JsonlReader) -> None:
    with pytest.raises(ColumnError, match="writes the column 'x' twice"):
        plan(reader, Modify([str.upper, str.lower], output_fields=["x", "x"]))
    with pytest.raises(ColumnError, match="writes the column 'x' twice"):
        plan(reader, Score([WordCountFilter(), UrlsFilter()], ["x", "x"]))


def test_columns_of_dropped_rows_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "dropped_by": "another run"}\n')
    with pytest.raises(ColumnError, match="rows that stage 'word_count' drops get the column 'dropped_by'"):
        plan(JsonlReader(str(tmp_path)), Dropped(ScoreFilter(WordCountFilter()), [JsonlWriter(str(tmp_path / "out"))]))


@pytest.mark.parametrize("substrate", ["inline", "processes"])
def test_a_column_that_appears_only_in_the_run_is_not_replaced(tmp_path: Path, substrate: Any) -> None:
    @processing_stage(name="opaque")
    def opaque(task: DocumentBatch) -> DocumentBatch:
        return task

    (tmp_path / "in.jsonl").write_text(ROW)
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), opaque, ScoreFilter(WordCountFilter(0), score_field="words")]
    executor = LocalExecutor(workers=0 if substrate == "inline" else 1, substrate=substrate)
    with pytest.raises(ColumnError, match=r"(?s)stage 'word_count' would replace the column 'words'"):
        Pipeline("p", stages=stages).run(executor, run_dir=str(tmp_path / "one"), progress="off")
    stages[-1] = stages[-1].with_(overwrite_columns=True)
    result = Pipeline("p", stages=stages).run(executor, run_dir=str(tmp_path / "two"), progress="off")
    assert [batch.data["words"].to_pylist() for batch in result] == [[2]]


# --- parameters of filters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: ScoreFilter(WordCountFilter(9, 5)), r"WordCountFilter\(min_words=9, max_words=5\): no score is at"),
        (lambda: Score([UrlsFilter(15)], ["x"]), r"UrlsFilter\(max_url_to_text_ratio=15\): must be between 0 and 1"),
        (lambda: Filter(WordCountFilter(-1), "n"), r"WordCountFilter\(min_words=-1\): must be at least 0"),
        (lambda: CleanLines(RefinedWebLineCleaner(), max_removed_words_ratio=2), "must be between 0 and 1"),
    ],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused_when_a_stage_is_made(made: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        made()


def test_a_recipe_says_where_the_limit_is() -> None:
    recipe = "stages:\n  - ScoreFilter:\n      filter_obj: {UrlsFilter: {max_url_to_text_ratio: 15}}\n"
    with pytest.raises(RecipeError, match=r"recipe, line 2: ScoreFilter: UrlsFilter\(max_url_to_text_ratio=15.0\)"):
        load_recipe(recipe).to_pipeline()


def limits() -> list[tuple[type[ThresholdFilter], str]]:
    """Every limit of every filter that keeps scores between bounds."""
    filters = [entry.cls for entry in catalogue().values() if issubclass(entry.cls, ThresholdFilter)]
    return [(cls, p.name) for cls in filters for p in parameters_of(cls) if p.name.startswith(("min_", "max_"))]


@pytest.mark.parametrize(("cls", "name"), limits(), ids=lambda value: getattr(value, "__name__", value))
def test_every_limit_of_every_filter_is_checked(cls: type[ThresholdFilter], name: str) -> None:
    if name in ("max_bytes", "min_score"):
        pytest.skip("the filter checks it when it is made")
    made = object.__new__(cls)
    for parameter in parameters_of(cls):
        setattr(made, parameter.name, parameter.default)
    made.check_parameters()
    wrong = [-1, float("nan")]
    if name.endswith(("_ratio", "_fraction", "_share")) and cls.score_range == SHARE:
        wrong.append(15)
    for value in wrong:
        setattr(made, name, value)
        with pytest.raises(ValueError, match=name):
            made.check_parameters()


def test_ratios_that_may_exceed_one_are_known() -> None:
    open_ended = {cls.__name__ for cls, name in limits() if name.endswith("_ratio") and cls.score_range != SHARE}
    assert open_ended == {"AspectRatioFilter", "NewlinesToWordsFilter", "TokenizerFertilityFilter"}
