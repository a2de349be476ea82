"""Every stage that makes a batch of a batch returns that batch when it is called directly."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import tamis.stages.mixing
import tamis.stages.text
from tamis.errors import PlanError
from tamis.models.text_classifier import Features
from tamis.stages.base import ProcessingStage
from tamis.stages.mixing import Resample, Sample, ScoreBuckets, ScoreEnsemble
from tamis.stages.text import modifiers, sets
from tamis.stages.text.columns import AddId, DropColumns, RenameColumns, SelectColumns
from tamis.stages.text.decontamination import Benchmark, Decontaminate
from tamis.stages.text.filters import Filter, Score, ScoreFilter, WordCountFilter
from tamis.stages.text.language import AddLanguage
from tamis.stages.text.segments import DocumentJoiner, DocumentSplitter
from tamis.stages.text.sequence_packing import PackSequences
from tamis.stages.text.statistics import TextStatistics
from tamis.stages.text.tokenization import TokenCount, Tokenize
from tamis.stages.text.trained_classifier import TrainedClassifier
from tamis.tasks import DocumentBatch
from tamis.training import train_classifier

TEXTS = ["one two three", "", "a b\n\nc d", "MENU", "what is the capital of France"]


def batch() -> DocumentBatch:
    columns = {
        "text": TEXTS,
        "id": [7, 7, 8, 9, 9],
        "segment_id": [1, 0, 0, 0, 1],
        "score": [1.0, 0.0, None, 2.0, 3.0],
        "input_ids": [[1, 2, 3], [], [4, 5], [6], [7, 8]],
    }
    return DocumentBatch(columns, dataset_name="d").named("x")


def tokenizer(folder: Path) -> str:
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def benchmark(folder: Path) -> Benchmark:
    (folder / "quiz.jsonl").write_text(json.dumps({"text": "What is the capital?"}))
    return Benchmark(str(folder / "quiz.jsonl"))


def classifier(folder: Path) -> str:
    rows = [{"text": f"{word} {n}", "label": word} for word in ("one", "menu") for n in range(20)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train_classifier(str(folder / "rows.jsonl"), str(folder / "model"), features=Features(bits=10))
    return str(folder / "model")


CASES: dict[Any, tuple[Callable[[Path], Any], list[str]]] = {
    Score: (lambda _: Score(WordCountFilter(), "words"), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    Filter: (lambda _: Filter(WordCountFilter(min_words=2), "score"), ["x:3", "x:4"]),
    ScoreFilter: (lambda _: ScoreFilter(WordCountFilter(min_words=3)), ["x:0", "x:2", "x:4"]),
    modifiers.Modify: (lambda _: modifiers.Modify(str.upper), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    modifiers.CleanLines: (
        lambda _: modifiers.CleanLines(modifiers.RefinedWebLineCleaner(), max_removed_words_ratio=0.5),
        ["x:0", "x:1", "x:2", "x:4"],
    ),
    AddLanguage: (lambda _: AddLanguage(), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    SelectColumns: (lambda _: SelectColumns(["id"]), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    DropColumns: (lambda _: DropColumns(["text"]), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    RenameColumns: (lambda _: RenameColumns({"text": "content"}), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    AddId: (lambda _: AddId("doc"), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    DocumentSplitter: (lambda _: DocumentSplitter("\n\n"), ["x:0", "x:1", "x:2/0", "x:2/1", "x:3", "x:4"]),
    DocumentJoiner: (lambda _: DocumentJoiner(), ["x:1+1", "x:2", "x:3+1"]),
    TokenCount: (lambda folder: TokenCount(tokenizer(folder)), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    Tokenize: (lambda folder: Tokenize(tokenizer(folder)), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    PackSequences: (lambda _: PackSequences(4), ["x:0+1", "x:2/1+2"]),
    Decontaminate: (
        lambda folder: Decontaminate({"quiz": benchmark(folder)}, n=4, report_dir=str(folder / "report")),
        ["x:0", "x:1", "x:2", "x:3"],
    ),
    Sample: (lambda _: Sample(fraction=0.5), ["x:1", "x:3"]),
    ScoreEnsemble: (lambda _: ScoreEnsemble(["score", "id"]), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    ScoreBuckets: (lambda _: ScoreBuckets("score", 2, edges=[1.5]), ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    TrainedClassifier: (
        lambda folder: TrainedClassifier(classifier(folder), min_score={"one": 0.0}),
        ["x:0", "x:2", "x:3", "x:4"],
    ),
    Resample: (lambda _: Resample("id", {"7": 2}, otherwise=0), ["x:0", "x:1", "x:0", "x:1"]),
    sets.GopherQuality: (lambda _: sets.GopherQuality(), []),
    sets.GopherRepetition: (lambda _: sets.GopherRepetition(), []),
    sets.C4Quality: (lambda _: sets.C4Quality(), []),
    sets.FineWebQuality: (lambda _: sets.FineWebQuality(), []),
    sets.DclmHeuristics: (lambda _: sets.DclmHeuristics(), []),
    sets.EnglishHeuristics: (lambda _: sets.EnglishHeuristics(), []),
    sets.NonEnglishHeuristics: (lambda _: sets.NonEnglishHeuristics(), []),
}

NEED_THE_WHOLE_INPUT = {"Blend", "GlobalShuffle"}
NEED_A_MODEL = ("models", "embedders", "classifiers", "causal_perplexity")
"""Modules of stages that need the weights of a model; they have tests of their own."""


@pytest.mark.parametrize("stage", CASES, ids=lambda stage: stage.__name__)
def test_process_returns_the_batch_with_the_names_of_its_rows(stage: Any, tmp_path: Path) -> None:
    make, names = CASES[stage]
    given = batch()
    made = make(tmp_path).process(given)
    assert isinstance(made, DocumentBatch)
    assert made.names is not None
    assert made.names.to_texts() == names
    assert len(made.to_pandas()) == made.num_items == len(names)
    assert made.dataset_name == "d"
    assert (given.num_items, given["text"].to_pylist(), given.dropped) == (5, TEXTS, [])


@pytest.mark.parametrize("stage", CASES, ids=lambda stage: stage.__name__)
def test_a_batch_without_rows_gives_one_without_rows(stage: Any, tmp_path: Path) -> None:
    make, _ = CASES[stage]
    made = make(tmp_path).process(batch().select([]))
    assert isinstance(made, DocumentBatch)
    assert len(made.to_pandas()) == 0


def test_a_summary_is_a_batch_too() -> None:
    assert TextStatistics(languages=False).process(batch()).num_items > 0


def test_a_sample_that_needs_the_whole_input_says_so() -> None:
    with pytest.raises(PlanError, match="run the stage in a pipeline"):
        Sample(rows=2).process(batch())


def test_every_stage_from_batch_to_batch_is_tested_here() -> None:
    found = set()
    for package in (tamis.stages.text, tamis.stages.mixing):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.split(".")[3] in NEED_A_MODEL:
                continue
            for name, cls in vars(importlib.import_module(module.name)).items():
                is_stage = inspect.isclass(cls) and issubclass(cls, ProcessingStage) and not name.startswith("_")
                is_here = is_stage and cls.__module__ == module.name and name in _public(module.name)
                if is_here and _maps_batches(cls):
                    found.add(cls)
    assert {cls.__name__ for cls in found} == {
        *(cls.__name__ for cls in CASES),
        *NEED_THE_WHOLE_INPUT,
        "TextStatistics",
    }


def _public(module: str) -> list[str]:
    return list(getattr(importlib.import_module(module), "__all__", []))


def _maps_batches(cls: type) -> bool:
    arguments = [args for base in cls.__mro__ for b in getattr(base, "__orig_bases__", ()) if (args := get_args(b))]
    return arguments[0] == (DocumentBatch, DocumentBatch)
