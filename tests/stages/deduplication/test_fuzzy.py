"""Fuzzy deduplication inside a pipeline: the same rows are removed, whoever does it and in whatever order."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError, PlanError
from tamis.kernels.minhash import MinHash, band_hashes
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.deduplication.fuzzy.groups import MemberFiles
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader
from tamis.testing import run_stage

WORDS = [
    f"{a}{b}" for a in ("wo", "la", "ti", "nu", "ge", "so", "ra", "ki") for b in ("rd", "ne", "mper", "lf", "st", "ck")
]


def document(rng: random.Random, words: int = 60) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def edited(rng: random.Random, text: str, edits: int) -> str:
    words = text.split()
    for _ in range(edits):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


def corpus(seed: int = 0, groups: int = 25) -> list[dict[str, Any]]:
    """Rows of groups of similar texts, shuffled."""
    rng = random.Random(seed)
    rows = []
    for group in range(groups):
        text = document(rng)
        for copy in range(rng.choice((1, 1, 2, 3, 5))):
            rows.append({"text": edited(rng, text, copy), "score": rng.random(), "group": group})
    rng.shuffle(rows)
    return [{**row, "id": number} for number, row in enumerate(rows)]


def groups_by_definition(texts: Sequence[str | None]) -> list[set[int]]:
    """Rows that share a bucket, directly or through others."""
    present = [n for n, text in enumerate(texts) if text is not None]
    buckets = band_hashes(MinHash().signatures(pa.array([texts[n] for n in present])), 20).tolist()
    groups: list[set[int]] = [{n} for n in present]
    seen: dict[int, set[int]] = {}
    for group, row in zip(list(groups), buckets, strict=True):
        merged = group
        for bucket in row:
            other = seen.get(bucket, merged)
            if other is not merged:
                merged |= other
                groups.remove(other)
                seen = {key: merged if held is other else held for key, held in seen.items()}
        seen.update(dict.fromkeys(row, merged))
    return groups


def write(folder: Path, rows: Sequence[dict[str, Any]], files: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(files):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[number::files]), encoding="utf-8")
        paths.append(path)
    return paths


def kept_ids(folder: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for file in folder.glob("*.jsonl") for line in file.open())


def deduplicated(inputs: Any, output: Path, stage: Any, workers: int = 0, **reader: Any) -> Any:
    pipeline = Pipeline("fuzzy", [JsonlReader(inputs, **reader), stage, JsonlWriter(str(output))])
    return pipeline.run(LocalExecutor(workers=workers), run_dir=output.parent / f"{output.name}.run", progress="off")


def test_one_document_of_each_group_is_kept() -> None:
    rows = corpus()
    expected = {min(group) for group in groups_by_definition([row["text"] for row in rows])}
    run = run_stage(FuzzyDeduplication(), rows)
    assert {row["id"] for row in run} == expected
    assert 0 < len(run.dropped) < len(rows)
    assert {dropped.reason for dropped in run.dropped} == {"near duplicate"}


def test_any_number_of_workers_any_blocks_and_any_order_of_files(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", corpus(1), 6)
    deduplicated(paths, tmp_path / "one", FuzzyDeduplication())
    deduplicated(paths[::-1], tmp_path / "two", FuzzyDeduplication(partitions=3), workers=4, files_per_partition=2)
    deduplicated(str(tmp_path / "in"), tmp_path / "three", FuzzyDeduplication(), workers=2, blocksize="2KiB")
    kept = kept_ids(tmp_path / "one")
    assert kept == kept_ids(tmp_path / "two") == kept_ids(tmp_path / "three")
    assert len(kept) < 70


def test_verified_pairs_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", corpus(2), 5)
    stage = FuzzyDeduplication(verify=0.85, num_bands=40, minhashes_per_band=4)
    deduplicated(paths, tmp_path / "one", stage)
    deduplicated(paths[::-1], tmp_path / "two", stage, workers=3, files_per_partition=1)
    assert kept_ids(tmp_path / "one") == kept_ids(tmp_path / "two")


@pytest.mark.parametrize("keep", ["longest", "highest:score", "lowest:score"])
def test_which_document_stays(keep: str) -> None:
    rows = corpus(3)
    by_rule = {
        "longest": lambda n: (-len(rows[n]["text"].encode()), n),
        "highest:score": lambda n: (-rows[n]["score"], n),
        "lowest:score": lambda n: (rows[n]["score"], n),
    }
    expected = {min(group, key=by_rule[keep]) for group in groups_by_definition([row["text"] for row in rows])}
    assert {row["id"] for row in run_stage(FuzzyDeduplication(keep=keep), rows)} == expected


def test_documents_without_text_are_not_duplicates() -> None:
    rows = [{"text": None}, {"text": None}, {"text": "the same"}, {"text": "the same"}, {"text": ""}, {"text": ""}]
    assert [row["text"] for row in run_stage(FuzzyDeduplication(), rows)] == [None, None, "the same", ""]
    assert len(run_stage(FuzzyDeduplication(), [{"text": None}])) == 1


def test_the_ledger_names_what_is_kept_and_how_similar_it_is(tmp_path: Path) -> None:
    text = document(random.Random(5), 200)
    rows = [{"text": text, "id": 0}, {"text": text, "id": 1}, {"text": text + " more", "id": 2}]
    (path,) = write(tmp_path / "in", rows, 1)
    result = deduplicated(path, tmp_path / "out", FuzzyDeduplication())
    drops = result.drops().to_pylist()
    assert [(d["score_text"], d["reason"]) for d in drops] == [(f"{path}:0", "near duplicate")] * 2
    assert drops[0]["score"] == 1.0
    assert 0.9 < drops[1]["score"] <= 1


def test_verification_separates_what_only_shares_a_bucket(tmp_path: Path) -> None:
    rng = random.Random(6)
    text = document(rng, 100)
    rows = [{"text": text}, {"text": edited(rng, text, 2)}, {"text": edited(rng, text, 25)}]
    rows = [{**row, "id": number} for number, row in enumerate(rows)]
    loose = {"num_bands": 100, "minhashes_per_band": 1}
    assert len(run_stage(FuzzyDeduplication(**loose), rows)) == 1
    kept = [row["id"] for row in run_stage(FuzzyDeduplication(**loose, verify=0.6), rows)]
    similarity = MinHash().jaccard(pa.array([text, text]), pa.array([rows[1]["text"], rows[2]["text"]]))
    assert similarity[0] > 0.6 > similarity[1]
    assert kept == [0, 2]


def test_a_bucket_of_thousands_and_little_memory(tmp_path: Path) -> None:
    rng = random.Random(7)
    rows = [{"text": "page not found, please try again later", "id": n} for n in range(3000)]
    rows += [{"text": document(rng, 20), "id": n} for n in range(3000, 3200)]
    paths = write(tmp_path / "in", rows, 4)
    deduplicated(paths, tmp_path / "out", FuzzyDeduplication(partitions=1))
    assert kept_ids(tmp_path / "out") == [0, *range(3000, 3200)]


def test_partitions_that_do_not_fit_are_worked_on_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(tmp_path / "in", corpus(8, groups=60), 4)
    deduplicated(paths, tmp_path / "whole", FuzzyDeduplication(partitions=2, verify=0.7))
    monkeypatch.setattr("tamis.stages.deduplication.memory.LEAST_MEMORY", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # the budget is shared by as many tasks
    result = deduplicated(
        paths, tmp_path / "parts", FuzzyDeduplication(partitions=2, verify=0.7, memory_budget="16KiB")
    )
    assert kept_ids(tmp_path / "whole") == kept_ids(tmp_path / "parts")
    for step in ("edges", "compare", "choose"):
        assert result.stage(f"FuzzyDeduplication ({step})").custom["parts"] > 2


@pytest.mark.parametrize("verify", [None, 0.7])
def test_a_bucket_that_does_not_fit_is_worked_on_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: float | None
) -> None:
    """Most documents are in the same buckets: some with equal texts, some with texts of their own."""
    rng = random.Random(25)
    text, other = document(rng, 100), document(rng, 100)
    texts = [text] * 150 + [f"{text} {n}" for n in range(60)] + [f"{other} {n % 20}" for n in range(60)]
    texts += [document(rng) for _ in range(30)]
    rng.shuffle(texts)
    paths = write(tmp_path / "in", [{"text": text, "id": number} for number, text in enumerate(texts)], 3)
    stage = FuzzyDeduplication(partitions=2, verify=verify, keep="longest")
    deduplicated(paths, tmp_path / "whole", stage)
    monkeypatch.setattr("tamis.stages.deduplication.memory.LEAST_MEMORY", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("tamis.stages.deduplication.fuzzy.verify._COMPARED_AT_ONCE", 4000)
    monkeypatch.setattr("tamis.stages.deduplication.fuzzy.verify._WRITTEN_AT_ONCE", 50)
    monkeypatch.setattr("tamis.stages.deduplication.fuzzy.buckets._SIGNED_AT_ONCE", 7)
    stage = FuzzyDeduplication(partitions=2, verify=verify, keep="longest", memory_budget="16KiB")
    deduplicated(paths, tmp_path / "pieces", stage)
    assert kept_ids(tmp_path / "whole") == kept_ids(tmp_path / "pieces")
    assert len(kept_ids(tmp_path / "whole")) == 32


def test_incremental_runs_remove_the_same_rows_as_one_run(tmp_path: Path) -> None:
    rows = corpus(9, groups=40)
    paths = write(tmp_path / "in", rows, 3)
    deduplicated(paths, tmp_path / "all", FuzzyDeduplication())
    kept = []
    for number, path in enumerate(paths):
        output = tmp_path / f"part-{number}"
        deduplicated(path, output, FuzzyDeduplication(index=str(tmp_path / "index")))
        kept += kept_ids(output)
    assert sorted(kept) == kept_ids(tmp_path / "all")


def test_the_same_rows_again_are_not_duplicates_of_themselves(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", corpus(10), 2)
    index = str(tmp_path / "index")
    deduplicated(paths, tmp_path / "first", FuzzyDeduplication(index=index))
    files = sorted(path.name for path in (tmp_path / "index" / "buckets").iterdir())
    deduplicated(paths, tmp_path / "again", FuzzyDeduplication(index=index))
    deduplicated(paths, tmp_path / "blocks", FuzzyDeduplication(index=index), blocksize="2KiB")
    assert kept_ids(tmp_path / "first") == kept_ids(tmp_path / "again") == kept_ids(tmp_path / "blocks")
    assert files == sorted(p.name for p in (tmp_path / "index" / "buckets").iterdir())[: len(files)]


def test_a_path_may_have_other_rows_every_day(tmp_path: Path) -> None:
    """Neither do new rows replace signatures of earlier ones, nor are they taken for the same."""
    rng = random.Random(20)
    first, second, third = ([{"text": document(rng), "id": 100 * day + n} for n in range(8)] for day in range(3))
    second[3]["text"] = first[5]["text"]
    second[5]["text"] = second[4]["text"]
    third[7]["text"] = first[0]["text"]
    kept = []
    for day, rows in enumerate((first, second, third)):
        path = tmp_path / "incoming.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        stages = [ParquetReader(str(path)), FuzzyDeduplication(index=str(tmp_path / "index"))]
        output = tmp_path / f"day-{day}"
        Pipeline("daily", [*stages, JsonlWriter(str(output))]).run(run_dir=tmp_path / f"run-{day}", progress="off")
        kept.append(kept_ids(output))
    assert kept[0] == list(range(8))
    assert kept[1] == [100, 101, 102, 104, 106, 107]
    assert kept[2] == list(range(200, 207))


def test_an_earlier_run_again_does_not_lose_to_later_ones(tmp_path: Path) -> None:
    rows = corpus(21, groups=30)
    paths = write(tmp_path / "in", rows, 2)
    index = str(tmp_path / "index")
    for name, path in zip("ab", paths, strict=True):
        deduplicated(path, tmp_path / name, FuzzyDeduplication(index=index, keep="longest"))
    deduplicated(paths[0], tmp_path / "again", FuzzyDeduplication(index=index, keep="longest"))
    deduplicated(paths[0], tmp_path / "in blocks", FuzzyDeduplication(index=index, keep="longest"), blocksize="2KiB")
    assert kept_ids(tmp_path / "a") == kept_ids(tmp_path / "again") == kept_ids(tmp_path / "in blocks")
    assert len(kept_ids(tmp_path / "b")) < len(kept_ids(tmp_path / "a"))


def test_ranks_count_beside_an_index_without_ranks(tmp_path: Path) -> None:
    """Lengths that differ by one byte: as floats they would be equal."""
    rng = random.Random(22)
    text = document(rng, 300)
    earlier, other = [{"text": "x" + document(rng), "id": 0}] * 2, document(rng)
    (path,) = write(tmp_path / "earlier", [*earlier, {"text": other, "id": 1}], 1)
    index = str(tmp_path / "index")
    deduplicated(path, tmp_path / "a", FuzzyDeduplication(index=index, partitions=1))
    rows = [{"text": text, "id": 2}, {"text": text + "!", "id": 3}, {"text": other, "id": 4}]
    (path,) = write(tmp_path / "new", rows, 1)
    deduplicated(path, tmp_path / "b", FuzzyDeduplication(index=index, keep="longest", partitions=1))
    assert kept_ids(tmp_path / "b") == [3]


def test_files_that_another_run_adds_to_the_index_do_not_move_documents(tmp_path: Path) -> None:
    """The other run adds files whose names come first, between the steps of this one."""
    rows = corpus(23, groups=30)
    paths = write(tmp_path / "in", rows, 3)
    indexes = [str(tmp_path / name) for name in ("index", "alone")]
    for index in indexes:
        output = tmp_path / f"{Path(index).name}-0"
        deduplicated(paths[0], output, FuzzyDeduplication(index=index), blocksize="2KiB")

    def interfering(self: MemberFiles, scratch: str) -> Any:
        for kind in ("buckets", "documents"):
            folder = tmp_path / "index" / kind
            last = max(folder.glob("*.task"))
            shutil.copy(last, folder / f"000000.{last.name.partition('.')[2]}")
        return splits(self, scratch)

    splits = MemberFiles.splits
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemberFiles, "splits", interfering)
        deduplicated(paths[1], tmp_path / "interfered", FuzzyDeduplication(index=indexes[0]), blocksize="2KiB")
    deduplicated(paths[1], tmp_path / "undisturbed", FuzzyDeduplication(index=indexes[1]), blocksize="2KiB")
    assert kept_ids(tmp_path / "interfered") == kept_ids(tmp_path / "undisturbed")


def test_an_index_that_must_be_there_is_missed(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(12), 1)
    stage = FuzzyDeduplication(index=str(tmp_path / "typo"), update_index=False)
    with pytest.raises(PlanError, match=r"there is no index in .*typo"):
        Pipeline("p", [JsonlReader(path), stage]).plan()


@pytest.mark.parametrize("settings", ["missing", "[]", "{"])
def test_an_index_without_its_settings_is_refused(tmp_path: Path, settings: str) -> None:
    (path,) = write(tmp_path / "in", corpus(12), 1)
    stage, place = FuzzyDeduplication(index=str(tmp_path / "index")), tmp_path / "index" / "index.json"
    deduplicated(path, tmp_path / "out", stage)
    place.unlink()
    if settings != "missing":
        place.write_text(settings)
    with pytest.raises(PlanError, match="Make the index again"):
        Pipeline("p", [JsonlReader(path), stage]).plan()


def test_an_index_with_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(12), 1)
    stage = FuzzyDeduplication(index=str(tmp_path / "index"))
    deduplicated(path, tmp_path / "out", stage)
    (file,) = (tmp_path / "index" / "buckets").glob("*.task")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="the index is damaged"):
        deduplicated(path, tmp_path / "again", stage)


def test_pairs_and_signatures_are_not_counted_as_output(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(26), 1)
    pairs = FuzzyDeduplication(verify=0.5, pairs_path=str(tmp_path / "pairs"))
    for name, stage in {"pairs": pairs, "index": FuzzyDeduplication(index=str(tmp_path / "signatures"))}.items():
        for _ in range(2):  # the second time, what was done is recalled
            summary = deduplicated(path, tmp_path / f"of-{name}", stage).summary
            assert (summary.output_files, summary.output_rows) == (1, len(kept_ids(tmp_path / f"of-{name}")))


def test_pairs_of_an_earlier_run_are_replaced(tmp_path: Path) -> None:
    stage = FuzzyDeduplication(verify=0.5, pairs_path=str(tmp_path / "pairs"))
    (path,) = write(tmp_path / "in", corpus(24, groups=40), 1)
    deduplicated(path, tmp_path / "many", stage)
    (tmp_path / "pairs" / "pairs-of-mine.parquet").touch()
    (path,) = write(tmp_path / "in", corpus(24, groups=3), 1)
    few = deduplicated(path, tmp_path / "few", stage).duplicates()
    (tmp_path / "pairs" / "pairs-of-mine.parquet").unlink()
    assert few.rethreshold(0.5).removed == few.removed > 0


def test_one_set_against_another(tmp_path: Path) -> None:
    rng = random.Random(11)
    exam, lesson = document(rng), document(rng)
    (test,) = write(tmp_path / "test", [{"text": exam, "id": 0}], 1)
    train = [{"text": edited(rng, exam, 1), "id": 1}, {"text": lesson, "id": 2}, {"text": lesson, "id": 3}]
    (path,) = write(tmp_path / "train", train, 1)
    index = str(tmp_path / "index")
    deduplicated(test, tmp_path / "a", FuzzyDeduplication(index=index))
    held = sorted((tmp_path / "index").rglob("*.task"))
    deduplicated(path, tmp_path / "b", FuzzyDeduplication(index=index, update_index=False, within=False))
    assert kept_ids(tmp_path / "b") == [2, 3]
    assert held == sorted((tmp_path / "index").rglob("*.task"))


def test_an_index_with_other_settings_is_refused(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(12), 1)
    deduplicated(path, tmp_path / "out", FuzzyDeduplication(index=str(tmp_path / "index")))
    with pytest.raises(PlanError, match=r"ngram=5 \(index: 24\)"):
        Pipeline("p", [JsonlReader(path), FuzzyDeduplication(index=str(tmp_path / "index"), char_ngrams=5)]).plan()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_bands": 0}, "num_bands=0"),
        ({"verify": 1.5}, "verify=1.5"),
        ({"verify": 0.5, "index": "x"}, "verify and index"),
        ({"pairs_path": "x"}, "set verify"),
        ({"within": False}, "set index"),
        ({"memory_budget": "1MiB"}, "64 MiB"),
        ({"keep": "longst"}, "longest"),
        ({"scheme": "quick"}, "scheme"),
        ({"normalize": ["lowr"]}, "lower"),
    ],
)
def test_bad_parameters_are_refused_at_once(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((PlanError, ValueError), match=message):
        FuzzyDeduplication(**parameters)


def test_a_missing_column_is_refused_by_the_plan(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(13), 1)
    with pytest.raises(ColumnError, match="txt"):
        Pipeline("p", [JsonlReader(path), FuzzyDeduplication(text_field="txt")]).plan()


def test_exact_duplicates_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    rows = [{"text": f"text {n % 7}", "id": n} for n in range(60)]
    paths = write(tmp_path / "in", rows, 5)
    deduplicated(paths, tmp_path / "one", ExactDeduplication())
    deduplicated(paths[::-1], tmp_path / "two", ExactDeduplication(), workers=2, files_per_partition=2)
    assert kept_ids(tmp_path / "one") == kept_ids(tmp_path / "two")
    assert len(kept_ids(tmp_path / "one")) == 7


def test_signatures_on_a_gpu_fall_back_to_cpus_with_a_note(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", corpus(14), 1)
    pipeline = Pipeline("p", [JsonlReader(path), FuzzyDeduplication(gpus=0.5), JsonlWriter(str(tmp_path / "gpu"))])
    note = "FuzzyDeduplication (hash): there is no GPU: it runs on CPUs"
    assert (note in str(pipeline.plan())) != LocalExecutor().has_gpus()
    pipeline.run(run_dir=tmp_path / "run", progress="off")
    deduplicated(path, tmp_path / "cpu", FuzzyDeduplication())
    assert kept_ids(tmp_path / "gpu") == kept_ids(tmp_path / "cpu")
