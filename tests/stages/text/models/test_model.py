"""A model stage of a user's: written in a few lines, run by hand and in pipelines, with every kind of text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_encoders import TEXTS, save_model  # noqa: E402

from tamis import LocalExecutor, Pipeline, Resources  # noqa: E402
from tamis.errors import ModelError  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.models.token_batches import TokenBatch  # noqa: E402
from tamis.plan import make_plan  # noqa: E402
from tamis.stages.io import JsonlReader, ParquetWriter  # noqa: E402
from tamis.stages.text.models.model import ModelStage  # noqa: E402
from tamis.stages.text.models.tokenizer import TokenizerStage  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402


@dataclass(repr=False)
class Spread(ModelStage):
    """How far the states of a text's tokens are from their mean; texts of fewer tokens than a limit are left out."""

    min_tokens: int = 0

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["spread", "tokens"]

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        hidden = self.encoder(tokens)
        distances = (hidden - tokens.mean(hidden)[tokens.row_of]).norm(dim=1, keepdim=True)
        return {"spread": tokens.mean(distances)[:, 0], "tokens": tokens.offsets.diff()}

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        made = super().finish(batch, columns)
        return made.keep(pc.greater_equal(columns["tokens"], self.min_tokens), reason="too short")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("model")))


def test_it_is_called_by_hand(folder: str) -> None:
    stage = Spread(folder, max_seq_length=16)
    made = stage.process(DocumentBatch({"text": ["a", None, "a " * 40]}))
    assert made.get_columns() == ["text", "spread", "tokens"]
    assert made["tokens"].to_pylist() == [3, 16]  # and the null is left out: it has no number of tokens
    assert made["spread"].null_count == 0
    assert stage.take_metrics() == {"tokens": 19, "truncated_texts": 1}


def test_rows_that_finish_leaves_out_are_dropped_with_the_reason(folder: str) -> None:
    made = Spread(folder, min_tokens=10).process(DocumentBatch({"text": TEXTS}))
    (drop,) = made.dropped
    assert drop.reason == "too short"
    assert made.num_items + len(drop.rows) == len(TEXTS)


def test_without_a_gpu_both_halves_share_a_worker_and_with_one_they_do_not(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stages = [JsonlReader(str(tmp_path)), Spread(folder), ParquetWriter(str(tmp_path / "out"))]

    def gpus_of_groups(has_gpus: bool) -> list[float]:
        plan = make_plan("p", stages, has_gpus=lambda: has_gpus)
        names = {vertex.index: vertex.stage.name for vertex in plan.vertices}
        return [g.resources.gpus for g in plan.groups if any("Spread" in names[number] for number in g.vertices)]

    assert gpus_of_groups(has_gpus=False) == [0]
    assert gpus_of_groups(has_gpus=True) == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_gives_what_a_call_by_hand_gives(folder: str, tmp_path: Path, workers: int) -> None:
    (tmp_path / "in").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "in" / f"{number}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    stages = [JsonlReader(str(tmp_path / "in")), Spread(folder), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("spread", stages=stages).run(
        LocalExecutor(workers), run_dir=str(tmp_path / "run"), progress="off"
    )
    assert result.summary.output_rows == len(TEXTS)
    rows = pq.read_table([str(path) for path in (tmp_path / "out").glob("*.parquet")]).to_pylist()
    expected = Spread(folder).process(DocumentBatch({"text": TEXTS})).data.to_pylist()
    found = sorted(rows, key=lambda row: (row["text"], row["spread"]))
    for one, other in zip(found, sorted(expected, key=lambda row: (row["text"], row["spread"])), strict=True):
        assert one == {**other, "spread": pytest.approx(other["spread"], abs=1e-4)}


def test_tasks_that_are_given_together_share_batches(folder: str) -> None:
    seen: list[int] = []

    @dataclass(repr=False)
    class Counted(Spread):
        def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
            seen.append(tokens.rows)
            return super().infer(tokens)

    stage = Counted(folder, batch_tokens=10_000)
    tokenizer, inference = stage.unfold()
    tasks = [next(iter([tokenizer.process(DocumentBatch({"text": [text]}))])) for text in TEXTS]
    made = list(inference.without_gpu().process_batch(tasks))
    assert seen == [len(TEXTS)]
    assert [task["text"].to_pylist() for task in made] == [[text] for text in TEXTS]


def test_settings_are_for_the_half_with_the_model(folder: str) -> None:
    changed = Spread(folder).with_(resources=Resources(gpus=0.25), num_workers=3, name="mine")
    tokenizer, inference = changed.unfold()
    assert (tokenizer.resources.gpus, inference.resources.gpus, inference.num_workers()) == (0, 0.25, 3)
    assert (tokenizer.name, inference.name, tokenizer.num_workers()) == ("mine tokens", "mine", None)
    slow = Spread(folder).with_({"Spread tokens": {"num_workers": 2}}).unfold()
    assert [stage.num_workers() for stage in slow] == [2, None]


def test_tokens_stay_or_are_there_already(folder: str) -> None:
    kept = Spread(folder, keep_tokens=True).process(DocumentBatch({"text": TEXTS}))
    assert kept.get_columns() == ["text", "input_ids", "spread", "tokens"]
    again = Spread(folder, use_existing_tokens=True).process(
        kept.with_same_rows(kept.data.drop_columns(["spread", "tokens"]))
    )
    assert again.get_columns() == ["text", "spread", "tokens"]
    assert again["spread"].to_pylist() == pytest.approx(kept["spread"].to_pylist(), abs=1e-5)


def test_texts_are_cut_to_what_the_model_has_positions_for(folder: str) -> None:
    with pytest.raises(ModelError, match=r"has positions for 80: give max_seq_length=80"):
        Spread(folder, max_seq_length=200).process(DocumentBatch({"text": ["a " * 300]}))
    made = Spread(folder).process(DocumentBatch({"text": ["a " * 300]}))
    assert made["tokens"].to_pylist() == [64]  # what the tokenizer names as the limit


def test_max_chars_cuts_texts_before_they_become_tokens(folder: str) -> None:
    stage = TokenizerStage(folder, max_chars=1)
    made = stage.process(DocumentBatch({"text": ["a", "a b c", None]}))
    first, second, third = made["input_ids"].to_pylist()
    assert first == second
    assert third is None
    assert stage.take_metrics() == {"tokens": 6, "truncated_texts": 1}


def test_a_model_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        Spread(str(tmp_path / "none")),
        ParquetWriter(str(tmp_path / "o")),
    ]
    with pytest.raises(Exception, match="there is no model folder"):
        Pipeline("p", stages=stages).run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off")


def test_code_of_a_model_does_not_run(folder: str, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    (tmp_path / "own" / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    stage = Spread(Model(str(tmp_path / "own")))
    with pytest.raises(ModelError, match="cannot be loaded"):
        stage.process(DocumentBatch({"text": ["a"]}))
    assert not (tmp_path / "ran").exists()


def test_tokens_of_users_are_written_nowhere() -> None:
    stage = Spread(Model("organisation/name", token="secret"))
    assert stage.parameters()["model"] == Model("organisation/name")
    assert "secret" not in Pipeline("p", stages=[stage]).describe() + repr(stage.unfold())
    assert stage.tokenizer().hf_token == "secret"
