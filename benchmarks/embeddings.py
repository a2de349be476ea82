"""Embeddings of real passages: `EmbeddingCreatorStage` beside `encode` of sentence-transformers, on the same model.

    python benchmarks/embeddings.py --text CORPUS.parquet [--shape minilm base] [--passages 400] [--dtype auto]

The models have the shapes of MiniLM-L6 and BERT-base and weights by chance; a WordPiece vocabulary is trained on the
passages, which are the paragraphs of a column `text`. Both sides get texts and give vectors, in the same process, with
the same number of threads. Nothing is fetched. The vectors of the way that is compared with are those of `encode`.

On a CPU, both have one thread (`--threads`; a worker of a pipeline has as many as its cores, one by default), times are
those of the cores (`process_time`), and 16 bits for the linear layers are tried as well. On a GPU (`--passages 40000`)
both compute in bfloat16, `encode` is tried with several batch sizes of which the best counts, texts are tokenised by
threads while the card computes, and the share of the card's peak is shown (`--peak-tflops`).
"""

from __future__ import annotations

import argparse
import collections
import copy
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tamis.stages.text.embedders import EmbeddingCreatorStage
from tamis.tasks import DocumentBatch

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {},
}
ENDS = ("[CLS]", "[SEP]")
PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40": 362, "L4": 121}
"""Of dense 16-bit matrix products, by a part of the card's name."""


@dataclass(frozen=True)
class Measured:
    """How long one way took, and its vectors."""

    way: str
    seconds: float
    vectors: NDArray[np.float32]


def passages(path: str, count: int) -> list[str]:
    """Paragraphs of the texts of a Parquet file, chosen by chance, always the same."""
    found = []
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        for text in batch.column("text").to_pylist():
            found += [part[:4000] for part in (text or "").split("\n\n") if len(part) > 40]
        if len(found) > 20 * count:
            break
    random.Random(1).shuffle(found)
    return found[:count]


def save_model(folder: str, shape: dict[str, int], texts: list[str]) -> None:
    """A model of sentence-transformers with weights by chance."""
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", *ENDS, "[MASK]"]
    inner.train_from_iterator(texts[:8000], trainers.WordPieceTrainer(vocab_size=30_000, special_tokens=special))
    ends = [(token, inner.token_to_id(token)) for token in ENDS]
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=512, **named).save_pretrained(folder)
    BertModel(BertConfig(vocab_size=30_000, **shape), add_pooling_layer=False).save_pretrained(folder)
    parts = [modules.Transformer(folder), modules.Pooling(shape.get("hidden_size", 768)), modules.Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save(folder)


def timed(way: str, device: str, work: Callable[[], NDArray[np.float32]]) -> Measured:
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()
    vectors = work()
    if device != "cpu":
        torch.cuda.synchronize()
    return Measured(way, clock() - began, vectors)


def encode(folder: str, texts: list[str], device: str, dtype: torch.dtype, sizes: list[int]) -> Iterator[Measured]:
    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
    model.encode(texts[: 32 if device == "cpu" else max(sizes)], batch_size=max(sizes))

    def run(size: int) -> NDArray[np.float32]:
        return model.encode(texts, batch_size=size, convert_to_tensor=True).float().cpu().numpy()

    for size in sizes:
        yield timed(f"encode, batch_size={size}", device, lambda size=size: run(size))


def embed(
    folder: str, texts: list[str], device: str, dtype: str, *, compiled: bool, workers: list[int]
) -> Iterator[Measured]:
    stage = EmbeddingCreatorStage(folder, dtype=dtype, compile=compiled)
    tokenizer, inference = stage.unfold()
    if device == "cpu":
        inference = inference.without_gpu()
    tokenizer.setup()
    inference.setup()
    rows = max(64, min(4096, len(texts) // 8))
    chunks = [DocumentBatch({"text": pa.array(texts[at : at + rows])}) for at in range(0, len(texts), rows)]

    def vectors(tasks: list[DocumentBatch]) -> list[NDArray[np.float32]]:
        columns = [task["embeddings"].combine_chunks() for task in tasks]
        return [column.flatten().to_numpy().reshape(len(column), -1) for column in columns]

    def compute(tokens: list[DocumentBatch]) -> list[DocumentBatch]:
        return list(inference.process_batch(tokens))

    compute([tokenizer.process(chunks[0])])
    if device == "cpu":
        way = f"tamis, {dtype}"
        yield timed(way, device, lambda: np.concatenate(vectors(compute([tokenizer.process(c) for c in chunks]))))
        return

    stages = [inference, *(copy.copy(inference) for _ in range(1, max(workers)))]
    for stage in stages[1:]:
        stage.setup()

    def overlapped(stages: list[Any], chunks: list[DocumentBatch] = chunks) -> NDArray[np.float32]:
        lock, made = threading.Lock(), {}
        with ThreadPoolExecutor(os.cpu_count()) as pool, ThreadPoolExecutor(len(stages)) as cards:
            waiting = collections.deque((at, pool.submit(tokenizer.process, each)) for at, each in enumerate(chunks))

            def work(stage: Any) -> None:
                while True:
                    with lock:
                        ready = [waiting.popleft() for _ in range(min(8, len(waiting)))]
                    if not ready:
                        return
                    done = stage.process_batch([tokens.result() for _, tokens in ready])
                    made.update(zip((at for at, _ in ready), done, strict=True))

            list(cards.map(work, stages))
        return np.concatenate(vectors([made[at] for at in range(len(chunks))]))

    overlapped(stages, chunks[: 4 * len(stages)])
    suffix = ", compiled" if compiled else ""
    for count in workers:
        way = f"tamis{suffix}" if count == 1 else f"tamis{suffix}, {count} workers"
        yield timed(way, device, lambda count=count: overlapped(stages[:count]))
    tokens = [tokenizer.process(chunk) for chunk in chunks]
    yield timed(f"tamis{suffix}, tokens given", device, lambda: np.concatenate(vectors(compute(tokens))))


def operations(folder: str, texts: list[str], shape: dict[str, int]) -> float:
    """The multiplications and additions that the model needs for the texts, without padding."""
    inner = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    inner.no_padding()
    lengths = np.array([min(512, len(one.ids)) for one in inner.encode_batch_fast(texts)], np.float64)
    config = BertConfig(**shape)
    hidden, inside, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    print(f"  {len(texts):,} passages of {lengths.mean():.0f} tokens on average, {lengths.max():.0f} at most")
    linear, attention = 2 * layers * (4 * hidden**2 + 2 * hidden * inside), 4 * layers * hidden
    return float((lengths * linear + lengths**2 * attention).sum())


def compare(name: str, texts: list[str], arguments: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder, SHAPES[name], texts)
        print(f"{name}, {device}")
        needed = operations(folder, texts, SHAPES[name])
        numbers = torch.float32 if device == "cpu" else torch.bfloat16
        sizes = arguments.batch_sizes or ([8, 32] if device == "cpu" else [32, 256, 1024])
        theirs = list(encode(folder, texts[: arguments.encode_passages], device, numbers, sizes))
        ours = [
            measured
            for dtype in (arguments.dtype if device == "cpu" else ["auto"])
            for compiled in ([False, True] if arguments.compile else [False])
            for measured in embed(folder, texts, device, dtype, compiled=compiled, workers=arguments.workers)
        ]
    best = min(theirs, key=lambda measured: measured.seconds)
    peak = arguments.peak_tflops or (peak_of_card() if device != "cpu" else None)
    for measured in [*theirs, *ours]:
        count, known = len(measured.vectors), measured.vectors[: len(best.vectors)]
        cosine = (known * best.vectors).sum(axis=1)
        cosine /= np.linalg.norm(known, axis=1) * np.linalg.norm(best.vectors, axis=1)
        rate = count / measured.seconds
        ratio = rate / (len(best.vectors) / best.seconds)
        used = "" if peak is None else f"  MFU {needed / len(texts) * rate / peak / 1e12:5.2f}"
        print(
            f"  {measured.way:28} {rate:10,.1f} texts/s  x {ratio:5.2f}  cosine >= {cosine.min():.5f}{used}", flush=True
        )


def peak_of_card() -> float | None:
    name = torch.cuda.get_device_name()
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column 'text'")
    parser.add_argument("--passages", type=int, default=400)
    parser.add_argument("--encode-passages", type=int, help="how many of them encode gets; all when not given")
    parser.add_argument("--workers", type=int, nargs="+", default=[1], help="how many share the GPU; each is measured")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], help="on a CPU")
    parser.add_argument("--batch-sizes", type=int, nargs="+", help="of encode")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    parser.add_argument("--peak-tflops", type=float, help="of the card, for 16-bit matrix products")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        torch.set_num_threads(arguments.threads)
    texts = passages(arguments.text, arguments.passages)
    for name in arguments.shape:
        compare(name, texts, arguments)


if __name__ == "__main__":
    main()
