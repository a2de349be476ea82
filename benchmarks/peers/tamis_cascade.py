"""tamis in the form of its peers' workers: the 28-filter English cascade, or modifiers.

    python tamis_cascade.py step FILE.parquet REPEAT         the filters alone, on batches in memory
    python tamis_cascade.py scored FILE.parquet REPEAT       the same, with each score in a column
    python tamis_cascade.py sets FILE.parquet REPEAT         the sets of Gopher, C4 and FineWeb, on batches in memory
    python tamis_cascade.py threads FILE.parquet N REPEAT    the same, on N threads
    python tamis_cascade.py run FOLDER OUTPUT WORKERS FORM   JSON lines to JSON lines; FORM: plain, scores, ledger,
                                                             both, or written: both, and the scores written too
    python tamis_cascade.py modifiers FILE.parquet REPEAT    each modifier alone, on batches in memory
    python tamis_cascade.py copy FOLDER OUTPUT               no filter and no tamis: Polars reads and writes the same

Prints its result as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from operations import CASCADE, MODIFIERS_TIMED

BATCH_ROWS = 4096


def english_cascade(scores: bool = False) -> Any:
    """The cascade as one stage; with ``scores``, each of the 28 is written into a column."""
    from tamis.stages.text import filters
    from tamis.stages.text.filters import ScoreFilter

    made = [getattr(filters, x.name)(**x.parameters) for x in CASCADE]
    names = [f"score_{number:02d}_{x.name}" for number, x in enumerate(CASCADE)] if scores else None
    return ScoreFilter(made, score_field=names)


def read_table(path: str) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def fresh_batches(table: Any) -> list[Any]:
    """The table in batches that no stage has seen: a batch may carry what an earlier stage found out about it, which
    in a pipeline happens once and in a loop over the same batches would spare all the work but the first time's."""
    from tamis.tasks import DocumentBatch

    return [DocumentBatch(table.slice(at, BATCH_ROWS)) for at in range(0, table.num_rows, BATCH_ROWS)]


def timed(
    work: Callable[[list[Any]], Any], table: Any, repeat: int, clock: Callable[[], float] = time.process_time
) -> float:
    """The median time of the work, each time on fresh batches, which are made while the clock stands still."""
    work(fresh_batches(table))  # what is loaded at first use is loaded
    seconds = []
    for _ in range(repeat):
        batches = fresh_batches(table)
        began = clock()
        work(batches)
        seconds.append(clock() - began)
    return median(seconds)


def through(stage: Any, batch: Any) -> Any:
    """What a stage makes of a batch. The rows that stay are copied together here and not when they are asked for, since
    the peers' times include that."""
    kept = stage.process(batch)
    _ = kept.data
    return kept


def published_sets() -> list[Any]:
    """What datatrove is asked to do: the stages of four published sets."""
    from tamis.stages.text import sets

    composites = [sets.GopherRepetition(), sets.GopherQuality(), sets.C4Quality(), sets.FineWebQuality()]
    return [stage for composite in composites for stage in composite.decompose()]


def through_all(stages: list[Any], batch: Any) -> Any:
    """What stages, one after the other, make of a batch."""
    for stage in stages:
        batch = stage.process(batch)
    return batch.data


def merged(stages: list[Any]) -> list[Any]:
    """The stages as the planner runs them: neighbouring filters as one."""
    found = stages[:1]
    for stage in stages[1:]:
        together = found[-1].merged_with(stage)
        found[-1:] = [found[-1], stage] if together is None else [together]
    return found


def sets(path: str, repeat: str) -> dict[str, Any]:
    table, stages = read_table(path), merged(published_sets())
    for stage in stages:
        stage.setup()
    seconds = timed(lambda batches: [through_all(stages, batch) for batch in batches], table, int(repeat))
    kept = [through_all(stages, batch) for batch in fresh_batches(table)]
    return {"seconds": seconds, "kept": [i for found in kept for i in found["id"].to_pylist()]}


def scored(path: str, repeat: str) -> dict[str, Any]:
    return step(path, repeat, scores=True)


def step(path: str, repeat: str, scores: bool = False) -> dict[str, Any]:
    table, stage = read_table(path), english_cascade(scores)
    stage.setup()
    seconds = timed(lambda batches: [through(stage, batch) for batch in batches], table, int(repeat))
    kept = [i for batch in fresh_batches(table) for i in stage.process(batch).data["id"].to_pylist()]
    return {"seconds": seconds, "kept": kept}


def threads(path: str, count: str, repeat: str) -> dict[str, Any]:
    table, stage = read_table(path), english_cascade()
    stage.setup()
    with ThreadPoolExecutor(int(count)) as pool:

        def work(batches: list[Any]) -> None:
            list(pool.map(lambda batch: through(stage, batch), batches))

        return {"seconds": timed(work, table, int(repeat), time.perf_counter)}


def modifiers(path: str, repeat: str) -> dict[str, Any]:
    from tamis.stages.text import modifiers
    from tamis.stages.text.modifiers import Modify

    table, seconds = read_table(path), {}
    for operation in MODIFIERS_TIMED:
        stage = Modify(getattr(modifiers, operation.name)(**operation.parameters))
        stage.setup()
        seconds[operation.label] = timed(
            lambda batches, stage=stage: [stage.process(batch) for batch in batches], table, int(repeat)
        )
    return {"seconds": seconds}


def run(folder: str, output: str, workers: str, form: str) -> dict[str, Any]:
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.io import JsonlReader, JsonlWriter

    stage = english_cascade(scores=form in ("scores", "both", "written"))
    writer = JsonlWriter(f"{output}/kept", fields=None if form == "written" else ["id", "text"])
    pipeline = Pipeline("bench", stages=[JsonlReader(folder), stage, writer])
    result = pipeline.run(
        LocalExecutor(int(workers)),
        run_dir=f"{output}/run",
        progress="off",
        drop_ledger=form in ("default", "ledger", "both", "written"),
    )
    return {"rows": result.summary.output_rows}


def copy(folder: str, output: str) -> dict[str, Any]:
    import polars as pl

    Path(output).mkdir(parents=True)
    rows = 0
    for path in sorted(Path(folder).iterdir()):
        frame = pl.read_ndjson(path)
        frame.write_ndjson(Path(output) / path.name)
        rows += len(frame)
    return {"rows": rows}


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    commands = {
        "step": step,
        "scored": scored,
        "sets": sets,
        "threads": threads,
        "run": run,
        "modifiers": modifiers,
        "copy": copy,
    }
    began, used = time.perf_counter(), time.process_time()
    answer = commands[command](*rest)
    print(json.dumps({**answer, "wall": time.perf_counter() - began, "cpu": time.process_time() - used}))
