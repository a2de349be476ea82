"""Tokenise on CPUs, embed on a GPU, write on CPUs: how busy the GPU is kept, streaming and stage by stage.

    python benchmarks/gpu_streaming.py [--documents 262144] [--layers 12] [--out FILE.json]

One pipeline (Parquet in, WordPiece tokens, a BERT encoder in bfloat16, embeddings out as Parquet) on a Ray cluster of
this machine, in four ways: one worker with the whole GPU and four workers with a quarter each, streaming and in batch
mode. For each: documents per second, the busy fraction of the GPU stage's workers after warm-up (from 20 % to 95 % of
its tasks), the GPU's own utilisation as the driver counts it, and the ratio of streaming to batch mode. Model and
tokenizer are made here, with random weights, saved, and loaded by the stages as any model is. Needs an NVIDIA GPU,
torch, transformers and tamis[ray].
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

LENGTH = 256
DOCUMENTS_A_TASK = 4096
DOCUMENTS_A_STEP = 256


class Tokenize(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Texts to rows of token ids of one length."""

    def __init__(self, model: str) -> None:
        self.model = model

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        from tokenizers import Tokenizer

        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a worker for every core
        self.tokenizer = Tokenizer.from_file(os.path.join(self.model, "tokenizer.json"))
        self.tokenizer.enable_truncation(LENGTH)
        self.tokenizer.enable_padding(length=LENGTH)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        encoded = self.tokenizer.encode_batch(task.data["text"].to_pylist())
        ids = np.array([e.ids for e in encoded], dtype=np.int32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(ids.ravel()), LENGTH)
        return task.with_table(pa.table({"id": task.data["id"], "tokens": column}))


class Embed(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Token ids to embeddings, on the GPU."""

    def __init__(self, model: str, log: str) -> None:
        self.model, self.log = model, log

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        import torch
        from transformers import AutoModel

        self.encoder = AutoModel.from_pretrained(self.model, dtype=torch.bfloat16).to("cuda").eval()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import torch

        began = time.time()
        tokens = task.data["tokens"].combine_chunks().flatten().to_numpy().reshape(-1, LENGTH)
        made = []
        with torch.inference_mode():
            for first in range(0, len(tokens), DOCUMENTS_A_STEP):
                ids = torch.tensor(tokens[first : first + DOCUMENTS_A_STEP]).to("cuda", non_blocking=True).long()
                mask = (ids != 0).to(torch.bfloat16)
                hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
                made.append((hidden * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True))
            found = torch.cat(made).float().cpu().numpy()
        column = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), found.shape[1])
        with Path(self.log, str(os.getpid())).open("a") as file:
            file.write(f"{began} {time.time()}\n")
        return task.with_table(pa.table({"id": task.data["id"], "embedding": column}))


def make_model(folder: str, layers: int) -> list[str]:
    """A BERT of the base size with random weights and a WordPiece vocabulary; returns the vocabulary's words."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(20_000)]
    vocabulary = {w: i for i, w in enumerate(dict.fromkeys(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz", *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(vocabulary), num_hidden_layers=layers)).save_pretrained(folder)
    return words


def make_input(folder: str, words: list[str], documents: int) -> None:
    """Parquet files of texts of about 200 words."""
    rng = np.random.default_rng(0)
    pool = np.array(words)
    base = [" ".join(pool[rng.integers(0, len(pool), 200)]) for _ in range(DOCUMENTS_A_TASK)]
    for number in range(documents // DOCUMENTS_A_TASK):
        texts = base[number % len(base) :] + base[: number % len(base)]
        ids = np.arange(number * DOCUMENTS_A_TASK, (number + 1) * DOCUMENTS_A_TASK)
        pq.write_table(pa.table({"id": ids, "text": texts}), os.path.join(folder, f"{number:05d}.parquet"))


class Utilisation:
    """What the driver says of the GPU, every half second."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Utilisation:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop.wait(0.5):
            answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            self.seen += [(time.time(), float(answer.splitlines()[0]))] if answer.strip() else []


def busy(log: str) -> tuple[float, float, float, int]:
    """The window after warm-up, the busy fraction of the workers in it, and their number."""
    spans = [
        (float(a), float(b), file.name)
        for file in Path(log).iterdir()
        for a, b in (line.split() for line in file.read_text().splitlines())
    ]
    ends = sorted(b for _, b, _ in spans)
    start, end = ends[int(0.2 * len(ends))], ends[int(0.95 * len(ends)) - 1]
    workers = len({name for _, b, name in spans if b > start})
    worked = sum(max(0.0, min(b, end) - max(a, start)) for a, b, _ in spans)
    return start, end, worked / ((end - start) * workers), workers


def measure(folder: str, gpus: float, mode: Literal["streaming", "batch"], documents: int) -> dict[str, Any]:
    """One run."""
    log = tempfile.mkdtemp(dir=folder)
    output = tempfile.mkdtemp(dir=folder)
    pipeline = Pipeline(
        "embed",
        stages=[
            ParquetReader(os.path.join(folder, "input"), files_per_partition=1),
            Tokenize(os.path.join(folder, "model")),
            Embed(os.path.join(folder, "model"), log).with_(resources=Resources(cpus=1, gpus=gpus)),
            ParquetWriter(output, mode="overwrite"),
        ],
    )
    began = time.time()
    with Utilisation() as utilisation:
        result = pipeline.run(
            StreamingExecutor(execution_mode=mode), run_dir=tempfile.mkdtemp(dir=folder) + "/run", progress="off"
        )
    seconds = time.time() - began
    start, end, fraction, workers = busy(log)
    inside = [u for t, u in utilisation.seen if start <= t <= end]
    assert result.summary.output_rows == documents, "a row is missing"
    return {
        "gpus": gpus,
        "mode": mode,
        "workers": workers,
        "documents_per_s": documents / seconds,
        "seconds": seconds,
        "busy": fraction,
        "gpu_utilisation": sum(inside) / max(1, len(inside)),
        "documents_per_s_after_warm_up": 0.75 * documents / (end - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=64 * DOCUMENTS_A_TASK)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    import ray

    with tempfile.TemporaryDirectory() as folder:
        for name in ("input", "model"):
            os.mkdir(os.path.join(folder, name))
        make_input(
            os.path.join(folder, "input"),
            make_model(os.path.join(folder, "model"), arguments.layers),
            arguments.documents,
        )
        ray.init(include_dashboard=False, logging_level="ERROR", object_store_memory=8 * 2**30)
        found = [
            measure(folder, gpus, mode, arguments.documents) for gpus in (1.0, 0.25) for mode in ("streaming", "batch")
        ]
        ray.shutdown()
    print(f"{'GPU a worker':>12} {'workers':>8} {'mode':>10} {'docs/s':>9} {'busy':>7} {'GPU util.':>10}")
    for row in found:
        print(
            f"{row['gpus']:>12g} {row['workers']:>8} {row['mode']:>10} {row['documents_per_s']:>9.0f} "
            f"{row['busy']:>7.3f} {row['gpu_utilisation']:>9.1f}%"
        )
    for gpus in (1.0, 0.25):
        streaming, batch = (
            next(r for r in found if r["gpus"] == gpus and r["mode"] == m) for m in ("streaming", "batch")
        )
        ratio = streaming["documents_per_s"] / batch["documents_per_s"]
        print(f"streaming / batch with {gpus:g} GPU a worker: {ratio:.2f}")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
