"""Language identification: the built-in model on Arrow columns, against the ways one would write by hand.

    python benchmarks/bench_language.py [--input FILE.parquet] [--rows 8000] [--model lid.176.ftz]

Prints documents and megabytes per second of one core for each way, and its ratio to ``pycld2.detect`` on one Python
string after the other (with the same cleaning, since that fails on control characters), or for fastText models to
``model.predict`` on one string after the other and to the package's own function for many lines; what a second thread
adds; the share of documents, and of pieces of 100 to 1,000 characters from their middle, found to be in the language
they are labelled with, beside what ``pycld2`` finds; and whole runs from Parquet to Parquet with and without
``AddLanguage``. Megabytes are those of whole documents, also where only the beginning is looked at. Without an input,
the sample data set is used, several times over; without a model, some small fastText models are trained on part of it,
so that their speed can be seen.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import fasttext
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pycld2
import zstandard

from tamis.kernels.scripts import dominant_scripts
from tamis.models.fasttext import load_fasttext
from tamis.models.language import MAX_BYTES, load_language_model, matches_language
from tamis.pipeline import Pipeline
from tamis.quickstart import sample_files
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.stages.text.filters import FastTextLangId
from tamis.stages.text.language import AddLanguage

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


SHAPES: dict[str, dict[str, Any]] = {
    "subwords": {"dim": 16, "minn": 2, "maxn": 4},
    "subwords, quantised": {"dim": 16, "minn": 2, "maxn": 4, "qnorm": True, "cutoff": 20_000},
    "words": {"dim": 16, "minn": 0, "maxn": 0},
    "pairs of words": {"dim": 100, "minn": 0, "maxn": 0, "wordNgrams": 2},
    "tree of labels": {"dim": 16, "minn": 2, "maxn": 4, "loss": "hs"},
}


def train(texts: list[str], labels: list[str], folder: str) -> dict[str, str]:
    lines = [f"__label__{label} {' '.join(text[:1000].split())}\n" for text, label in zip(texts, labels, strict=True)]
    source = f"{folder}/train.txt"
    Path(source).write_text("".join(lines[::2]), encoding="utf-8")
    paths = {}
    for name, shape in SHAPES.items():
        options = dict(shape)
        quantise = {option: options.pop(option) for option in ("qnorm", "cutoff") if option in options}
        model = fasttext.train_supervised(source, bucket=200_000, thread=12, verbose=0, epoch=3, lr=0.5, **options)
        if quantise:
            model.quantize(source, **quantise)
        paths[name] = f"{folder}/{name.replace(' ', '-')}.bin"
        model.save_model(paths[name])
    return paths


def table(title: str, texts: list[str], megabytes: float, ways: dict[str, Callable[[], Any]]) -> None:
    print(f"\n{title:<42}{'documents/s':>14}{'MB/s':>9}{'ratio':>8}")
    took = {name: seconds(work) for name, work in ways.items()}
    for name, needed in took.items():
        ratio = next(iter(took.values())) / needed
        print(f"{name:<42}{len(texts) / needed:>14,.0f}{megabytes / needed:>9.1f}{ratio:>8.2f}")


def compare_cld2(texts: list[str], column: pa.ChunkedArray, megabytes: float) -> None:
    built_in, whole, less = (load_language_model(max_bytes=limit) for limit in (MAX_BYTES, None, 1024))
    ways: dict[str, Callable[[], Any]] = {
        "pycld2.detect, string by string": lambda: plain_cld2(texts),
        "pycld2.detect, first 4096 bytes": lambda: one_by_one(column),
        "built-in, whole texts": lambda: whole.identify(column),
        "built-in, first 4096 bytes": lambda: built_in.identify(column),
        "built-in, first 1024 bytes": lambda: less.identify(column),
        "script": lambda: dominant_scripts(column),
    }
    table("languages", texts, megabytes, ways)
    halves = [column.slice(0, len(column) // 2), column.slice(len(column) // 2)]
    with ThreadPoolExecutor(2) as pool:
        one = seconds(lambda: list(map(built_in.identify, halves)), time.perf_counter)
        two = seconds(lambda: list(pool.map(built_in.identify, halves)), time.perf_counter)
    print(f"built-in on two threads: {one / two:.2f} x one thread (wall time: needs two idle cores)")


def one_by_one(column: pa.ChunkedArray) -> pa.Array:
    """What the package finds in the same bytes, without the kernel."""
    with mock.patch("tamis.models.language.cld2_tables", return_value=None):
        return load_language_model().identify(column)[0]


def compare_accuracy(texts: list[str], labels: list[str]) -> None:
    wanted = [label.replace("_", "-").partition("-")[0] for label in labels]
    print(f"\n{'as labelled':<42}{'built-in':>10}{'pycld2':>10}{'the same':>10}")
    for size in (None, 100, 200, 300, 500, 1000):
        middles = [len(text) // 3 for text in texts]
        pieces = texts if size is None else [text[at : at + size] for text, at in zip(texts, middles, strict=True)]
        column = pa.chunked_array([pa.array(pieces, pa.large_string())])
        found = [load_language_model().identify(column)[0].to_pylist(), one_by_one(column).to_pylist()]
        shares = [
            sum(matches_language(code, label) for code, label in zip(codes, wanted, strict=True)) / len(texts)
            for codes in found
        ]
        same = sum(one == other for one, other in zip(*found, strict=True)) / len(texts)
        name = "documents" if size is None else f"pieces of {size} characters"
        print(f"{name:<42}{shares[0]:>10.4f}{shares[1]:>10.4f}{same:>10.4f}")


def compare_fasttext(texts: list[str], column: pa.ChunkedArray, megabytes: float, paths: dict[str, str]) -> None:
    for name, path in paths.items():
        inner, keep = fasttext.load_model(path), FastTextLangId(path)
        lines = [text.strip().replace("\n", " ") + "\n" for text in texts]
        ways: dict[str, Callable[[], Any]] = {
            "fasttext predict, string by string": lambda inner=inner: plain_fasttext(inner, texts),
            "fasttext multilinePredict": lambda inner=inner, lines=lines: inner.f.multilinePredict(
                lines, 1, 0.0, "strict"
            ),
            "FastTextModel.predict": lambda path=path: load_fasttext(path, "a benchmark").predict(column),
            "FastTextLangId": lambda keep=keep: keep.score_column(column),
        }
        table(f"fastText: {name}", texts, megabytes, ways)


def compare_runs(texts: list[str], megabytes: float, folder: str) -> None:
    source = f"{folder}/documents.parquet"
    pq.write_table(pa.table({"text": pa.array(texts, pa.large_string())}), source, compression="zstd")

    def run(stages: list[Any]) -> None:
        shutil.rmtree(f"{folder}/out", ignore_errors=True)
        Pipeline("a run", stages=[ParquetReader(source), *stages, ParquetWriter(f"{folder}/out")]).run()

    without, with_languages = seconds(lambda: run([])), seconds(lambda: run([AddLanguage()]))
    added = with_languages - without
    print(f"\nParquet to Parquet: {megabytes / without:.0f} MB/s of processor time")
    print(f"with AddLanguage: {megabytes / with_languages:.0f} MB/s; AddLanguage alone: {megabytes / added:.0f} MB/s")


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
    column = pa.chunked_array([pa.array(texts, pa.large_string())])
    megabytes = pc.sum(pc.binary_length(column)).as_py() / 1e6
    print(f"{len(texts):,} documents, {megabytes:.1f} MB, {megabytes * 1e3 / len(texts):.1f} kB each; one core")
    compare_cld2(texts, column, megabytes)
    compare_accuracy(texts, labels)
    with tempfile.TemporaryDirectory() as folder:
        compare_runs(texts, megabytes, folder)
        paths = {arguments.model: arguments.model} if arguments.model else train(texts, labels, folder)
        compare_fasttext(texts, column, megabytes, paths)


if __name__ == "__main__":
    main()
