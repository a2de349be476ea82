"""Embeddings without a transformer: by hashing words, and from static vectors, beside their peers; and search in them.

    python benchmarks/embeddings_without_models.py --text CORPUS.parquet

Everything runs in one process, turn by turn, and CPU time is compared (of all threads). Peers: ``HashingVectorizer`` of
scikit-learn with words and pairs of words, and the package ``wordllama``, whose vectors must be those of tamis.

How good vectors are is measured on the same texts: whether the second half of a text finds its first half among all
first halves, whether 8 or 20 words from a text find the text, and how similar edited copies are beside random pairs.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.analysis.search import search
from tamis.kernels.hashed_words import HashedWords, fit_rarity
from tamis.models.static import load_static_model
from tamis.stages.text.embedders import HashedEmbeddingStage
from tamis.stages.vectors import vector_column

QUERIES = 500


def cpu_seconds(work: Callable[[], Any], rounds: int) -> float:
    """The least CPU time of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def speeds(texts: pa.Array) -> None:
    """MB of text per second of CPU time."""
    import wordllama
    from sklearn.feature_extraction.text import HashingVectorizer

    as_strings = texts.to_pylist()
    few, fewer = as_strings[:1500], texts[:1500]
    megabytes, few_megabytes = (sum(len(text.encode()) for text in each) / 1e6 for each in (as_strings, few))
    vectorizer = HashingVectorizer(n_features=512, ngram_range=(1, 2))
    library = wordllama.WordLlama.load(cache_dir=os.path.dirname(wordllama.__file__), disable_download=True)
    ours = load_static_model("wordllama")
    rows = [
        ("hashed words, 512 numbers", megabytes, cpu_seconds(lambda: HashedWords().vectors(texts), 3)),
        ("hashed words, 256 numbers", megabytes, cpu_seconds(lambda: HashedWords(256).vectors(texts), 3)),
        ("scikit-learn HashingVectorizer", few_megabytes, cpu_seconds(lambda: vectorizer.transform(few), 1)),
        ("static vectors, wordllama by tamis", few_megabytes, cpu_seconds(lambda: ours.embed(fewer), 2)),
        ("static vectors, package wordllama", few_megabytes, cpu_seconds(lambda: library.embed(few, norm=True), 2)),
    ]
    print(f"\n{'way':40} {'MB/s per core':>14}")
    for name, amount, seconds in rows:
        print(f"{name:40} {amount / seconds:14.1f}")
    print(f"hashed words / scikit-learn: {rows[0][1] / rows[0][2] / (rows[2][1] / rows[2][2]):.0f} x")
    print(f"wordllama by tamis / package: {rows[4][2] / rows[3][2]:.1f} x")
    known = [text for text in few if text.strip()]
    one, other = ours.embed(pa.array(known))[0], library.embed(known, norm=True)
    print(f"least cosine of wordllama's vectors and ours: {(one * other).sum(axis=1).min():.6f}")


def quality(texts: pa.Array) -> None:
    """How good vectors are."""
    chance = random.Random(1)
    corpus = texts.to_pylist()
    words = [word for text in corpus[::6] for word in text.split()]
    queries = chance.sample(range(len(corpus)), QUERIES)

    def edited(text: str, share: float) -> str:
        return " ".join(chance.choice(words) if chance.random() < share else word for word in text.split(" "))

    def part(text: str, count: int) -> str:
        found = text.split()
        start = chance.randrange(max(1, len(found) - count))
        return " ".join(found[start : start + count])

    sets = {
        "8 words": [part(corpus[i], 8) for i in queries],
        "20 words": [part(corpus[i], 20) for i in queries],
        "10 %": [edited(corpus[i], 0.1) for i in queries],
        "30 %": [edited(corpus[i], 0.3) for i in queries],
        "50 %": [edited(corpus[i], 0.5) for i in queries],
        "half": [corpus[i][len(corpus[i]) // 2 :] for i in queries],
        "first halves": [text[: len(text) // 2] for text in corpus],
    }
    rarity = fit_rarity([texts[: len(texts) // 3]])
    wordllama = load_static_model("wordllama")
    ways: dict[str, Callable[[pa.Array], np.ndarray]] = {
        "hashed words, 256": HashedWords(256).vectors,
        "hashed words, 512": HashedWords().vectors,
        "hashed words, 512, rarity": HashedWords(rarity=rarity).vectors,
        "hashed words, 1024, rarity": HashedWords(1024, rarity=rarity).vectors,
        "wordllama": lambda column: wordllama.embed(column)[0],
    }
    heads = ("half found", "8 words found", "20 words found", "10 % edited", "30 %", "50 %", "random pairs")
    print(f"\n{'first of / among 10 / cosine':28}" + "".join(f"{head:>16}" for head in heads))
    for name, embed in ways.items():
        whole = embed(texts)
        made = {key: embed(pa.array(value)) for key, value in sets.items()}
        line = [found(made["half"], made["first halves"], queries)]
        line += [found(made[key], whole, queries) for key in ("8 words", "20 words")]
        for key in ("10 %", "30 %", "50 %"):
            cosines = (made[key] * whole[queries]).sum(axis=1)
            line.append(f"{np.median(cosines):.2f} >{np.quantile(cosines, 0.01):.2f}")
        pairs = np.random.default_rng(0).integers(0, len(corpus), (20_000, 2))
        cosines = (whole[pairs[:, 0]] * whole[pairs[:, 1]]).sum(axis=1)[pairs[:, 0] != pairs[:, 1]]
        line.append(f"{np.median(cosines):.2f} <{np.quantile(cosines, 0.999):.2f}")
        print(f"{name:28}" + "".join(f"{value:>16}" for value in line))


def found(vectors: np.ndarray, others: np.ndarray, wanted: list[int]) -> str:
    """How often the wanted one is the nearest, and among the ten nearest."""
    products = vectors @ others.T
    nearer = (products > products[np.arange(len(wanted)), wanted][:, None]).sum(axis=1)
    return f"{(nearer < 1).mean():.2f}/{(nearer < 10).mean():.2f}"


def searching(texts: pa.Array, rows: int) -> None:
    """The time of a search beside reading the vectors and one product with all of them in memory."""
    vectors = HashedWords(256).vectors(texts)
    with tempfile.TemporaryDirectory() as folder:
        at = 0
        while at < rows:
            chunk = vectors[: min(len(vectors), rows - at)]
            pq.write_table(
                pa.table({"embeddings": vector_column(chunk)}), f"{folder}/{at:09}.parquet", compression="zstd"
            )
            at += len(chunk)
        files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        stage = HashedEmbeddingStage(dim=256)
        query = HashedWords(256).vectors(pa.array(["how to mount a disk"]))[0]

        def plain() -> None:
            column = pa.concat_tables(pq.read_table(file) for file in files)["embeddings"].combine_chunks()
            scores = np.asarray(column.values).reshape(-1, 256) @ query
            np.argpartition(-scores, 10)[:10]

        tamis, brute = (
            cpu_seconds(work, 2) for work in (lambda: search(folder, "how to mount a disk", stage=stage), plain)
        )
    print(
        f"\nsearch in {rows:,} x 256 vectors in Parquet files: {tamis:.2f} s of CPU, {tamis / brute:.2f} x of reading"
    )
    print("all into memory and one product (which search does not: its memory does not grow)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column text")
    parser.add_argument("--documents", type=int, default=8_000)
    parser.add_argument("--rows", type=int, default=100_000, help="vectors to search in")
    arguments = parser.parse_args()
    column = pq.read_table(arguments.text, columns=["text"])["text"]
    places = np.sort(np.random.default_rng(0).permutation(len(column))[: arguments.documents])
    texts = column.take(pa.array(places.tolist())).combine_chunks()
    speeds(texts)
    quality(texts)
    searching(texts, arguments.rows)


if __name__ == "__main__":
    main()
