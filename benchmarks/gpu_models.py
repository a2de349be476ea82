"""Model stages on one GPU: tokenise on CPUs, embed and classify on the card, write; how busy the card's workers are.

    python benchmarks/gpu_models.py --text CORPUS.parquet [--passages 160000] [--layers 12] [--shares 1 0.5 0.25]

Both models have the shape of BERT-base (weights by chance, made here) and use the same tokens, so that the two stages
are neighbours and share a worker. One run on the local executor for each share of the card that a worker asks for, and
one for workers that ask for a part of its memory. Busy is the share of the time between the first and the last call of
the models in which at least one of them was at work, and the first and last tenth of that time are left out.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from embeddings import passages, save_model
from transformers import BertConfig, BertForSequenceClassification

from tamis.pipeline import Pipeline
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.stages.resources import Resources
from tamis.stages.text.classifiers import FineWebEduClassifier
from tamis.stages.text.embedders import EmbeddingCreatorStage
from tamis.stages.text.models.inference import Inference

ROWS_A_FILE = 2048


class Calls:
    """When the models were at work."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self._lock = threading.Lock()
        self._plain = Inference.process_batch

    def __enter__(self) -> Calls:
        plain = self._plain

        def timed(stage: Inference, tasks: list[Any]) -> Any:
            began = time.perf_counter()
            made = list(plain(stage, tasks))
            with self._lock:
                self.spans.append((began, time.perf_counter()))
            return made

        Inference.process_batch = timed  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Inference.process_batch = self._plain  # type: ignore[method-assign]

    def busy(self) -> float:
        first, last = min(start for start, _ in self.spans), max(stop for _, stop in self.spans)
        low, high = first + 0.1 * (last - first), last - 0.1 * (last - first)
        worked, end = 0.0, low
        for start, stop in sorted(self.spans):
            worked += max(0.0, min(stop, high) - max(start, end))
            end = max(end, stop)
        return worked / (high - low)


def make_input(folder: Path, texts: list[str], count: int) -> None:
    every = itertools.islice(itertools.cycle(texts), count)
    for number in itertools.count():
        some = list(itertools.islice(every, ROWS_A_FILE))
        if not some:
            return
        pq.write_table(pa.table({"text": some}), folder / f"{number:05d}.parquet")


def measure(folder: Path, resources: Resources, count: int) -> tuple[float, float]:
    """Documents per second, and the busy share."""
    models = str(folder / "embed"), str(folder / "classify")
    with tempfile.TemporaryDirectory(dir=folder) as output, Calls() as calls:
        pipeline = Pipeline(
            "models",
            [
                ParquetReader(str(folder / "input"), files_per_partition=1),
                EmbeddingCreatorStage(models[0], keep_tokens=True, resources=resources),
                FineWebEduClassifier(model_identifier=models[1], use_existing_tokens=True, resources=resources),
                ParquetWriter(f"{output}/out"),
            ],
        )
        result = pipeline.run(run_dir=f"{output}/run", progress="off")
        if result.summary.output_rows != count:
            raise SystemExit(f"{result.summary.output_rows} of {count} rows came out")
        first, last = min(start for start, _ in calls.spans), max(stop for _, stop in calls.spans)
        return count / (last - first), calls.busy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column 'text'")
    parser.add_argument("--passages", type=int, default=160_000)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--shares", type=float, nargs="+", default=[1, 0.5, 0.25])
    parser.add_argument("--memory-gb", type=float, default=30.0, help="of the card, for a worker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = passages(arguments.text, min(arguments.passages, 40_000))
        (folder / "input").mkdir()
        make_input(folder / "input", texts, arguments.passages)
        shape = {"num_hidden_layers": arguments.layers}
        save_model(str(folder / "embed"), shape, texts)
        save_model(str(folder / "classify"), shape, texts)
        head = BertForSequenceClassification(BertConfig(vocab_size=30_000, num_labels=1, **shape))
        for file in (folder / "classify").glob("modules.json"):
            file.unlink()
        head.save_pretrained(folder / "classify")
        asked = [(f"gpus={share:g}", Resources(gpus=share)) for share in arguments.shares]
        if torch.cuda.is_available():
            asked.append((f"gpu_memory_gb={arguments.memory_gb:g}", Resources(gpu_memory_gb=arguments.memory_gb)))
        print(f"{'a worker has':>20} {'texts/s':>10} {'busy':>7}")
        for label, resources in asked:
            rate, busy = measure(folder, resources, arguments.passages)
            print(f"{label:>20} {rate:>10,.0f} {busy:>7.3f}", flush=True)


if __name__ == "__main__":
    main()
