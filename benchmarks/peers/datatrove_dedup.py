"""Runs in datatrove's environment: MinHash deduplication.

    python datatrove_dedup.py run FOLDER OUTPUT BANDS ROWS WORDS TOKENIZER
        Parquet to Parquet, its four steps, on one core
    python datatrove_dedup.py signatures FILE.parquet OUTPUT BANDS ROWS WORDS TOKENIZER SEEDS
        what it makes of each document, with several seeds

WORDS is the number of words of an n-gram. TOKENIZER is ``default`` (spaCy's for English) or ``split`` (words between
white space). ``signatures`` writes ``shingles.npy`` (the hashes of the n-grams of all documents), ``offsets.npy`` and
``signatures.npy`` to OUTPUT. Prints its result as JSON.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove_cascade import SplitTokenizer


def language_of(tokenizer: str) -> Any:
    return SplitTokenizer() if tokenizer == "split" else "eng"


def run(folder: str, output: str, bands: str, rows: str, words: str, tokenizer: str) -> dict[str, Any]:
    """All four steps; the number of files is the number of tasks, one after the other."""
    config = MinhashConfig(n_grams=int(words), num_buckets=int(bands), hashes_per_bucket=int(rows))
    files = len(list(Path(folder).glob("*.parquet")))
    seconds = {}
    with tempfile.TemporaryDirectory() as work:
        steps: dict[str, tuple[list[Any], int]] = {
            "signatures": (
                [
                    ParquetReader(folder),
                    MinhashDedupSignature(f"{work}/signatures", config, language=language_of(tokenizer)),
                ],
                files,
            ),
            "buckets": ([MinhashDedupBuckets(f"{work}/signatures", f"{work}/buckets", config=config)], int(bands)),
            "components": (
                [MinhashDedupCluster(f"{work}/buckets", f"{work}/clusters", config, save_cluster_id=True)],
                1,
            ),
            "removal": ([ParquetReader(folder), MinhashDedupFilter(f"{work}/clusters"), ParquetWriter(output)], files),
        }
        for name, (step, tasks) in steps.items():
            began = time.perf_counter()
            LocalPipelineExecutor(step, tasks=tasks, workers=1, logging_dir=f"{work}/logs-{name}").run()
            seconds[name] = time.perf_counter() - began
        clusters = {path.stem: pairs_in(path) for path in sorted(Path(f"{work}/clusters").glob("*.clusters"))}
        removed = {path.stem: numbers_in(path) for path in sorted(Path(f"{work}/clusters").glob("*.remove"))}
    return {"seconds": seconds, "clusters": clusters, "removed": removed}


def numbers_in(path: Path) -> list[int]:
    content = path.read_bytes()
    return list(struct.unpack(f"<{len(content) // 4}I", content))


def pairs_in(path: Path) -> list[list[int]]:
    """Document and cluster, for each document that is in one."""
    numbers = numbers_in(path)
    return [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def signatures(path: str, output: str, bands: str, rows: str, words: str, tokenizer: str, seeds: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    steps = []
    for seed in range(1, 1 + int(seeds)):
        config = MinhashConfig(n_grams=int(words), num_buckets=int(bands), hashes_per_bucket=int(rows), seed=seed)
        steps.append(MinhashDedupSignature(tempfile.mkdtemp(), config, language=language_of(tokenizer)))
    shingles, made = [], []
    for text in pq.read_table(path, columns=["text"])["text"].to_pylist():
        found = steps[0].get_shingles(text)
        shingles.append(np.unique(found.reshape(-1)))
        # Documents without a single n-gram have no signature: datatrove leaves them alone.
        shape = (int(bands), int(rows))
        made.append([np.array(step.get_signature(found)) if len(found) else np.zeros(shape) for step in steps])
    folder = Path(output)
    np.save(folder / "shingles.npy", np.concatenate(shingles))
    np.save(folder / "offsets.npy", np.cumsum([0, *map(len, shingles)]))
    np.save(folder / "signatures.npy", np.array(made).astype(np.uint64))
    return {"documents": len(made)}


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    print(json.dumps({"run": run, "signatures": signatures}[command](*rest)))
