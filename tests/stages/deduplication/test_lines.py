"""Lines that occur too often are removed: the same ones, whoever does it."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, PlanError
from tamis.kernels.line_pieces import cut, lengths, with_text, without
from tamis.kernels.utf8 import Utf8
from tamis.stages.deduplication.lines import LineDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

TEXTS = st.lists(
    st.lists(st.sampled_from(["\n", "\n\n", "a", "b", " ", "é", "\u3000", "\r"]), max_size=12).map("".join), max_size=6
)


def split(text: str, unit: str) -> list[tuple[str, str]]:
    """The lines or paragraphs of a text, each with what follows it."""
    parts = re.split("(\n)" if unit == "line" else "(\n{2,})", text)
    return list(zip(parts[::2], [*parts[1::2], ""], strict=True))


def joined(pieces: list[tuple[str, str]]) -> str:
    return "".join(piece + after for piece, after in pieces[:-1]) + (pieces[-1][0] if pieces else "")


def plain(texts: list[str | None], stage: LineDeduplication) -> list[str | None]:
    """What is left of each text; "dropped" for one of which nothing is left."""

    def key(piece: str) -> str:
        return " ".join(piece.lower().split()) if stage.normalize_text else piece

    def is_compared(piece: str) -> bool:
        return bool(piece.strip()) and len(piece) >= stage.min_length

    pieces = [split(text or "", stage.unit) for text in texts]
    totals = Counter(key(piece) for some in pieces for piece, _ in some if is_compared(piece))
    seen: Counter[str] = Counter()
    results: list[str | None] = []
    for text, some in zip(texts, pieces, strict=True):
        left = []
        for piece, after in some:
            if is_compared(piece):
                seen[key(piece)] += 1
                count = seen[key(piece)] if stage.keep == "first" else totals[key(piece)]
                if count > stage.max_occurrences:
                    continue
            left.append((piece, after))
        is_dropped = len(left) < len(some) and not joined(left).strip()
        results.append("dropped" if is_dropped else text if text is None else joined(left))
    return results


@examples(100)
@given(TEXTS, st.sampled_from(["line", "paragraph"]), st.randoms(use_true_random=False))
def test_texts_are_cut_and_put_together_again(texts: list[str], unit: Any, chance: random.Random) -> None:
    block = Utf8.from_arrow(pa.array(texts, pa.large_string()))
    pieces = cut(block, unit)
    expected = [piece for text in texts for piece, _ in split(text, unit)]
    data = block.data.tobytes()
    assert [data[a:b].decode() for a, b in zip(pieces.starts, pieces.ends, strict=True)] == expected
    assert lengths(block, pieces).tolist() == [len(piece) for piece in expected]
    assert with_text(block, pieces).tolist() == [bool(piece.strip()) for piece in expected]
    removed = [chance.random() < 0.4 for _ in expected]
    gone = iter(removed)
    left = [joined([part for part in split(text, unit) if not next(gone)]) for text in texts]
    assert without(block, pieces, pa.array(removed).to_numpy(zero_copy_only=False)).to_arrow().to_pylist() == left


def stages() -> list[LineDeduplication]:
    return [
        LineDeduplication(),
        LineDeduplication(max_occurrences=2, partitions=1),
        LineDeduplication(keep="none"),
        LineDeduplication(keep="none", max_occurrences=3, unit="paragraph"),
        LineDeduplication(unit="paragraph", normalize_text=True, partitions=3),
        LineDeduplication(min_length=6, normalize_text=True),
    ]


def texts(seed: int = 0, count: int = 60) -> list[str | None]:
    chance = random.Random(seed)
    lines = ["Home", "home ", "Log in", "Ünïcode", "日本", "", " ", "x", *(f"Line {n} is here." for n in range(60))]
    made: list[str | None] = [
        "".join(
            chance.choice(lines) + chance.choice(("\n", "\n", "\n\n", "\n\n\n")) for _ in range(chance.randint(0, 8))
        )
        for _ in range(count)
    ]
    return [*made[:20], None, "", "\n \n", "Home", *made[20:], None, "Home\n\nHome"]


@pytest.mark.parametrize("stage", stages(), ids=str)
def test_lines_are_removed_as_the_definition_says(stage: LineDeduplication) -> None:
    given_texts = texts()
    batches = [
        DocumentBatch({"text": given_texts[at : at + 7], "id": list(range(at, len(given_texts)))[:7]})
        for at in range(0, len(given_texts), 7)
    ]
    expected = plain(given_texts, stage)
    run = run_stage(stage, batches, workers=2)
    assert {row["id"]: row["text"] for row in run} == {n: t for n, t in enumerate(expected) if t != "dropped"}
    assert {row.reason for row in run.dropped} <= {f"no {stage.unit} left after deduplication"}
    assert len(run.dropped) == expected.count("dropped")
    originals = {n: text for n, text in enumerate(given_texts) if expected[n] == "dropped"}
    assert {dropped.row["id"]: dropped.row["text"] for dropped in run.dropped} == originals


def test_little_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.deduplication.memory.LEAST_MEMORY", 1)
    test_lines_are_removed_as_the_definition_says(LineDeduplication(memory_budget=4000, partitions=2))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_the_column_keeps_its_type(kind: pa.DataType) -> None:
    values = pa.array(["a\nb", "b\nc", None])
    column = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    run = run_stage(LineDeduplication(), DocumentBatch(pa.table({"text": column})))
    assert [row["text"] for row in run] == ["a\nb", "c", None]
    assert {task.data.schema.field("text").type for task in run.tasks} == {kind}


def test_what_was_removed_is_counted() -> None:
    run = run_stage(LineDeduplication(counts_field="removed"), [{"text": t} for t in ("a\nbcd\na", "bcd\nx\nbcd", "y")])
    assert [(row["text"], row["removed"]) for row in run] == [("a\nbcd", 1), ("x", 2), ("y", 0)]
    (last,) = [stage for stage in run.stages if stage.name == "LineDeduplication"]
    assert last.custom["removed_lines"] == 3
    assert last.custom["removed_bytes"] == len("\na") + len("bcd\n") + len("\nbcd")


@pytest.mark.parametrize("blocksize", ["500", "1MB"])
def test_how_the_input_is_cut_does_not_matter(blocksize: str, tmp_path: Path) -> None:
    source, given_texts = tmp_path / "in.jsonl", texts(3, 50)
    source.write_text("".join(json.dumps({"text": t, "id": n}) + "\n" for n, t in enumerate(given_texts)))
    stages = [JsonlReader(str(source), blocksize=blocksize), LineDeduplication(), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("lines", stages).run(LocalExecutor(2), run_dir=str(tmp_path / "run"), progress="off")
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()]
    expected = plain(given_texts, LineDeduplication())
    assert {row["id"]: row["text"] for row in rows} == {n: t for n, t in enumerate(expected) if t != "dropped"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"unit": "word"}, "unit='word': must be 'line' or 'paragraph'"),
        ({"keep": "last"}, "keep='last': must be 'first' or 'none'"),
        ({"max_occurrences": 0}, "max_occurrences=0: must be at least 1"),
        ({"partitions": 0}, "partitions=0: must be at least 1"),
        ({"memory_budget": "1MB"}, "memory_budget='1MB'.*: must be at least 64 MiB"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        LineDeduplication(**parameters)


def test_a_column_that_is_there_is_not_replaced_by_the_counts(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1}\n')
    reader = JsonlReader(str(tmp_path / "in.jsonl"), fields=["text", "id"])
    with pytest.raises(ColumnError, match="would replace the column 'id', which is already there"):
        Pipeline("lines", [reader, LineDeduplication(counts_field="id")]).plan()


@pytest.mark.parametrize(("column", "message"), [("txt", "Did you mean 'text'"), ("id", "works on text")])
def test_a_column_that_is_not_there_or_holds_no_text_is_refused(column: str, message: str, tmp_path: Path) -> None:
    reader = JsonlReader(str(tmp_path / "in.jsonl"), fields=["text", "id"], types={"id": "int64"})
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1}\n')
    with pytest.raises(ColumnError, match=message):
        Pipeline("lines", [reader, LineDeduplication(column)]).plan()


def test_a_run_with_other_settings_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a\\nb"}\n{"text": "A\\nc"}\n')

    def rows(stage: LineDeduplication) -> list[str]:
        stages = [JsonlReader(str(tmp_path / "in.jsonl")), stage, JsonlWriter(str(tmp_path / "out"), mode="overwrite")]
        Pipeline("lines", stages).run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off")
        return [json.loads(line)["text"] for file in (tmp_path / "out").glob("*.jsonl") for line in file.open()]

    assert rows(LineDeduplication()) == ["a\nb", "A\nc"]
    assert rows(LineDeduplication(normalize_text=True)) == ["a\nb", "c"]


DYING = """
import os, sys
from pathlib import Path
from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.bloom import BloomDeduplication
from tamis.stages.deduplication.lines import LineDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter

class DieOnce(ProcessingStage):
    makes_rows = "same"
    def __init__(self, name, task):
        self.name, self.task, self.seen = name, task, 0
    def process(self, batch):
        self.seen += 1
        flag = Path(sys.argv[1]) / self.name
        if self.seen == self.task and sys.argv[2] == "dies" and not flag.exists():
            flag.touch()
            os._exit(9)
        return batch

work = sys.argv[1]
bloom = BloomDeduplication(expected_documents=30, false_positive_rate=0.3, partitions=2)
stages = [JsonlReader(work + "/in.jsonl", blocksize=400), DieOnce("before", 4), bloom, DieOnce("between", 3)]
stages += [LineDeduplication(partitions=2), DieOnce("after", 2), JsonlWriter(work + "/" + sys.argv[2])]
Pipeline("p", stages).run(LocalExecutor(0), run_dir=work + "/run-" + sys.argv[2], progress="off")
"""


def test_a_run_that_is_killed_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """Killed while rows are hashed, between both stages, and while lines are removed."""
    rows = "".join(json.dumps({"text": text, "id": n}) + "\n" for n, text in enumerate(texts(1, 60)))
    (tmp_path / "in.jsonl").write_text(rows, encoding="utf-8")

    def start(kind: str) -> int:
        command = [sys.executable, "-c", DYING, str(tmp_path), kind]
        return subprocess.run(command, check=False, capture_output=True).returncode

    assert start("lives") == 0
    assert [start("dies") for _ in range(4)] == [9, 9, 9, 0]
    lived, died = (
        {path.name: path.read_bytes() for path in (tmp_path / kind).glob("*.jsonl")} for kind in ("lives", "dies")
    )
    assert lived
    assert died == lived
