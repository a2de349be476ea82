"""Language identification: the built-in model on Arrow columns, against the ways one would write by hand.

    python benchmarks/bench_language.py [--input FILE.parquet] [--rows 8000] [--model lid.176.ftz]

Prints documents and megabytes per second of one core for each way, and its ratio to ``pycld2.detect`` on one Python
string after the other (with the same cleaning, since that fails on control characters); what a second thread adds; the
share of documents found to be in the language they are labelled with. Megabytes are those of whole documents, also
where only the beginning is looked at. Without an input, the sample data set is used, several times over; without a
model, a small fastText model is trained on part of it, so that its speed can be seen.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fasttext
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pycld2
import zstandard

from tamis.kernels.scripts import dominant_scripts
from tamis.models.language import MAX_BYTES, load_language_model, matches_language
from tamis.quickstart import sample_files
from tamis.stages.text.filters import FastTextLangId

REPEATS = 3
REFUSED = dict.fromkeys(
    [*range(9), 0xB, *range(0xE, 0x20), *range(0x7F, 0xA0), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF], " "
)


def sample(rows: int) -> tuple[list[str], list[str]]:
    """Texts and labels of the sample data set, repeated as often as needed."""
    found = []
    for file in sample_files():
        data = Path(file).read_bytes()
        if file.endswith(".gz"):
            data = gzip.decompress(data)
        elif file.endswith(".zst"):
            data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
        for line in data.split(b"\n"):
            try:
                row = json.loads(line)
                found.append((str(row["text"]), str(row["lang"])))
            except (ValueError, KeyError, TypeError):
                continue  # the sample has broken lines on purpose
    found = (found * (rows // len(found) + 1))[:rows]
    return [text for text, _ in found], [label for _, label in found]


def plain_cld2(texts: list[str]) -> list[str]:
    codes = []
    for text in texts:
        try:
            found = pycld2.detect(text, isPlainText=True, bestEffort=True)
        except pycld2.error:
            found = pycld2.detect(text.translate(REFUSED), isPlainText=True, bestEffort=True)
        codes.append(found[2][0][1])
    return codes


def plain_fasttext(model: Any, texts: list[str]) -> list[str]:
    return [model.predict(text.strip().replace("\n", " "))[0][0] for text in texts]


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """The shortest of some runs: processor time, which other programs on the machine do not lengthen much."""
    times = []
    for _ in range(REPEATS):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


def train(texts: list[str], labels: list[str], folder: str) -> str:
    lines = [f"__label__{label} {' '.join(text[:500].split())}\n" for text, label in zip(texts, labels, strict=True)]
    Path(folder, "train.txt").write_text("".join(lines[:4000]), encoding="utf-8")
    model = fasttext.train_supervised(
        f"{folder}/train.txt", dim=16, minn=2, maxn=4, bucket=200_000, thread=12, verbose=0
    )
    model.save_model(f"{folder}/model.bin")
    return f"{folder}/model.bin"


def compare(texts: list[str], labels: list[str], model_path: str) -> None:
    column = pa.chunked_array([pa.array(texts, pa.large_string())])
    megabytes = pc.sum(pc.binary_length(column)).as_py() / 1e6
    built_in, whole, less = (load_language_model(max_bytes=limit) for limit in (MAX_BYTES, None, 1024))
    fast, inner = FastTextLangId(model_path), fasttext.load_model(model_path)
    ways: dict[str, Callable[[], Any]] = {
        "pycld2.detect, string by string": lambda: plain_cld2(texts),
        "built-in, whole texts": lambda: whole.identify(column),
        "built-in, first 4096 bytes": lambda: built_in.identify(column),
        "built-in, first 1024 bytes": lambda: less.identify(column),
        "fasttext predict, string by string": lambda: plain_fasttext(inner, texts),
        "FastTextLangId": lambda: fast.score_column(column),
        "fastText model, first 4096 bytes": lambda: load_language_model(model_path).identify(column),
        "script": lambda: dominant_scripts(column),
    }
    print(f"{len(texts):,} documents, {megabytes:.1f} MB, {megabytes * 1e3 / len(texts):.1f} kB each; one core")
    print(f"{'way':<38}{'documents/s':>14}{'MB/s':>9}{'ratio':>8}")
    took = {name: seconds(work) for name, work in ways.items()}
    for name, needed in took.items():
        ratio = next(iter(took.values())) / needed
        print(f"{name:<38}{len(texts) / needed:>14,.0f}{megabytes / needed:>9.1f}{ratio:>8.2f}")
    halves = [column.slice(0, len(column) // 2), column.slice(len(column) // 2)]
    with ThreadPoolExecutor(2) as pool:
        one = seconds(lambda: list(map(built_in.identify, halves)), time.perf_counter)
        two = seconds(lambda: list(pool.map(built_in.identify, halves)), time.perf_counter)
    print(f"built-in on two threads: {one / two:.2f} x one thread (wall time: needs two idle cores)")
    for name, model in (("whole texts", whole), ("first 4096 bytes", built_in), ("first 1024 bytes", less)):
        codes = model.identify(column)[0].to_pylist()
        wanted = [label.replace("_", "-").partition("-")[0] for label in labels]
        right = sum(matches_language(code, label) for code, label in zip(codes, wanted, strict=True))
        print(f"as labelled, {name}: {right / len(labels):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="Parquet file with the columns text and lang")
    parser.add_argument("--rows", type=int, default=8_000)
    parser.add_argument("--model", help="fastText language model")
    arguments = parser.parse_args()
    if arguments.input:
        table = pq.read_table(arguments.input, columns=["text", "lang"])
        step = max(1, table.num_rows // arguments.rows)
        table = table.take(list(range(0, table.num_rows, step))[: arguments.rows])
        texts, labels = table["text"].to_pylist(), table["lang"].to_pylist()
    else:
        texts, labels = sample(arguments.rows)
    with tempfile.TemporaryDirectory() as folder:
        compare(texts, labels, arguments.model or train(texts, labels, folder))


if __name__ == "__main__":
    main()
