"""Signatures with rensa and datasketch, in a Python that has them: texts come in, seconds per byte go out."""

from __future__ import annotations

import json
import sys
import time

texts, unit, ngram, num_hashes = json.load(sys.stdin)


def ngrams(text):
    items = text if unit == "character" else text.split()
    count = max(len(items) - ngram, 0) + 1
    if unit == "character":
        return [items[i : i + ngram] for i in range(count)]
    return [" ".join(items[i : i + ngram]) for i in range(count)]


def with_rensa(text):
    made = rensa.RMinHash(num_perm=num_hashes, seed=42)
    made.update(ngrams(text))
    return made.digest()


def with_rensa_c(text):
    made = rensa.CMinHash(num_perm=num_hashes, seed=42)
    made.update(ngrams(text))
    return made.digest()


def with_datasketch(text):
    made = empty.copy()
    made.update_batch([ngram.encode() for ngram in ngrams(text)])
    return made.digest()


ways = {"Python: n-grams alone": ngrams}
try:
    import rensa

    ways["rensa RMinHash"] = with_rensa
    ways["rensa CMinHash"] = with_rensa_c
except ImportError:
    pass
try:
    import datasketch

    empty = datasketch.MinHash(num_perm=num_hashes)
    ways["datasketch"] = with_datasketch
except ImportError:
    pass
times = {}
for _ in range(3):
    for name, way in ways.items():
        some = texts if name != "datasketch" else texts[: len(texts) // 8]
        began = time.process_time()
        for text in some:
            way(text)
        spent = (time.process_time() - began) / sum(len(text.encode()) for text in some)
        times[name] = min(spent, times.get(name, spent))
print(json.dumps(times))
