"""Runs in NeMo Curator's environment: its 28-filter English cascade, or modifiers.

    python nemo_cascade.py step FILE.parquet            the filters alone, on a batch in memory
    python nemo_cascade.py run FOLDER OUTPUT EXECUTOR   JSON lines to JSON lines; xenna, ray_data or actor_pool
    python nemo_cascade.py modifiers FILE.parquet       each modifier alone, on a batch in memory

Prints its result as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from statistics import median
from typing import Any

from operations import CASCADE, MODIFIERS_TIMED


def filters() -> list[Any]:
    package = "nemo_curator.stages.text.filters"
    return [getattr(importlib.import_module(f"{package}.{x.module}"), x.name)(**x.parameters) for x in CASCADE]


def read_batch(path: str) -> Any:
    import pyarrow.parquet as pq
    from nemo_curator.tasks import DocumentBatch

    # A frame of pandas: with Arrow it would be converted by each of the stages.
    frame = DocumentBatch(dataset_name="bench", data=pq.read_table(path)).to_pandas()
    return DocumentBatch(dataset_name="bench", data=frame)


def quotation_unifier() -> Any:
    """The one of the peer's own tutorial, which is no part of its package."""
    from nemo_curator.stages.text.modifiers import DocumentModifier

    class QuotationUnifier(DocumentModifier):
        def modify_document(self, text: str) -> str:
            for curly, straight in (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"')):
                text = text.replace(curly, straight)
            return text

    return QuotationUnifier()


def step(path: str) -> dict[str, Any]:
    from nemo_curator.stages.text.filters import ScoreFilter

    batch = read_batch(path)
    stages = [ScoreFilter(made) for made in filters()]
    began = time.process_time()
    for stage in stages:
        batch = stage.process(batch)
    seconds = time.process_time() - began
    return {"seconds": seconds, "kept": batch.to_pandas()["id"].tolist()}


def modifiers(path: str) -> dict[str, Any]:
    from nemo_curator.stages.text.modifiers import Modify

    package = "nemo_curator.stages.text.modifiers"
    seconds = {}
    for operation in MODIFIERS_TIMED:
        if operation.name == "QuotationUnifier":
            made = quotation_unifier()
        else:
            module = importlib.import_module(f"{package}.{operation.module}")
            made = getattr(module, operation.name)(**operation.parameters)
        stage, times = Modify(made), []
        for _ in range(3):  # the first time may include what is loaded at first use
            batch = read_batch(path)
            began = time.process_time()
            stage.process(batch)
            times.append(time.process_time() - began)
        seconds[operation.label] = median(times)
    return {"seconds": seconds}


def run(folder: str, output: str, executor_name: str) -> dict[str, Any]:
    # What Xenna needs on a small machine: see its issue tracker for the limits, and "cpus" below.
    os.environ.setdefault("RAY_MAX_LIMIT_FROM_API_SERVER", "40000")
    os.environ.setdefault("RAY_MAX_LIMIT_FROM_DATA_SOURCE", "40000")
    from nemo_curator.pipeline import Pipeline
    from nemo_curator.stages.resources import Resources
    from nemo_curator.stages.text.filters import ScoreFilter
    from nemo_curator.stages.text.io.reader import JsonlReader
    from nemo_curator.stages.text.io.writer import JsonlWriter

    executors = {
        "xenna": ("nemo_curator.backends.xenna", "XennaExecutor"),
        "ray_data": ("nemo_curator.backends.ray_data", "RayDataExecutor"),
        "actor_pool": ("nemo_curator.backends.ray_actor_pool", "RayActorPoolExecutor"),
    }
    module, name = executors[executor_name]
    executor = getattr(importlib.import_module(module), name)()
    # One stage with all filters, which spares the peer 27 hand-overs of each batch.
    stages = [JsonlReader(folder, files_per_partition=1), ScoreFilter(filters()), JsonlWriter(output)]
    if executor_name == "xenna":  # it wants a worker for every stage at once, and counts 0.95 of the cores
        parts = [part for stage in stages for part in getattr(stage, "decompose", lambda stage=stage: [stage])()]
        stages = [part.with_(resources=Resources(cpus=0.2)) for part in parts]
    Pipeline(name="bench", stages=stages).run(executor)
    return {}


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    print(json.dumps({"step": step, "run": run, "modifiers": modifiers}[command](*rest)))
