"""What a finished run leaves in its output directories: ``RUN.json`` and a data card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.pipeline.recipe import load_recipe
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Tee
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter, TextReader
from tamis.stages.io.card_files import CARD_MARK
from tamis.stages.text.filters import ScoreFilter, WordCountFilter

HOSTILE = "en\n---\nlicense: evil\n- x: |y` <script>alert(1)</script> [a](javascript:b) {{ z }} \\| \u202e"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [
        {"text": "word " * (i % 10), "lang": ("en", "de", "no")[i % 3], "license": ("MIT", "mine")[i % 2]}
        for i in range(60)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(folder: Path, stages: list[ProcessingStage[Any, Any]], name: str = "cards", **settings: Any) -> RunResult:
    run_dir = folder / f"run-{len(list(folder.iterdir()))}"
    return Pipeline(name, "How it was made.", stages).run(
        LocalExecutor(workers=0), run_dir=str(run_dir), progress="off", **settings
    )


def front(card: str) -> dict[str, Any]:
    """The front matter, found as the hub finds it."""
    found = re.match(r"^(\s*---[\r\n]+)([\S\s]*?)([\r\n]+---(\r\n|\n|$))", card)
    assert found is not None
    values = yaml.safe_load(found[2])
    assert isinstance(values, dict)
    return values


def test_a_card_says_what_the_output_is(tmp_path: Path, source: Path) -> None:
    stages = [JsonlReader(str(source)), ScoreFilter(WordCountFilter(min_words=3)), ExactDeduplication()]
    result = run(tmp_path, [*stages, JsonlWriter(str(tmp_path / "out"))])
    card = (tmp_path / "out" / "README.md").read_text()
    values = front(card)
    assert sorted(values["language"]) == ["de", "en", "no"]
    assert set(values["license"]) <= {"mit", "other"}
    assert values["size_categories"] == ["n<1K"]
    assert values["configs"] == [{"config_name": "default", "data_files": [{"split": "train", "path": "part-*.jsonl"}]}]
    assert "| read | 60 |" in card
    assert "| `ExactDeduplication` | 42 | 35 | 83.3% |" in card
    assert "WordCountFilter: {min_words: 3}" in card
    facts = json.loads((tmp_path / "out" / "RUN.json").read_text())
    assert facts["output"]["rows"] == result.rows == 7
    assert facts["output"]["bytes"] == (tmp_path / "out" / "part-000000.jsonl").stat().st_size
    assert facts["run_dir"] == result.run_dir
    assert facts["deduplication"] == [{"stage": "ExactDeduplication", "rows": 42, "duplicates": 35, "share": 0.833333}]
    assert sum(facts["languages"]["rows_by_value"].values()) == 7
    assert {s["name"]: s.get("dropped") for s in facts["stages"]}["ExactDeduplication"] == {"exact duplicate": 35}


def test_the_recipe_of_a_card_makes_the_pipeline_again(tmp_path: Path, source: Path) -> None:
    run(tmp_path, [JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])
    facts = json.loads((tmp_path / "out" / "RUN.json").read_text())
    assert load_recipe(facts["recipe"]).to_pipeline().to_recipe() == facts["recipe"]


def test_hostile_values_stay_values(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "a", "language": HOSTILE, "license": HOSTILE}) + "\n")
    stages = [JsonlReader(str(tmp_path / "in.jsonl")), JsonlWriter(str(tmp_path / "out")).with_(name=HOSTILE)]
    run(tmp_path, stages, name=HOSTILE)
    card = (tmp_path / "out" / "README.md").read_text()
    values = front(card)
    assert "language" not in values
    assert "license" not in values  # one value that is too long to be the name of a licence
    assert set(values) == {"pretty_name", "size_categories", "tags", "configs"}
    outside = re.sub(r"^(`{3,}).*?^\1$", "", card.split("\n---\n", 1)[1], flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"`[^`\n]*`", "", outside)
    assert "<script" not in outside
    assert "](" not in outside
    assert "\u202e" not in card
    for line in outside.splitlines():
        assert not line.startswith("|") or len(re.findall(r"(?<!\\)\|", line)) in (3, 4, 5)
    assert json.loads((tmp_path / "out" / "RUN.json").read_text())["pipeline"] == HOSTILE


def test_the_hub_library_reads_the_card(tmp_path: Path, source: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    run(tmp_path, [JsonlReader(str(source)), ParquetWriter(str(tmp_path / "out"))])
    card = hub.DatasetCard.load(str(tmp_path / "out" / "README.md"))
    assert card.data.size_categories == ["n<1K"]
    assert card.data.to_dict()["dataset_info"]["features"][0]["name"] == "text"


@pytest.mark.parametrize("place", ["local", "memory"])
def test_readers_do_not_take_a_card_for_data(tmp_path: Path, source: Path, place: str) -> None:
    out = str(tmp_path / "out") if place == "local" else f"memory://cards-{tmp_path.name}"
    run(tmp_path, [JsonlReader(str(source)), JsonlWriter(out, partition_by="lang")])
    fs, inner = fsspec.core.url_to_fs(out)
    assert fs.exists(f"{inner}/RUN.json")
    assert front(fs.cat_file(f"{inner}/README.md").decode())["configs"][0]["data_files"][0]["path"] == "*/part-*.jsonl"
    for address in (out, f"{out}/*", f"{out}/**/*.json*"):
        assert sum(task.num_items for task in run(tmp_path, [JsonlReader(address)])) == 60
    reader = TextReader(out, file_extensions=[".md", ".json", ".jsonl"])
    assert [f.path.rsplit("/", 1)[1] for f in reader._partitioning().files()] == ["part-000000.jsonl"] * 3


def test_files_of_these_names_that_a_user_wrote_are_data(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "RUN.json").write_text('{"text": "a"}\n')
    (tmp_path / "in" / "README.md").write_text("mine")
    assert sum(task.num_items for task in run(tmp_path, [JsonlReader(str(tmp_path / "in"))])) == 1
    assert len(list(TextReader(str(tmp_path / "in"), file_extensions=[".md"])._partitioning().files())) == 1


@pytest.mark.parametrize("mode", ["error", "overwrite", "append", "ignore"])
def test_a_run_replaces_its_own_card_and_no_other(tmp_path: Path, source: Path, mode: str) -> None:
    out = tmp_path / "out"
    stages = [JsonlReader(str(source)), JsonlWriter(str(out), mode=mode)]
    first = run(tmp_path, stages)
    before = json.loads((out / "RUN.json").read_text())["run"]
    assert CARD_MARK in (out / "README.md").read_text()
    (out / "README.md").write_text("my own words\n")
    second = run(tmp_path, stages)
    facts = json.loads((out / "RUN.json").read_text())
    assert (out / "README.md").read_text() == "my own words\n"
    assert facts["run"] != before
    assert first.run_dir != second.run_dir == facts["run_dir"]
    earlier = [entry["run"] for entry in facts.get("earlier_runs", ())]
    assert earlier == ([before] if mode in ("append", "ignore") else [])


def test_a_card_alone_does_not_make_a_directory_foreign(tmp_path: Path, source: Path) -> None:
    run(tmp_path, [JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])
    (tmp_path / "out" / "part-000000.jsonl").unlink()
    run(tmp_path, [JsonlReader(str(source)), ParquetWriter(str(tmp_path / "out"))])
    with pytest.raises(PlanError, match="already holds files"):
        run(tmp_path, [JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])


def test_two_writers_of_one_directory_share_a_card(tmp_path: Path, source: Path) -> None:
    aside = ParquetWriter(str(tmp_path / "out"), filename="copy-{order}").with_(name="aside")
    run(tmp_path, [JsonlReader(str(source)), Tee([aside]), JsonlWriter(str(tmp_path / "out"))])
    configs = front((tmp_path / "out" / "README.md").read_text())["configs"]
    paths = [config["data_files"][0]["path"] for config in configs]
    assert sorted(paths) == ["copy-*.parquet", "part-*.jsonl"]
    assert len({config["config_name"] for config in configs}) == 2
    assert sum(task.num_items for task in run(tmp_path, [ParquetReader(str(tmp_path / "out"))])) == 60


def test_types_of_parquet_files_are_in_the_card(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "n": pa.array([1], pa.int16()), "ids": [[1, 2]]})
    pq.write_table(table, tmp_path / "in.parquet")
    run(tmp_path, [ParquetReader(str(tmp_path / "in.parquet")), ParquetWriter(str(tmp_path / "out"))])
    features = front((tmp_path / "out" / "README.md").read_text())["dataset_info"]["features"]
    assert [(f["name"], f.get("dtype") or f.get("sequence")) for f in features][1:] == [
        ("n", "int16"),
        ("ids", "int64"),
    ]


def test_no_secret_is_in_a_card(tmp_path: Path, source: Path) -> None:
    options = {"auto_mkdir": True, "secret_key": "hunter2"}
    stages = [JsonlReader(str(source)), JsonlWriter(f"file://{tmp_path}/out", storage_options=options)]
    run(tmp_path, stages)
    for name in ("README.md", "RUN.json"):
        assert "hunter2" not in (tmp_path / "out" / name).read_text()


def test_cards_can_be_switched_off(tmp_path: Path, source: Path) -> None:
    run(tmp_path, [JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))], data_card=False)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [".tamis.json", "part-000000.jsonl"]
    recipe = f"stages:\n  - JsonlReader: {{file_paths: {source}}}\nrun: {{data_card: false}}\n"
    assert load_recipe(recipe).run.data_card is False


def test_the_mark_is_a_comment(tmp_path: Path, source: Path) -> None:
    run(tmp_path, [JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])
    assert (tmp_path / "out" / "README.md").read_text().split("\n")[1] == CARD_MARK
    assert yaml.safe_load(CARD_MARK) is None
