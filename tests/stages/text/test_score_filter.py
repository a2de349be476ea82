"""Score, Filter and ScoreFilter: what they write, keep, drop and say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import Drop
from tamis.stages.text import filters
from tamis.stages.text.filters import (
    DocumentFilter,
    Filter,
    NumbersFilter,
    Score,
    ScoreFilter,
    UrlsFilter,
    WordCountFilter,
)
from tamis.tasks import DocumentBatch

BATCH = DocumentBatch({"text": ["a", "b c", "1 2", "d e f"], "id": [0, 1, 2, 3]}, dataset_name="d", task_id="t")


def run(stage: ProcessingStage[Any, Any], batch: DocumentBatch = BATCH) -> tuple[list[Drop], DocumentBatch]:
    """What was dropped, and the batch that is left."""
    kept = stage.process(batch)
    assert isinstance(kept, DocumentBatch)
    return kept.dropped, kept


def ids(batch: DocumentBatch) -> list[int]:
    return list(batch.data["id"].to_pylist())


def scores(drop: Drop) -> list[float]:
    assert drop.scores is not None
    return list(drop.scores.to_pylist())


class Longest(DocumentFilter):
    """A filter as users write it."""

    def __init__(self, most: int = 3) -> None:
        super().__init__()
        self.most = most

    def score_document(self, text: str) -> float:
        return len(text)

    def keep_document(self, score: float) -> bool:
        return score <= self.most


def has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def test_dropped_rows_carry_row_numbers_reason_and_scores() -> None:
    (drop,), kept = run(ScoreFilter(WordCountFilter(min_words=2)))
    assert drop.batch is BATCH
    assert (drop.rows.tolist(), drop.reason) == ([0], "word_count outside 2..100000")
    assert scores(drop) == [1]
    assert ids(kept) == [1, 2, 3]


def test_kept_batch_keeps_its_identity_and_other_columns() -> None:
    _, kept = run(ScoreFilter(WordCountFilter(min_words=2)))
    assert (kept.dataset_name, kept.task_id, kept.get_columns()) == ("d", "t", ["text", "id"])


def test_batch_of_which_all_is_kept_is_passed_on_without_a_copy() -> None:
    drops, kept = run(ScoreFilter(WordCountFilter(min_words=1)))
    assert drops == []
    assert kept.data is BATCH.data


def test_a_batch_of_which_nothing_is_left_has_no_rows() -> None:
    (drop,), kept = run(ScoreFilter(WordCountFilter(min_words=9)))
    assert drop.rows.tolist() == [0, 1, 2, 3]
    assert (kept.num_items, kept.get_columns()) == (0, ["text", "id"])


def test_an_empty_batch_stays_empty() -> None:
    drops, kept = run(ScoreFilter([WordCountFilter(), Longest()]), DocumentBatch(BATCH.data.slice(0, 0)))
    assert (drops, kept.num_items) == ([], 0)


def test_chain_drops_with_row_numbers_of_the_batch_that_came_in() -> None:
    stage = ScoreFilter([WordCountFilter(min_words=2), NumbersFilter(0.5), has_digit], invert=[False, False, True])
    drops, kept = run(stage)
    assert [(d.rows.tolist(), d.reason) for d in drops] == [
        ([0], "word_count outside 2..100000"),
        ([2], "numbers_ratio > 0.5"),
    ]
    assert ids(kept) == [1, 3]


def test_later_filters_of_a_chain_see_only_what_is_left() -> None:
    seen: list[str] = []

    def look(text: str) -> bool:
        seen.append(text)
        return True

    run(ScoreFilter([WordCountFilter(min_words=2), look]))
    assert seen == ["b c", "1 2", "d e f"]


def test_chain_of_column_forms_row_forms_and_functions() -> None:
    drops, kept = run(ScoreFilter([WordCountFilter(min_words=2), Longest(), lambda text: "b" in text]))
    assert [d.reason for d in drops] == [
        "word_count outside 2..100000",
        "rejected by Longest",
        "rejected by <lambda>",
    ]
    assert ids(kept) == [1]


def test_scores_of_a_chain_stay_beside_their_rows() -> None:
    _, kept = run(ScoreFilter([WordCountFilter(min_words=2), Longest(), has_digit], score_field=["n", None, "digit"]))
    assert kept.data.to_pylist() == [{"text": "1 2", "id": 2, "n": 2, "digit": True}]


def test_later_filter_may_read_an_earlier_score() -> None:
    stage = Score([WordCountFilter(), lambda n: n * 10], ["n", "n10"], text_field=["text", "n"])
    _, scored = run(stage)
    assert stage.inputs() == (["data"], ["text"])
    assert scored.data["n10"].to_pylist() == [10, 20, 20, 30]


def test_a_stage_that_is_set_up_does_what_it_does_by_hand() -> None:
    measured = [
        WordCountFilter(min_words=2),
        NumbersFilter(max_number_to_text_ratio=0.5),
        WordCountFilter(min_words=1, max_words=2),
    ]
    makers = (
        lambda: ScoreFilter(measured),
        lambda: ScoreFilter(measured, score_field=["n", None, "m"]),
        lambda: ScoreFilter([measured[0], has_digit, measured[2]], invert=[False, True, False]),
    )
    for make in makers:
        by_hand, ready = make(), make()
        ready.setup()
        for _ in range(2):
            (drops, kept), (drops_by_hand, kept_by_hand) = run(ready), run(by_hand)
            assert kept.data == kept_by_hand.data
            assert [(d.reason, d.rows.tolist(), d.scores) for d in drops] == [
                (d.reason, d.rows.tolist(), d.scores) for d in drops_by_hand
            ]


def test_invert_keeps_what_would_be_dropped() -> None:
    (drop,), kept = run(ScoreFilter(WordCountFilter(min_words=2), invert=True))
    assert ids(kept) == [0]
    assert drop.reason == "not (word_count outside 2..100000)"


def test_null_counts_as_empty_text_in_both_forms() -> None:
    batch = DocumentBatch({"text": ["a", None]})
    _, scored = run(Score([WordCountFilter(), len], ["words", "characters"]), batch)
    assert scored.data.to_pydict() == {"text": ["a", None], "words": [1, 0], "characters": [1, 0]}


def test_score_replaces_a_column_of_the_same_name_in_place() -> None:
    _, scored = run(Score(len, "text"))
    assert scored.data.to_pydict() == {"text": [1, 3, 3, 5], "id": [0, 1, 2, 3]}


def test_score_said_to_be_a_float_is_one_in_every_batch() -> None:
    _, scored = run(Score(Longest(), "length"))
    assert scored.data.schema.field("length").type == pa.float64()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_may_be_of_several_arrow_types(kind: pa.DataType) -> None:
    batch = DocumentBatch({"text": pa.array(["a b", "c"], kind)})
    _, kept = run(ScoreFilter([WordCountFilter(min_words=2), lambda text: "a" in text]), batch)
    assert kept.data["text"].to_pylist() == ["a b"]


def test_column_that_holds_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="'id' holds int64"):
        run(Score(WordCountFilter(), "n", text_field="id"))


def test_missing_column_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ColumnError, match=r"word_count: there is no column 'txt'.*Did you mean 'text'"):
        run(ScoreFilter(WordCountFilter(), text_field="txt"))


def test_filter_decides_by_a_column_that_is_there() -> None:
    (drop,), kept = run(Filter(WordCountFilter(min_words=2), "id"))
    assert ids(kept) == [2, 3]
    assert scores(drop) == [0, 1]


def test_filter_never_keeps_a_null_but_asks_a_function() -> None:
    batch = DocumentBatch({"score": [1, None, 3], "id": [0, 1, 2]})
    _, by_filter = run(Filter(WordCountFilter(min_words=1), "score"), batch)
    _, by_row_form = run(Filter(Longest(), "score"), batch)
    _, by_function = run(Filter(lambda score: score is None, "score"), batch)
    assert (ids(by_filter), ids(by_row_form), ids(by_function)) == ([0, 2], [0, 2], [1])


def test_filter_chain_reads_a_column_each() -> None:
    stage = Filter([lambda i: i > 0, lambda text: text != "1 2"], ["id", "text"], invert=[False, True])
    _, kept = run(stage)
    assert ids(kept) == [2]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (ScoreFilter(WordCountFilter()), True),
        (ScoreFilter([WordCountFilter(), NumbersFilter()]), True),
        (ScoreFilter([WordCountFilter(), Longest()]), False),
        (ScoreFilter(UrlsFilter(url_regex="a")), False),
        (Filter(UrlsFilter(url_regex="a"), "score"), True),
        (Score(UrlsFilter(url_regex="a"), "score"), False),
        (Filter(lambda value: True, "score"), False),
    ],
)
def test_stage_releases_the_lock_only_if_all_of_it_is_vectorised(stage: Any, expected: bool) -> None:
    assert stage.releases_gil is expected
    assert stage.with_(batch_size=2).releases_gil is expected


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        (ScoreFilter(WordCountFilter()), "word_count"),
        (Score(has_digit, "digit"), "has_digit"),
        (ScoreFilter([WordCountFilter(), has_digit]), "ScoreFilter_chain_of_word_count_has_digit"),
        (Filter([Longest(), has_digit], ["a", "b"]), "Filter_chain_of_Longest_has_digit"),
    ],
)
def test_stage_is_named_after_its_filters(stage: Any, name: str) -> None:
    assert stage.name == name


def test_columns_are_declared() -> None:
    stage = ScoreFilter([WordCountFilter(), NumbersFilter()], text_field=["text", "title"], score_field=["n", None])
    assert stage.inputs() == (["data"], ["text", "title"])
    assert stage.outputs() == (["data"], ["n"])
    assert stage.columns_after(frozenset({"text", "title"})) == frozenset({"text", "title", "n"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScoreFilter([WordCountFilter(), NumbersFilter()], score_field="n"),
        lambda: Score([WordCountFilter(), NumbersFilter()], "n"),
        lambda: Filter([WordCountFilter(), NumbersFilter()], "n"),
        lambda: ScoreFilter([WordCountFilter(), NumbersFilter()], text_field=["a", "b", "c"]),
        lambda: ScoreFilter([WordCountFilter(), NumbersFilter()], invert=[True]),
        lambda: ScoreFilter([]),
    ],
)
def test_as_many_columns_as_filters_are_needed(make: Any) -> None:
    with pytest.raises(ValueError, match=r"need as many|is empty"):
        make()


@pytest.mark.parametrize("wrong", [WordCountFilter, "word_count", 3])
def test_what_is_no_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"give an object: WordCountFilter\(|takes a DocumentFilter or a function"):
        ScoreFilter(wrong)


def test_hooks_of_filters_with_a_model_are_called() -> None:
    called: list[str] = []

    class WithModel(Longest):
        def model_check_or_download(self) -> None:
            called.append("download")

        def load_model(self) -> None:
            called.append("model")

        def load_tokenizer(self) -> None:
            called.append("tokenizer")

    stage = ScoreFilter([WithModel(), has_digit])
    stage.setup_on_node()
    assert called == ["download"]
    stage.setup()
    assert called == ["download", "model", "tokenizer"]


def test_stage_survives_pickling_with_a_lambda() -> None:
    import cloudpickle

    stage = cloudpickle.loads(cloudpickle.dumps(ScoreFilter([WordCountFilter(min_words=2), lambda text: "b" in text])))
    assert ids(run(stage)[1]) == [1]


def test_repr_is_what_was_given() -> None:
    stage = ScoreFilter(NumbersFilter(), score_field="n")
    assert repr(stage) == (
        "ScoreFilter(filter_obj=NumbersFilter(max_number_to_text_ratio=0.15, any_script=False), "
        "text_field='text', score_field='n', invert=False, verbose=False)"
    )


def test_filters_of_neighbouring_stages_give_what_they_give_alone(tmp_path: Path) -> None:
    texts = [f"word {n} " * (n % 13) + "the end.\n" * (n % 5) for n in range(300)]
    chain: list[DocumentFilter] = [
        WordCountFilter(min_words=3),
        Longest(),
        filters.RepeatedLinesFilter(),
        filters.RepeatingTopNGramsFilter(2, 0.6),
        filters.MeanWordLengthFilter(2, 9),
    ]
    together = Pipeline("one", stages=[ScoreFilter(f, score_field=f"s{i}") for i, f in enumerate(chain)])
    batch = DocumentBatch({"text": texts, "id": list(range(300))})
    result = together.run(LocalExecutor(workers=0), [batch], run_dir=str(tmp_path / "run"), progress="off")
    expected, reasons = [], {}
    for number, text in enumerate(texts):
        scores = []
        for f in chain:
            scores.append(f.score_document(text))
            if not f.keep_document(scores[-1]):
                reasons[number] = f.name
                break
        else:
            expected.append({"text": text, "id": number, **{f"s{i}": s for i, s in enumerate(scores)}})
    assert [row for task in result for row in task.data.to_pylist()] == expected
    assert dict(zip(*(result.drops().column(c).to_pylist() for c in ("position", "stage")), strict=True)) == reasons


def test_verbose_says_how_many_rows_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="tamis"):
        run(ScoreFilter(WordCountFilter(min_words=2), verbose=True))
    assert caplog.messages == ["word_count: kept 3 of 4 rows"]


def test_a_batch_of_nulls_alone_is_one_of_empty_texts() -> None:
    batch = DocumentBatch({"text": [None, None]})
    scored = Score([len, WordCountFilter()], ["length", "words"]).process(batch)
    assert scored.data.select(["length", "words"]).to_pydict() == {"length": [0, 0], "words": [0, 0]}


def test_a_filter_with_words_of_its_own_counts_those() -> None:
    class Letters(WordCountFilter):
        def words(self, text: str) -> list[str]:
            return list(text)

    scored = Score(Letters(), "letters").process(DocumentBatch({"text": ["abc d"]}))
    assert scored.data.column("letters").to_pylist() == [5]


def test_rows_of_arrows_string_views_can_be_dropped() -> None:
    batch = DocumentBatch(pa.table({"text": pa.array(["a", "b c", None], pa.string_view())}))
    kept = ScoreFilter(WordCountFilter(min_words=2)).process(batch)
    assert kept.dropped[0].rows.tolist() == [0, 2]
    assert kept.data.column("text").to_pylist() == ["b c"]
