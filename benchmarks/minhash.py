"""MinHash signatures on one core: tamis, rensa and datasketch on the same texts, n-grams and number of hashes.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install rensa datasketch numpy
    python benchmarks/minhash.py --text CORPUS.parquet --peers /tmp/peers/bin/python

Without ``--peers``, the peers are looked for in this Python; one that is not installed is left out. Rates are bytes of
UTF-8 per second of CPU time of one thread, the best of several repetitions that take turns. A peer gets the n-grams as
Python strings, as its documentation shows; the time to make them is part of its rate, and shown by itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.kernels import native
from tamis.kernels.minhash import MinHash, band_hashes

BANDS = {260: 20, 112: 14}
WORK = [("character", 24, 260), ("word", 5, 112)]
AIMS = {"fast, with bands": 135e6, "classic": 57e6}

PEERS = Path(__file__).parent / "peers" / "minhash_peers.py"


def best_rates(ways: dict[str, Callable[[], Any]], nbytes: int, repetitions: int = 7) -> dict[str, float]:
    """Bytes per second of CPU time."""
    best: dict[str, float] = {}
    for _ in range(repetitions):
        for name, way in ways.items():
            began = time.process_time()
            way()
            best[name] = max(nbytes / (time.process_time() - began), best.get(name, 0.0))
    return best


def peer_rates(python: str, texts: list[str], unit: str, ngram: int, num_hashes: int) -> dict[str, float]:
    given = json.dumps([texts, unit, ngram, num_hashes])
    done = subprocess.run([python, str(PEERS)], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return {name: 1 / seconds for name, seconds in json.loads(done.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column 'text'")
    parser.add_argument("--peers", default=sys.executable, help="a Python with rensa and datasketch")
    parser.add_argument("--megabytes", type=float, default=20.0)
    options = parser.parse_args()
    whole = pq.read_table(options.text, columns=["text"]).column("text").combine_chunks()
    column = whole.take(pa.array(range(0, len(whole), max(1, int(whole.nbytes / 1e6 / options.megabytes)))))
    few = column.slice(0, max(1, int(len(column) / options.megabytes)))  # about a megabyte, for the peers
    if native.load("minhash") is None:
        raise SystemExit("the kernels are not compiled: set TAMIS_KERNELS=wait")
    print(f"{len(column)} texts, {column.nbytes / 1e6:.1f} MB; peers: {len(few)} texts, {few.nbytes / 1e6:.1f} MB")
    for unit, ngram, num_hashes in WORK:
        fast, classic = (MinHash(num_hashes, ngram, unit, scheme) for scheme in ("fast", "classic"))
        ways = {
            "fast": lambda fast=fast: fast.signatures(column),
            "fast, with bands": lambda fast=fast: band_hashes(fast.signatures(column), BANDS[fast.num_hashes]),
            "classic": lambda classic=classic: classic.signatures(column),
            "exact Jaccard index": lambda fast=fast: fast.jaccard(column.slice(1), column.slice(0, len(column) - 1)),
        }
        for scheme in ("fast", "classic"):
            wide = MinHash(num_hashes, ngram, unit, scheme, bits=64)
            ways[f"{scheme}, 64 bits"] = lambda wide=wide: wide.signatures(column)
        rates = best_rates(ways, column.nbytes)
        rates["exact Jaccard index"] *= 2  # it reads two texts per row
        peers = peer_rates(options.peers, few.to_pylist(), unit, ngram, num_hashes)
        print(f"\n{ngram} {unit}s, {num_hashes} hashes")
        for name, rate in rates.items():
            aim = f"   aim {AIMS[name] / 1e6:.0f}" if name in AIMS and unit == "character" else ""
            print(f"  tamis: {name:24} {rate / 1e6:8.1f} MB/s{aim}")
        for name, rate in peers.items():
            ratios = ", ".join(f"{scheme} {rates[scheme] / rate:.0f} x" for scheme in ("fast", "classic"))
            print(f"  {name:31} {rate / 1e6:8.2f} MB/s   tamis: {ratios}")


if __name__ == "__main__":
    main()
