"""Training of classifiers from files with labels: what is learnt, what is refused, and what the folder holds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli import main
from tamis.errors import ColumnError, DataError, ModelError, PlanError
from tamis.models.text_classifier import Features, load_text_classifier
from tamis.training import evaluate_classifier, train_classifier
from tamis.training.evaluation import evaluate
from tamis.training.sample import TextSample, content_keys
from tamis.training.split import CALIBRATION, TEST, TRAIN, groups_of, parts_of

TOPICS = {
    "food": ["bread", "soup", "salt", "oven", "butter", "recipe", "onion", "bake", "fry", "stir"],
    "code": ["function", "variable", "loop", "array", "compile", "return", "module", "debug", "the stack"],
}
SMALL = Features(bits=14)


def rows_of(count: int, seed: int = 0) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    made = []
    for n in range(count):
        label = ("food", "code")[n % 2]
        words = chance.choices(TOPICS[label], k=12) + chance.choices(["the", "and", "of", "with", "it"], k=6)
        chance.shuffle(words)
        made.append({"text": f"{' '.join(words)} {seed}-{n}", "label": label, "stars": n % 2 * 5})
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def labelled(tmp_path: Path) -> str:
    return write(tmp_path / "labelled.jsonl", rows_of(300))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", ["linear", "fasttext"])
def test_a_classifier_learns_what_sets_labels_apart(labelled: str, tmp_path: Path, kind: str) -> None:
    trained = train_classifier(labelled, str(tmp_path / "model"), kind=kind, features=SMALL)
    assert trained.evaluation.accuracy == 1.0
    assert trained.evaluation.confusion == [[30, 0], [0, 30]]
    model = load_text_classifier(str(tmp_path / "model"))
    shares = model.probabilities(pa.array(["bake the bread", "compile the module", None]))
    assert model.labels == ("code", "food")
    assert shares[0, 1] > 0.5 > shares[1, 1]
    assert shares.sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def with_vectors(rows: list[dict[str, Any]], length: int = 24) -> list[dict[str, Any]]:
    """Rows with vectors that have something to do with the label, of any length but zero."""
    chance = np.random.default_rng(1)
    centres = {label: chance.normal(size=length) for label in TOPICS}
    return [
        {**row, "vector": (chance.uniform(0.1, 30) * (centres[row["label"]] + chance.normal(size=length))).tolist()}
        for row in rows
    ]


def test_a_classifier_of_embeddings(tmp_path: Path) -> None:
    rows = with_vectors(rows_of(300))
    rows[0]["vector"], rows[1]["vector"] = None, [0.0] * 24
    rows[2]["text"] = rows[4]["text"]  # the same text with another vector
    labelled = write(tmp_path / "rows.jsonl", rows)
    trained = train_classifier(labelled, str(tmp_path / "model"), embedding_field="vector")
    assert trained.evaluation.accuracy >= 0.95
    assert "2 texts have no vector and were left out." in trained.notes
    card = (tmp_path / "model/README.md").read_text()
    assert "the vectors in the column `vector`, of 24 numbers" in card
    assert 'embedding_field="vector")' in card
    shuffled = pa.Table.from_pylist(random.Random(2).sample(rows, len(rows)))
    pq.write_table(shuffled, tmp_path / "rows.parquet", row_group_size=70)
    train_classifier(str(tmp_path / "rows.parquet"), str(tmp_path / "other"), embedding_field="vector")
    assert files_of(tmp_path / "model").keys() == files_of(tmp_path / "other").keys()
    assert (tmp_path / "model/model.safetensors").read_bytes() == (tmp_path / "other/model.safetensors").read_bytes()
    found = evaluate_classifier(str(tmp_path / "model"), labelled)
    assert found.rows == 297
    assert found.accuracy is not None
    assert found.accuracy >= 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "embeddings"}, "give embedding_field"),
        ({"kind": "fasttext", "embedding_field": "vector"}, "is for texts"),
        ({"embedding_field": "nothing"}, "there is no column 'nothing'"),
        ({"embedding_field": "text"}, "not vectors"),
        ({"embedding_field": "mixed"}, "different lengths: 2 and 3"),
    ],
)
def test_embeddings_that_cannot_be_learnt_from_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    rows = [{**row, "mixed": [1.0] * (2 + n % 2)} for n, row in enumerate(with_vectors(rows_of(20)))]
    with pytest.raises((PlanError, ColumnError, DataError), match=message):
        train_classifier(write(tmp_path / "rows.jsonl", rows), str(tmp_path / "model"), **settings)


@pytest.mark.parametrize("kind", ["linear", "fasttext"])
def test_the_same_rows_in_any_order_and_format_give_the_same_bytes(labelled: str, tmp_path: Path, kind: str) -> None:
    rows = rows_of(300)
    random.Random(1).shuffle(rows)
    other = tmp_path / "labelled.parquet"
    pq.write_table(pa.Table.from_pylist(rows), other, row_group_size=37)
    for name, source in (("one", labelled), ("two", str(other))):
        train_classifier(source, str(tmp_path / name / "model"), kind=kind, features=SMALL)
    assert files_of(tmp_path / "one" / "model") == files_of(tmp_path / "two" / "model")


def test_another_seed_splits_otherwise(labelled: str, tmp_path: Path) -> None:
    hashes = set()
    for seed in (0, 1):
        train_classifier(labelled, str(tmp_path / "model"), seed=seed, features=SMALL)
        hashes.add((tmp_path / "model" / "model.safetensors").read_bytes())
    assert len(hashes) == 2


def test_probabilities_are_calibrated_on_texts_of_their_own(tmp_path: Path) -> None:
    chance = random.Random(0)
    rows = [
        {**row, "label": row["label"] if chance.random() < 0.8 else "food" if row["label"] == "code" else "code"}
        for row in rows_of(2000)
    ]
    trained = train_classifier(write(tmp_path / "noisy.jsonl", rows), str(tmp_path / "model"), features=SMALL)
    assert trained.training["texts"] == {"training": 1400, "calibration": 200, "test": 400}
    assert trained.evaluation.calibration_error is not None
    assert trained.evaluation.calibration_error < 0.08
    assert trained.evaluation.calibration_error < trained.training["calibration_error_before"]


def test_the_card_and_the_figures_are_written(labelled: str, tmp_path: Path) -> None:
    trained = train_classifier(labelled, str(tmp_path / "model"), features=SMALL)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for part in ("# model", "`code`, `food`", "| food | 30 | 1.000 | 1.000 | 1.000 |", "### Calibration", "### Least"):
        assert part in card
    found = json.loads((tmp_path / "model" / "evaluation.json").read_text(encoding="utf-8"))
    assert found == json.loads(json.dumps(trained.evaluation.to_dict()))
    assert len(found["doubtful"]) == 20
    scores = [each["score"] for each in found["doubtful"]]
    assert scores == sorted(scores)


def test_rows_without_text_or_label_are_left_out_and_counted(tmp_path: Path) -> None:
    extra = [
        {"text": None, "label": "food"},
        {"text": " \n", "label": "food"},
        {"text": "a", "label": None},
        {"text": "b"},
    ]
    rows = [*rows_of(60), *extra, rows_of(60)[0]]
    trained = train_classifier(write(tmp_path / "a.jsonl", rows), str(tmp_path / "model"), features=SMALL)
    assert (trained.counts.rows, trained.counts.without_text, trained.counts.without_label) == (65, 2, 2)
    assert trained.notes[:3] == [
        "1 rows repeat the text and label of another; each counts once.",
        "2 rows have no text and were left out.",
        "2 rows have no label and were left out.",
    ]


def test_labels_may_be_numbers_or_truth_values(tmp_path: Path) -> None:
    for column, labels in (("stars", ["0", "5"]), ("good", ["false", "true"])):
        rows = [{**row, "good": row["stars"] > 2} for row in rows_of(60)]
        source = write(tmp_path / "a.jsonl", rows)
        trained = train_classifier(source, str(tmp_path / "model"), label_field=column, features=SMALL)
        assert trained.labels == labels


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([{"text": 1, "label": "a"}], {}, "works on text, but the column 'text' holds int64"),
        ([{"text": "a", "stars": 1}], {"label_where": "stars >= 'b'"}, "'stars' holds int64, which cannot be compared"),
        (["nothing"], {}, "1 more could not be read"),
    ],
)
def test_rows_that_nothing_can_be_learned_from(
    tmp_path: Path, rows: list[Any], settings: dict[str, Any], message: str
) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        train_classifier(str(tmp_path / "rows.jsonl"), str(tmp_path / "model"), **settings)


def test_a_condition_on_a_null_gives_no_label(tmp_path: Path) -> None:
    rows = [
        {"text": f"text {n} {'good' if n % 2 else 'bad'}", "stars": None if n % 3 == 0 else n % 2} for n in range(90)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trained = train_classifier(str(tmp_path / "rows.jsonl"), str(tmp_path / "model"), label_where="stars >= 1")
    assert trained.training["rows_by_label"] == {"false": 30, "true": 30}


def test_labels_by_a_condition(labelled: str, tmp_path: Path) -> None:
    trained = train_classifier(labelled, str(tmp_path / "model"), label_where="stars >= 4", features=SMALL)
    assert trained.labels == ["false", "true"]
    assert trained.evaluation.accuracy == 1.0


def test_texts_like_some_seeds_are_found(tmp_path: Path) -> None:
    food = [row for row in rows_of(200, seed=1) if row["label"] == "food"]
    seeds, others = write(tmp_path / "seeds.jsonl", food[:60]), write(tmp_path / "others.jsonl", rows_of(400, seed=2))
    trained = train_classifier(others, str(tmp_path / "model"), seeds=seeds, features=SMALL)
    assert trained.labels == ["other", "seed"]
    shares = load_text_classifier(str(tmp_path / "model")).probabilities(pa.array(["bake fry stir", "debug the stack"]))
    assert shares[0, 1] > 5 * shares[1, 1]


def test_a_label_that_is_never_predicted_counts_in_the_mean_of_f1() -> None:
    """Issue 13: it was left out, so that a classifier that always says the same had a macro F1 of nearly 1."""
    always_a = np.array([[0.9, 0.1, 0.0]] * 10)
    found = evaluate(["a", "b", "c"], always_a, np.array([0] * 9 + [1], np.int32), pa.array(["text"] * 10))
    assert [figures.f1 for figures in found.by_label] == [18 / 19, 0.0, None]
    assert found.macro_f1 == 9 / 19


def test_a_sample_of_a_larger_input_keeps_rare_labels(tmp_path: Path) -> None:
    rare = [{"text": f"rare thing number {n}", "label": "rare"} for n in range(12)]
    source = write(tmp_path / "a.jsonl", [*rows_of(3000), *rare])
    trained = train_classifier(source, str(tmp_path / "model"), max_rows=300, features=SMALL)
    assert trained.training["rows_by_label"] == {"code": 1500, "food": 1500, "rare": 12}
    assert sum(trained.training["texts"].values()) < 400
    assert "rare" in trained.labels
    assert trained.notes[0].startswith("Trained on a sample: ")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": f"text {n}", "label": "a"} for n in range(50)], "every text has the label 'a'"),
        ([{"text": f"{t} {n}", "label": t} for t, k in (("a", 50), ("b", 4)) for n in range(k)], "but 'b' has 4"),
        ([{"text": "", "label": "a"}, {"text": "x", "label": None}], "of 2 rows, 1 have no text and 1 no label"),
        ([{"text": f"t{n}", "label": str(n)} for n in range(1200)], "more than 1,000 different labels"),
        ([{"text": "a", "label": ["x"]}], "a label is a text, a number or a truth value"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        train_classifier(write(tmp_path / "a.jsonl", rows), str(tmp_path / "model"), features=SMALL)
    assert not (tmp_path / "model").exists()


def test_a_missing_column_is_named(labelled: str, tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"no column 'lable', only .*Did you mean 'label'"):
        train_classifier(labelled, str(tmp_path / "model"), label_field="lable")


def test_a_folder_that_is_no_model_is_not_overwritten(labelled: str, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "notes.txt").write_text("keep me", encoding="utf-8")
    with pytest.raises(PlanError, match="mine is there and does not hold a tamis text classifier"):
        train_classifier(labelled, str(target), features=SMALL)
    assert files_of(target) == {"notes.txt": b"keep me"}


def test_an_earlier_model_is_replaced_only_by_a_whole_one(labelled: str, tmp_path: Path) -> None:
    target = tmp_path / "model"
    train_classifier(labelled, str(target), features=SMALL)
    before = files_of(target)
    with pytest.raises(DataError):
        train_classifier(write(tmp_path / "one.jsonl", rows_of(2)), str(target), features=SMALL)
    assert files_of(target) == before
    train_classifier(labelled, str(target), features=Features(bits=12))
    assert files_of(target) != before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_labels_that_the_model_has_not_seen_are_counted_apart(labelled: str, tmp_path: Path) -> None:
    train_classifier(labelled, str(tmp_path / "model"), features=SMALL)
    other = [*rows_of(40, seed=5), {"text": "sing a song", "label": "music"}]
    found = evaluate_classifier(str(tmp_path / "model"), write(tmp_path / "other.jsonl", other))
    assert (found.rows, found.accuracy, found.unseen) == (40, 1.0, {"music": 1})
    with pytest.raises(DataError, match="none of its rows has a text and one of the model's labels"):
        evaluate_classifier(str(tmp_path / "model"), write(tmp_path / "none.jsonl", other[-1:]))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_model_is_refused(labelled: str, tmp_path: Path, name: str) -> None:
    train_classifier(labelled, str(tmp_path / "model"), features=SMALL)
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ModelError, match="damaged"):
        load_text_classifier(str(tmp_path / "model"))


def test_a_model_of_a_later_version_is_refused(labelled: str, tmp_path: Path) -> None:
    train_classifier(labelled, str(tmp_path / "model"), features=SMALL)
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}), encoding="utf-8")
    with pytest.raises(ModelError, match="has version 2; this tamis reads version 1"):
        load_text_classifier(str(tmp_path / "model"))


def test_texts_that_are_nearly_equal_are_in_one_part() -> None:
    texts = [row["text"] for row in rows_of(200)]
    near = [f"{text.upper()}!" for text in texts]
    whole = pa.array([*texts, *near])
    groups = groups_of(whole)
    assert groups.tolist() == [*range(200)] * 2
    labels = np.zeros(400, np.int32)
    parts = parts_of(groups, content_keys(whole, 0), labels, 0.1, 0.2)
    assert (parts[:200] == parts[200:]).all()
    assert [int((parts == part).sum()) for part in (TRAIN, CALIBRATION, TEST)] == [280, 40, 80]


def test_a_label_whose_texts_are_all_alike_is_only_trained_on(tmp_path: Path) -> None:
    alike = [
        {"text": f"one two three four five six seven eight nine ten{'.' * n}", "label": "alike"} for n in range(20)
    ]
    source = write(tmp_path / "a.jsonl", [*rows_of(100), *alike])
    trained = train_classifier(source, str(tmp_path / "model"), features=SMALL)
    assert [figures.rows for figures in trained.evaluation.by_label if figures.label == "alike"] == [0]
    assert "The test has no text with 'alike': too few texts differ enough to be split." in trained.notes


def test_a_sample_does_not_depend_on_the_order_of_the_texts() -> None:
    texts = pa.array([f"text {n}" for n in range(5000)])
    labels = np.arange(5000, dtype=np.int32) % 3
    samples = []
    for order in (np.arange(5000), np.random.default_rng(0).permutation(5000)):
        sample = TextSample(max_rows=700, max_bytes=5000, seed=3, of_each_label=10)
        for begin in range(0, 5000, 250):
            some = order[begin : begin + 250]
            sample.add(texts.take(pa.array(some)), labels[some])
        samples.append(sample.finish())
    assert samples[0][0].equals(samples[1][0])
    assert 550 < len(samples[0][0]) < 650  # by the limit of bytes
    assert samples[0][1].tolist() == samples[1][1].tolist()


def test_the_command(labelled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "model")
    command = ["train-classifier", labelled, "--output", output, "--text", "text", "--label", "label", "--bits", "14"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for part in ("210 for training, 30 for calibration, 60 for the test", "accuracy 1.000", "food", "model/README.md"):
        assert part in shown
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["code", "food"]


def test_wrong_usage_of_the_command(labelled: str, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, message in (
        (["--label", "label", "--seeds", "x"], "not allowed with"),
        (["--test-share", "0.9"], "expected a number from 0 to 0.8"),
    ):
        with pytest.raises(SystemExit):
            main(["train-classifier", labelled, *wrong])
        assert message in capsys.readouterr().err
    assert main(["train-classifier", labelled, "--bits", "40"]) == 1
    assert "bits=40: must be from 10 to 28" in capsys.readouterr().err
