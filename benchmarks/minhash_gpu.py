"""MinHash signatures on a GPU: texts in its memory, texts of an Arrow column, and texts in Parquet files on disk.

    python benchmarks/minhash_gpu.py --text CORPUS.parquet [--gigabytes 4]

The corpus is repeated until there are so many gigabytes of text. Needs CuPy: pip install "tamis[gpu]".
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.kernels.buffers import TextBuffers
from tamis.kernels.gpu import minhash as gpu
from tamis.kernels.minhash import MinHash, band_hashes

WAYS = {
    "fast, 24 characters, 260": MinHash(),
    "classic, 24 characters, 260": MinHash(scheme="classic"),
    "fast, 24 characters, 260, 64 bits": MinHash(bits=64),
    "classic, 24 characters, 260, 64 bits": MinHash(scheme="classic", bits=64),
    "fast, 5 words, 260": MinHash(ngram=5, unit="word"),
    "classic, 5 words, 112": MinHash(112, 5, "word", "classic"),
}


def best_seconds(work: Callable[[], Any], repetitions: int = 5) -> float:
    work()
    cupy.cuda.Device().synchronize()
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def in_device_memory(column: pa.Array, gigabytes: float) -> None:
    texts = TextBuffers.of(column)
    first, nbytes = int(texts.offsets[0]), texts.nbytes
    copies = max(1, round(gigabytes * 1e9 / nbytes))
    data = cupy.tile(cupy.asarray(texts.data[first : first + nbytes]), copies)
    starts = cupy.asarray(texts.offsets[:-1] - first)
    offsets = cupy.concatenate([*(starts + i * nbytes for i in range(copies)), cupy.asarray([copies * nbytes])])
    print(f"\n{len(offsets) - 1} texts, {data.nbytes / 1e9:.2f} GB in the memory of the GPU")
    for name, settings in WAYS.items():
        seconds = best_seconds(lambda s=settings: gpu.signatures_on_device(s, data, offsets))
        print(f"  {name:40} {data.nbytes / seconds / 1e9:8.1f} GB/s")
    made = gpu.signatures_on_device(MinHash(), data, offsets)
    seconds = best_seconds(lambda: gpu.band_hashes(made, 20))
    print(f"  {'hashes of 20 bands':40} {data.nbytes / seconds / 1e9:8.1f} GB/s of text")


def from_column(column: pa.Array, gigabytes: float) -> None:
    copies = max(1, round(gigabytes * 1e9 / column.nbytes))
    repeated = pa.chunked_array([column] * copies)
    settings = MinHash()
    part = column.slice(0, min(len(column), 2000))
    processor = part.nbytes / _seconds(lambda: band_hashes(settings.signatures(part), 20))
    print(f"\nan Arrow column of {repeated.nbytes / 1e9:.2f} GB in the memory of the host")
    for name, bands in (("signatures", None), ("hashes of 20 bands", 20)):
        rate = repeated.nbytes / best_seconds(lambda b=bands: gpu.signatures(settings, repeated, num_bands=b), 3)
        print(f"  {name:40} {rate / 1e9:8.2f} GB/s, {rate / processor:.1f} x one core ({processor / 1e6:.0f} MB/s)")
    source, target = np.ones(1 << 28, np.uint8), np.ones(1 << 28, np.uint8)
    copying = source.nbytes / _seconds(lambda: np.copyto(target, source))
    print(f"  {'copying in the host, one core':40} {copying / 1e9:8.2f} GB/s")


def _seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def from_parquet(column: pa.Array, gigabytes: float) -> None:
    readers = max(1, len(os.sched_getaffinity(0)) - 2)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{i}.parquet") for i in range(max(readers, round(gigabytes * 1e9 / column.nbytes)))]
        for compression in ("none", "zstd"):
            for file in files:
                pq.write_table(
                    pa.table({"text": column}), file, compression=compression, use_dictionary=False, row_group_size=4096
                )
            size = column.nbytes * len(files)

            def read(file: Path) -> int:
                return int(pq.read_table(file, use_threads=False).num_rows)

            def sign(file: Path) -> int:
                texts = pq.read_table(file, use_threads=False).column("text")
                return len(gpu.signatures(MinHash(), texts, num_bands=20, threads=1))

            def seconds_of(work: Callable[[Path], int]) -> float:
                with ThreadPoolExecutor(readers) as pool:
                    return _seconds(lambda: sum(pool.map(work, files)))

            reading, whole = seconds_of(read), seconds_of(sign)
            print(f"\n{size / 1e9:.2f} GB of text in {len(files)} Parquet files ({compression}), {readers} readers")
            print(f"  {'reading alone':40} {size / reading / 1e9:8.2f} GB/s")
            print(f"  {'reading, signatures, hashes of bands':40} {size / whole / 1e9:8.2f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="a Parquet file with a column 'text'")
    parser.add_argument("--gigabytes", type=float, default=4.0)
    options = parser.parse_args()
    column = pq.read_table(options.text, columns=["text"]).column("text").combine_chunks().cast(pa.large_string())
    print(f"{cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}, {len(column)} texts of {options.text}")
    expected, found = MinHash().signatures(column), gpu.signatures(MinHash(), column)
    print(f"equal to those of the processor: {np.array_equal(expected, found)}")
    in_device_memory(column, options.gigabytes)
    from_column(column, options.gigabytes)
    from_parquet(column, options.gigabytes)


if __name__ == "__main__":
    main()
