"""Trained classifiers beside scikit-learn, and perplexity beside KenLM: one core, the same texts, CPU time.

    python benchmarks/trained_models.py --text CORPUS.parquet

CORPUS has the columns ``text`` and ``label``. Install ``scikit-learn`` and ``kenlm`` beside tamis. The classifiers are
logistic regressions on hashed words and pairs of words; both are trained on one half and tested on the other. The
n-gram model is one file in the ARPA format, which both read; the scores must agree.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TAMIS_KERNELS", "wait")

import numpy as np  # noqa: E402 - after the number of threads is set
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from tamis.models.ngram_model import load_ngram_model  # noqa: E402
from tamis.models.text_classifier import load_text_classifier  # noqa: E402
from tamis.training import train_classifier  # noqa: E402

BATCH = 500
REPEATS = 3


def cpu_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU time of some calls, and the result."""
    best, result = math.inf, None
    for _ in range(REPEATS):
        began = time.process_time()
        result = function()
        best = min(best, time.process_time() - began)
    return best, result


def classify(table: pa.Table, folder: str) -> None:
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    half = table.num_rows // 2
    train, test = table.slice(0, half), table.slice(half)
    pq.write_table(train, f"{folder}/train.parquet")
    began = time.process_time()
    train_classifier(f"{folder}/train.parquet", f"{folder}/model", test_share=0)
    ours_training = time.process_time() - began
    model = load_text_classifier(f"{folder}/model")
    texts = [batch.column("text") for batch in test.select(["text"]).to_batches(BATCH)]
    truth = np.array(test["label"].to_pylist())
    ours, shares = cpu_seconds(lambda: np.concatenate([model.probabilities(each) for each in texts]))
    accuracy = (np.array(model.labels)[shares.argmax(axis=1)] == truth).mean()
    vectors = HashingVectorizer(ngram_range=(1, 2), n_features=1 << 20, alternate_sign=False)
    began = time.process_time()
    other = SGDClassifier(loss="log_loss", random_state=0, alpha=1e-6)
    other.fit(vectors.transform(train["text"].to_pylist()), train["label"].to_pylist())
    their_training = time.process_time() - began
    theirs, guesses = cpu_seconds(
        lambda: np.concatenate([other.predict(vectors.transform(each.to_pylist())) for each in texts])
    )
    size = sum(each.nbytes for each in texts) / 1e6
    print(f"classify   tamis {size / ours:.0f} MB/s, scikit-learn {size / theirs:.1f} MB/s: {theirs / ours:.1f} x")
    print(f"           accuracy {accuracy:.4f} and {(guesses == truth).mean():.4f}")
    print(f"train      tamis {ours_training:.1f} s (it reads, splits, calibrates), scikit-learn {their_training:.1f} s")


def write_arpa(path: Path, lines: list[list[str]]) -> None:
    """A model of order 3 whose numbers are made from counts, in the form of the ARPA format."""
    counts = [Counter(tuple(line[i : i + n]) for line in lines for i in range(len(line) - n + 1)) for n in (1, 2, 3)]
    total = sum(counts[0].values())
    with path.open("w", encoding="utf-8") as file:
        file.write("\\data\\\n" + "".join(f"ngram {n}={len(c) + (n == 1)}\n" for n, c in enumerate(counts, start=1)))
        for n, of_length in enumerate(counts, start=1):
            file.write(f"\n\\{n}-grams:\n" + ("-6\t<unk>\n" if n == 1 else ""))
            for ngram, count in of_length.items():
                base = total if n == 1 else counts[n - 2][ngram[:-1]]
                log = -99 if ngram == ("<s>",) else math.log10(0.8 * count / base)
                file.write(f"{log:.6f}\t{' '.join(ngram)}" + ("\t-0.698970\n" if n < 3 else "\n"))
        file.write("\n\\end\\\n")


def perplexity(texts: list[str], folder: str) -> None:
    import kenlm

    lines = [["<s>", *line.split(), "</s>"] for text in texts[::4] for line in text.split("\n") if line.split()]
    path = Path(folder, "model.arpa")
    write_arpa(path, lines)
    theirs_model, model = kenlm.Model(str(path)), load_ngram_model(str(path))
    batches = [pa.array(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]

    def score_theirs() -> list[float]:
        return [sum(theirs_model.score(line) for line in text.split("\n") if line.encode().split()) for text in texts]

    ours, logs = cpu_seconds(lambda: np.concatenate([model.score(each).logs for each in batches]))
    theirs, others = cpu_seconds(score_theirs)
    size = sum(len(text.encode()) for text in texts) / 1e6
    worst = float(np.abs((logs - np.array(others)) / np.maximum(np.abs(logs), 1)).max())
    print(f"perplexity tamis {size / ours:.1f} MB/s, kenlm {size / theirs:.1f} MB/s: {theirs / ours:.1f} x")
    print(f"           {len(model.table.table) // 2:,} entries; largest relative difference of scores {worst:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--rows", type=int, default=8000)
    arguments = parser.parse_args()
    table = pq.read_table(arguments.text, columns=["text", "label"])
    table = table.filter(pc.is_valid(table["label"]))
    table = table.take(np.random.default_rng(0).permutation(table.num_rows)[: arguments.rows])
    with tempfile.TemporaryDirectory() as folder:
        classify(table, folder)
        # KenLM takes a literal <s> or </s> for the beginning or the end of a line, tamis for a word.
        perplexity([re.sub("\x00|</?s>", "", text) for text in table["text"].to_pylist()], folder)


if __name__ == "__main__":
    main()
