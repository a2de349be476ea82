"""Quality of fuzzy deduplication on real documents with planted near-duplicates, beside the theory and datatrove.

    python benchmarks/fuzzy_quality.py --input CORPUS.parquet [--originals 1200] [--seeds 5] [--datatrove-python PYTHON]

Documents of CORPUS, and of each some copies: words edited at several rates, cut off, with text of another document
around, with sentences that changed places. All pairs of documents with a Jaccard similarity of 0.4 and more are found
by an inverted index, and their similarity is computed exactly. Then, by similarity:

* recall: the share of these pairs that agree in a band, and so are found; beside it what theory says for exactly
  these similarities, ``1 - (1 - s**r)**b``, the difference in points, and its standard error (pairs of one family and
  seed count as one observation, since they are not independent).
* precision: the share of the pairs found which are at least so similar, and the same according to theory.
* groups: what the whole stage puts into one group (also pairs that are only similar to a third document), without and
  with ``verify``.

datatrove has n-grams of words of simplified texts: its pairs, similarities and theory are those of its own n-grams.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dedup_parts.pairs import exact_jaccard, pairs_in_buckets, pairs_in_groups, similar_pairs
from dedup_parts.planted import Planted, plant, read_documents
from peers.environments import datatrove_python
from peers.running import run_worker

from tamis import LocalExecutor, Pipeline
from tamis.kernels.components import components_of
from tamis.kernels.minhash import MinHash, band_hashes
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.io import ParquetReader

BANDS, ROWS = 20, 13
LEAST = 0.4
BINS = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8)


@dataclass(frozen=True)
class Truth:
    """What is similar: the n-grams of documents, all pairs of some similarity and the similarity of each."""

    shingles: np.ndarray
    offsets: np.ndarray
    pairs: np.ndarray
    similarity: np.ndarray

    @classmethod
    def of(cls, shingles: np.ndarray, offsets: np.ndarray) -> Truth:
        pairs = similar_pairs(shingles, offsets, LEAST)
        return cls(shingles, offsets, pairs, exact_jaccard(shingles, offsets, pairs))


def theory(similarity: np.ndarray) -> np.ndarray:
    """How probably a pair of some similarity is found."""
    return 1 - (1 - similarity**ROWS) ** BANDS


def tamis_truth(texts: list[str]) -> Truth:
    found = MinHash().shingles(pa.array(texts, pa.large_string()))
    counts = np.diff(found.offsets.to_numpy())
    documents = np.repeat(np.arange(len(texts)), counts)
    hashes = found.values.to_numpy()
    order = np.lexsort((hashes, documents))
    hashes, documents = hashes[order], documents[order]
    is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (documents[1:] != documents[:-1]))
    sizes = np.bincount(documents[is_new], minlength=len(texts))
    return Truth.of(hashes[is_new], np.concatenate([[0], np.cumsum(sizes)]))


def show_recall(title: str, truth: Truth, families: np.ndarray, all_bands: list[np.ndarray]) -> None:
    """The table by similarity; several seeds are several observations of each pair."""
    first, second = truth.pairs.T
    expected = theory(truth.similarity)
    found = np.stack([(bands[first] == bands[second]).any(axis=1) for bands in all_bands])
    print(f"\n{title}: {len(all_bands)} seeds")
    print(f"{'similarity':<14}{'pairs':>9}{'recall':>10}{'theory':>10}{'difference':>12}{'its error':>11}   points")
    for low, high in [*itertools.pairwise(BINS), (1.0, 1.0)]:
        here = truth.similarity == 1 if low == 1 else (truth.similarity >= low) & (truth.similarity < high)
        if not here.any():
            continue
        left = found[:, here] - expected[here]
        clusters = np.unique(families[first[here]], return_inverse=True)[1]
        sums = np.stack([np.bincount(clusters, some) for some in left])
        error = np.sqrt((sums**2).sum()) / left.size
        name = "1" if low == 1 else f"{low:.2f} to {high:.2f}"
        recall, curve = 100 * found[:, here].mean(), 100 * expected[here].mean()
        print(f"{name:<14}{here.sum():>9,}{recall:>10.2f}{curve:>10.2f}{recall - curve:>+12.2f}{100 * error:>11.2f}")


def show_precision(truth: Truth, all_bands: list[np.ndarray]) -> None:
    expected = theory(truth.similarity)
    found = [exact_jaccard(truth.shingles, truth.offsets, pairs_in_buckets(bands)) for bands in all_bands]
    merged = np.concatenate(found)
    print(f"\npairs found, for each seed: {', '.join(f'{len(some):,}' for some in found)}")
    print(f"least similarity of a pair found: {merged.min():.2f}")
    print(f"{'at least':<14}{'precision':>10}{'theory':>10}{'difference':>12}   points")
    for threshold in THRESHOLDS:
        precision = 100 * (merged >= threshold).mean()
        # Pairs below LEAST are not in the sum: theory finds one of some hundred thousand of them.
        curve = 100 * expected[truth.similarity >= threshold].sum() / expected.sum()
        print(f"{threshold:<14}{precision:>10.2f}{curve:>10.2f}{precision - curve:>+12.2f}")


def closure(truth: Truth, threshold: float) -> np.ndarray:
    """The groups that pairs of at least some similarity form; -1 for documents that are in none."""
    chosen = truth.pairs[truth.similarity >= threshold]
    groups = components_of(chosen[:, 0], chosen[:, 1], len(truth.offsets) - 1).astype(np.int64)
    counts = np.bincount(groups, minlength=len(groups))
    return np.where(counts[groups] > 1, groups, -1)


def show_groups(title: str, truth: Truth, families: np.ndarray, groups: np.ndarray, threshold: float = 0.8) -> None:
    """What share of the similar pairs is in one group, and how similar the pairs of a group are."""
    similar = truth.pairs[truth.similarity >= threshold]
    together = (groups[similar[:, 0]] >= 0) & (groups[similar[:, 0]] == groups[similar[:, 1]])
    made = pairs_in_groups(groups)
    how = exact_jaccard(truth.shingles, truth.offsets, made)
    whole = closure(truth, threshold)
    joined = (whole[made[:, 0]] >= 0) & (whole[made[:, 0]] == whole[made[:, 1]])
    all_joined = pairs_in_groups(whole)
    reached = (groups[all_joined[:, 0]] >= 0) & (groups[all_joined[:, 0]] == groups[all_joined[:, 1]])
    family = families[made[:, 0]] == families[made[:, 1]]
    print(
        f"{title:<34}{len(made):>9,}{100 * together.mean():>12.2f}{100 * (how >= threshold).mean():>12.2f}"
        f"{100 * reached.mean():>12.2f}{100 * joined.mean():>12.2f}{100 * family.mean():>12.2f}"
    )


def show_groups_head(threshold: float = 0.8) -> None:
    print(f"\ngroups, in percent, for a similarity of {threshold}")
    print(f"{'':<34}{'pairs in':>9}{'recall,':>12}{'precision,':>12}{'recall,':>12}{'precision,':>12}{'of one':>12}")
    print(f"{'':<34}{'groups':>9}{'pairs':>12}{'pairs':>12}{'closure':>12}{'closure':>12}{'family':>12}")


def stage_groups(path: str, count: int, **settings: object) -> np.ndarray:
    """The groups that the stage makes, from what it says about the rows it removed."""
    groups = np.full(count, -1)
    with tempfile.TemporaryDirectory() as folder:
        stages = [ParquetReader(path), FuzzyDeduplication(**settings)]  # type: ignore[arg-type]
        result = Pipeline("quality", stages).run(LocalExecutor(1), run_dir=f"{folder}/run", progress="off")
        for drop in result.drops().to_pylist():
            groups[drop["position"]] = int(drop["score_text"].rpartition(":")[2])
    groups[np.unique(groups[groups >= 0])] = np.unique(groups[groups >= 0])
    return groups


def tamis_tables(planted: Planted, path: str, seeds: int) -> None:
    texts = pa.array(planted.texts, pa.large_string())
    truth = tamis_truth(planted.texts)
    print(f"pairs with a similarity of {LEAST} or more: {len(truth.pairs):,}")
    for scheme in ("fast", "classic"):
        bands = [band_hashes(MinHash(seed=seed, scheme=scheme).signatures(texts), BANDS) for seed in range(seeds)]
        show_recall(f"tamis, 24 characters, {scheme}", truth, planted.families, bands)
        show_precision(truth, bands)
    show_groups_head()
    count = len(planted.texts)
    show_groups("tamis", truth, planted.families, stage_groups(path, count))
    show_groups("tamis, verify=0.8", truth, planted.families, stage_groups(path, count, verify=0.8))


def datatrove_tables(planted: Planted, folder: str, path: str, python: str, words: int, seeds: int) -> None:
    settings = (BANDS, ROWS, words, "split")
    run_worker(python, "datatrove_dedup.py", "signatures", path, folder, *settings, seeds)
    shingles, offsets, signatures = (
        np.load(Path(folder) / f"{name}.npy") for name in ("shingles", "offsets", "signatures")
    )
    truth = Truth.of(shingles, offsets)
    all_bands = []
    empty = np.diff(offsets) == 0
    for seed in range(seeds):
        flat = np.ascontiguousarray(signatures[:, seed]).reshape(-1, ROWS)
        bands = np.unique(flat.view(f"V{flat.itemsize * ROWS}"), return_inverse=True)[1].reshape(-1, BANDS)
        bands[empty] = -1 - np.arange(empty.sum())[:, None]  # documents without an n-gram meet nobody
        all_bands.append(bands)
    print(f"\ndatatrove: pairs with a similarity of {LEAST} or more: {len(truth.pairs):,}")
    show_recall(f"datatrove, {words} words", truth, planted.families, all_bands)
    show_precision(truth, all_bands)
    output = Path(folder, "out")
    ran = run_worker(python, "datatrove_dedup.py", "run", Path(path).parent, output, *settings)
    groups = np.full(len(planted.texts), -1)
    for document, cluster in ran.answer["clusters"].get("000000", []):
        groups[document] = cluster
    show_groups_head()
    show_groups("datatrove", truth, planted.families, groups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="a Parquet file with a column text")
    parser.add_argument("--originals", type=int, default=1200, help="documents of which copies are made")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--words", type=int, default=5, help="words of an n-gram, for datatrove")
    parser.add_argument("--datatrove-python", help="an interpreter that has datatrove")
    parser.add_argument("--without-datatrove", action="store_true")
    given = parser.parse_args()
    planted = plant(read_documents(given.input), given.originals)
    size = sum(len(text.encode()) for text in planted.texts)
    print(f"{len(planted.texts):,} documents, {size / 1e6:.1f} MB, of {given.originals:,} originals")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data", "documents.parquet")
        path.parent.mkdir()
        pq.write_table(pa.table({"text": planted.texts}), path)
        tamis_tables(planted, str(path), given.seeds)
        if not given.without_datatrove:
            python = datatrove_python(given.datatrove_python)
            datatrove_tables(planted, folder, str(path), python, given.words, given.seeds)


if __name__ == "__main__":
    main()
