"""Small runs with duplicates that were planted, for tests of what is told about them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.runs.result import RunResult
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader
from tests.support.row_runs import run_stages, write_rows


def texts_of(count: int, words: int = 80, seed: int = 7) -> list[str]:
    """Texts that have nothing in common."""
    chosen = random.Random(seed)
    return [" ".join(f"w{chosen.randrange(10**6)}" for _ in range(words)) for _ in range(count)]


def planted() -> dict[str, list[dict[str, Any]]]:
    """Rows by file. Ten groups of two (a, b), five of four (b, c), and rows without a duplicate."""
    texts = texts_of(40)
    rows: dict[str, list[dict[str, Any]]] = {"web/a": [], "web/b": [], "books/c": []}
    for n, text in enumerate(texts):
        rows["web/a" if n < 20 else "web/b"].append({"id": n, "text": text})
    for n in range(10):
        rows["web/b"].append({"id": 100 + n, "text": f"{texts[n]} with one <i>more</i> sentence"})
    for n in range(5):
        rows["books/c"] += [{"id": 200 + 10 * n + k, "text": f"{texts[20 + n]} {'and ' * k}so on"} for k in range(3)]
    return rows


def run_planted(
    folder: Path,
    rows: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    *,
    suffix: str = ".jsonl",
    settings: Mapping[str, Any] | None = None,
    **run: Any,
) -> RunResult:
    """Deduplicate the rows fuzzily; input, output and run are below the folder."""
    for name, some in (planted() if rows is None else rows).items():
        write_rows(folder / "in" / f"{name}{suffix}", some)
    reader = ParquetReader if suffix == ".parquet" else JsonlReader
    stages = [
        reader(str(folder / "in"), files_per_partition=1),
        FuzzyDeduplication(**{"partitions": 2, **(settings or {})}),
        JsonlWriter(str(folder / "out")),
    ]
    return run_stages(folder, stages, **run)
