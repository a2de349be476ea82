"""How well MinHash signatures estimate, and how often bands meet, on real texts with words replaced.

    python benchmarks/minhash_error.py --text CORPUS.parquet

Each document is compared with copies of itself in which some words are replaced by words of the corpus, one by one or
in runs. The exact Jaccard index of the sets of n-grams of each pair is the truth. Printed for each scheme:

- the root mean square error through that of independent permutations, sqrt(J (1 - J) / K), and the mean error (bias);
- per bin of similarity, the share of pairs of which a band meets, beside the mean of 1 - (1 - J ** r) ** b.

Errors are averaged over several seeds; "+-" is the standard error that chance leaves in the figure before it.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis.kernels.minhash import SCHEMES, MinHash, band_hashes, similarity

SIZES = {"50 to 260": (50, 260), "500 to 1,500": (500, 1500), "2,000 to 7,000": (2000, 7000)}
BINS = [0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
NUM_BANDS, BAND_SIZE = 20, 13


def edited(text: str, words: list[str], chance: random.Random) -> str:
    """A copy with words replaced: a share of 0.01 % to 10 % of them, alone or in runs."""
    parts = text.split(" ")
    share, run = 10 ** chance.uniform(-4, -1), chance.choice([1, 1, 5, 40])
    at = 0
    while at < len(parts):
        if chance.random() < share / run:
            for place in range(at, min(at + run, len(parts))):
                parts[place] = chance.choice(words)
            at += run
        at += 1
    return " ".join(parts)


def pairs_of(column: pa.Array, low: int, high: int, count: int, chance: random.Random) -> tuple[pa.Array, pa.Array]:
    """Documents with so many characters, and edited copies."""
    lengths = pc.utf8_length(column)
    fitting = column.filter(pc.and_(pc.greater_equal(lengths, low), pc.less_equal(lengths, high))).to_pylist()
    if len(fitting) < 50:  # cut longer ones
        longer = column.filter(pc.greater_equal(lengths, low)).to_pylist()
        fitting += [text[: chance.randint(low, high)] for text in longer]
    words = [word for text in chance.sample(fitting, min(500, len(fitting))) for word in text.split(" ")]
    texts = [chance.choice(fitting) for _ in range(count)]
    return pa.array(texts, pa.large_string()), pa.array(
        [edited(text, words, chance) for text in texts], pa.large_string()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column 'text'")
    parser.add_argument("--pairs", type=int, default=4000, help="for each size of documents")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--ngram", type=int, default=24)
    parser.add_argument("--unit", default="character")
    options = parser.parse_args()
    column = pq.read_table(options.text, columns=["text"]).column("text").combine_chunks()
    chance = random.Random(1)
    num_hashes = NUM_BANDS * BAND_SIZE
    exact: list[NDArray[np.float64]] = []
    hits: dict[str, list[NDArray[np.float64]]] = {scheme: [] for scheme in SCHEMES}
    print(f"{num_hashes} hashes, n-grams of {options.ngram} {options.unit}s, {options.seeds} seeds\n")
    print(f"{'characters':16}{'pairs':>7}{'mean J':>8}" + "".join(f"{s + ': error':>18}{'bias':>18}" for s in SCHEMES))
    for name, (low, high) in SIZES.items():
        one, other = pairs_of(column, low, high, options.pairs, chance)
        truth = MinHash(ngram=options.ngram, unit=options.unit).jaccard(one, other)
        kept = (truth > 0.1) & (truth < 1)
        one, other, truth = one.filter(pa.array(kept)), other.filter(pa.array(kept)), truth[kept]
        line = f"{name:16}{len(truth):7}{truth.mean():8.2f}"
        expected = np.sqrt((truth * (1 - truth) / num_hashes).mean())
        for scheme in SCHEMES:
            ratios, biases, met = [], [], np.zeros(len(truth))
            for seed in range(options.seeds):
                settings = MinHash(num_hashes, options.ngram, options.unit, scheme, seed)
                a, b = settings.signatures(one), settings.signatures(other)
                errors = similarity(a, b) - truth
                ratios.append(np.sqrt((errors**2).mean()) / expected)
                biases.append(errors.mean())
                met += (band_hashes(a, NUM_BANDS) == band_hashes(b, NUM_BANDS)).any(axis=1)
            hits[scheme].append(met / options.seeds)
            line += f"{np.mean(ratios):10.3f} +-{_left(ratios):.3f}{np.mean(biases):+11.5f} +-{_left(biases):.5f}"
        exact.append(truth)
        print(line)
    _print_bands(exact, hits, options.seeds)


def _print_bands(exact: list[NDArray[np.float64]], hits: dict[str, list[NDArray[np.float64]]], seeds: int) -> None:
    print(f"\nshare of pairs of which one of {NUM_BANDS} bands of {BAND_SIZE} meets, by Jaccard index")
    print(f"{'J':14}{'pairs':>7}{'S-curve':>10}" + "".join(f"{scheme:>20}" for scheme in SCHEMES))
    truth = np.concatenate(exact)
    curve = 1 - (1 - truth**BAND_SIZE) ** NUM_BANDS
    for low, high in pairwise(BINS):
        inside = (truth >= low) & (truth < high)
        count = int(inside.sum())
        if count < 30:
            continue
        line = f"{low:.2f} to {high:.2f}  {count:7}{curve[inside].mean():10.4f}"
        for scheme in SCHEMES:
            found = np.concatenate(hits[scheme])[inside]
            left = np.sqrt((curve[inside] * (1 - curve[inside])).mean() / count / seeds)
            line += f"{found.mean():11.4f} +-{left:.4f}"
        print(line)


def _left(figures: list[float]) -> float:
    return float(np.std(figures, ddof=1) / np.sqrt(len(figures))) if len(figures) > 1 else float("nan")


if __name__ == "__main__":
    main()
