"""The plan as plain values: what the picture of the flow is drawn from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tamis.pipeline import Pipeline
from tamis.plan import make_plan
from tamis.plan.outline import outline
from tamis.stages.base import ProcessingStage
from tamis.stages.flow import Dropped, Route
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch


@dataclass
class Ask(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage with an address and a long list."""

    address: str
    words: list[str]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def test_branches_are_edges_with_the_names_of_ports(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "lang": "de"}\n')
    plan = Pipeline(
        "p",
        stages=[
            JsonlReader(str(tmp_path / "a.jsonl")),
            Dropped(ScoreFilter(WordCountFilter(min_words=2)), [JsonlWriter(str(tmp_path / "dropped"))]),
            Route(
                "lang", {"de": [JsonlWriter(str(tmp_path / "de"))]}, otherwise=[JsonlWriter(str(tmp_path / "other"))]
            ),
        ],
    ).plan()
    made = json.loads(json.dumps(outline(plan)))
    names = [v["name"] for v in made["vertices"]]
    edges = {
        v["name"]: {port: names[to] if to >= 0 else "end" for port, to in v["edges"].items()} for v in made["vertices"]
    }
    quality = "word_count"
    assert edges[quality]["dropped"].endswith("JsonlWriter")
    assert {"de", "otherwise"} <= set(edges["Route"])
    assert sum(v["sink"] for v in made["vertices"]) == 3
    assert {v["group"] for v in made["vertices"]} == set(range(len(made["groups"])))


def test_parameters_are_short_and_without_secrets() -> None:
    stage = Ask("https://user:secret@example.org/api", ["x"] * 10_000)
    shown = json.dumps(outline(make_plan("p", [stage], initial=DocumentBatch)))
    assert "example.org" in shown
    assert "secret" not in shown
    assert len(shown) < 5_000
