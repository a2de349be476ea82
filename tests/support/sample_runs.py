"""Runs for tests of pages: real ones, and what a run over time looks like."""

from __future__ import annotations

import json
import math
import os
import random
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.flow import Dropped, Route
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import NonAlphaNumericFilter, ScoreFilter, UrlsFilter, WordCountFilter

EVIL = '<script>document.title="broken"</script><img src=x onerror=\'document.title="broken"\'>"&'
ANSI = "\x1b[2J\x1b[31m\x07\u202e"

_WORDS = ["the", "a", "sieve", "of", "data", "and", "training", "text", "with", "model", "page", "is", "was", "cook"]


def write_corpus(folder: Path, files: int = 4, rows: int = 60, evil: bool = False) -> Path:
    """JSON lines with short, long and odd texts."""
    chance = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        lines = []
        for row in range(rows):
            text = " ".join(chance.choices(_WORDS, k=int(chance.lognormvariate(3, 0.9)) + 1))
            if row % 11 == 0:
                text += " http://example.org/a/very/long/address" * 2
            if row % 13 == 0:
                text = "### $$$ %%% !!! " * 4 + text
            if evil and row % 7 == 0:
                text = f"{EVIL} {ANSI} {row}"
            lines.append(json.dumps({"text": text, "lang": ("en", "de", "fr")[row % 3]}))
        if number == 0:
            lines.insert(5, '{"text": "cut off')
        (folder / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def branched_run(folder: Path, run_dir: Path, evil: bool = False, **changes: Any) -> RunResult:
    """A run with filters, dropped rows that are written elsewhere, and a branch for each language."""
    data = write_corpus(folder / "data", evil=evil, **changes)
    out = folder / "out"
    stages = [
        JsonlReader(str(data), on_error="quarantine", blocksize="4KiB"),
        ScoreFilter(WordCountFilter(min_words=10), score_field="words"),
        Dropped(
            ScoreFilter(NonAlphaNumericFilter(max_non_alpha_numeric_to_text_ratio=0.25)),
            [JsonlWriter(str(out / "odd"))],
        ),
        Route(
            "lang",
            {"de": [ScoreFilter(UrlsFilter(max_url_to_text_ratio=0.1)), JsonlWriter(str(out / "de"))], "fr": []},
            otherwise=[JsonlWriter(str(out / "rest"))],
        ),
        JsonlWriter(str(out / "fr")),
    ]
    name = f"branches {EVIL}" if evil else "branches"
    pipeline = Pipeline(name, description="Filters, and a branch for each language.", stages=stages)
    return pipeline.run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")


def duplicates_run(run_dir: Path, folder: Path) -> RunResult:
    """A run that removes duplicates, whose texts, differences and file names are hostile."""
    chance = random.Random(8)
    texts = [" ".join(f"word{chance.randrange(10**5)}" for _ in range(120)) for _ in range(12)]
    for name, suffixes in ((f"web {EVIL.replace('/', '-')}", ("", f" {EVIL} {ANSI}")), ("books", (" and so on",))):
        (folder / "data" / name).mkdir(parents=True)
        lines = [json.dumps({"text": text + suffix}) for text in texts for suffix in suffixes]
        (folder / "data" / name / "a.jsonl").write_text("\n".join(lines) + "\n")
    stages = [
        JsonlReader(str(folder / "data"), files_per_partition=1),
        FuzzyDeduplication(partitions=2, name=f"similar {EVIL}"),
        JsonlWriter(str(folder / "out")),
    ]
    return Pipeline("duplicates", stages=stages).run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")


def write_metrics(run_dir: Path, names: list[str], seconds: int = 60, ended: bool = True, slow: int = 1) -> None:
    """A ``metrics.jsonl`` as a run of several workers writes it, with a long last task if it has ended."""
    began = datetime.now(UTC) - timedelta(seconds=seconds)
    lines: list[dict[str, Any]] = [{"start": 1, "time": began.isoformat()}]
    for second in range(seconds + 1):
        done = second / seconds
        progress = min(done / 0.75, 1.0) if ended else 0.6 * done
        stages = {}
        for place, name in enumerate(names):
            rows = int(100_000 * progress * 0.9**place + 400 * math.sin(second / 3 + place) ** 2)
            stages[name] = {
                "tasks_in": int(200 * progress) + (done == 1),
                "tasks_out": int(200 * progress),
                "rows_in": rows,
                "rows_out": int(rows * 0.9),
                "bytes_in": rows * 900,
                "bytes_out": rows * 800,
                "seconds": second * (3.0 if place == slow else 0.4),
                "queue_s": second * (20.0 if place == slow else 0.5),
                "workers": 4 if place == slow else 1,
                "dropped": int(rows * 0.1),
                "quarantined": 0,
                "retries": 0,
            }
        is_last = ended and second == seconds
        lines.append(
            {
                "t": float(second),
                "time": (began + timedelta(seconds=second)).isoformat(),
                "state": "done" if is_last else "running",
                "fraction": progress,
                "held_bytes": int(4e8 * abs(math.sin(second / 9)) + 1e8),
                "budget_bytes": 10**9,
                "running": 0 if is_last else 8 if progress < 1 else 1,
                "workers": 8,
                "memory_bytes": int(1.5e9 + 2e7 * second),
                "stages": stages,
            }
        )
    Path(run_dir, "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def running_run(run_dir: Path, names: list[str], seconds: int = 60) -> None:
    """The directory of a run that is going on, by this very process."""
    run_dir.mkdir(parents=True)
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")
    lock = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    (run_dir / "run.lock").write_text(json.dumps(lock))
    (run_dir / "ledger").mkdir()
    vertices = [
        {"name": name, "stage": "Stage", "module": "m", "parameters": {}, "edges": {"out": place + 1}, "group": 0}
        for place, name in enumerate(names)
    ]
    vertices[-1]["edges"] = {"out": -1}
    (run_dir / "plan.json").write_text(json.dumps({"name": "going on", "vertices": vertices, "groups": []}))
    write_metrics(run_dir, names, seconds, ended=False)


def many_stages_run(run_dir: Path, folder: Path, count: int = 40) -> RunResult:
    """A run of many filters."""
    data = write_corpus(folder / "data")
    filters = [
        ScoreFilter(WordCountFilter(min_words=number)).with_(name=f"at_least_{number}_words_and_a_rather_long_name")
        for number in range(1, count - 1)
    ]
    stages = [JsonlReader(str(data), on_error="quarantine"), *filters, JsonlWriter(str(folder / "out"))]
    return Pipeline("many stages", stages=stages).run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")


def failed_run(run_dir: Path, folder: Path) -> None:
    """A run that an error ends."""
    from tamis.errors import TamisError
    from tamis.stages.function_decorators import processing_stage
    from tamis.tasks import DocumentBatch

    @processing_stage(name="fail")
    def fail(task: DocumentBatch) -> DocumentBatch:
        raise RuntimeError("the model server answered 503")

    data = write_corpus(folder / "data", files=1)
    stages = [JsonlReader(str(data), on_error="quarantine"), fail, JsonlWriter(str(folder / "out"))]
    try:
        Pipeline("that fails", stages=stages).run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")
    except TamisError:
        return
    raise AssertionError("it must fail")
