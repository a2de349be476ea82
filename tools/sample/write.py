"""Puts the rows into files and says in dirt.json what is wrong with which row."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import NamedTuple

import zstandard

from .chance import SEED, unit
from .dirt import DIRT_CLASSES
from .rows import Row, Sample


class Shares(NamedTuple):
    """How much of the rows a file takes."""

    english: float
    other: float


FILES = {
    "docs-en.jsonl.gz": Shares(0.60, 0.0),
    "docs-en-2.jsonl.zst": Shares(0.35, 0.0),
    "docs-mixed.jsonl": Shares(0.05, 0.03),
    "docs-world-1.jsonl": Shares(0.0, 0.10),
    "docs-world-2.jsonl.gz": Shares(0.0, 0.48),
    "docs-world-3.jsonl.zst": Shares(0.0, 0.39),
}
BROKEN_FILE = "docs-world-1.jsonl"


class BrokenLine(NamedTuple):
    """Where a line stands that is no row."""

    file: str
    line: int  # counted from one
    kind: str


def places(row: Row, huge: bool) -> list[str]:
    """The files for a row, the fittest first (rendezvous hashing: a row added elsewhere moves no other row)."""
    weights = {file: shares.english if row.lang == "en" else shares.other for file, shares in FILES.items()}
    # Huge documents go to compressed files only.
    open_to = [file for file, weight in weights.items() if weight and not (huge and file.endswith(".jsonl"))]
    page = row.id.partition("@")[0]
    return sorted(open_to, key=lambda file: -math.log(unit("file", file, page)) / weights[file])


def distribute(sample: Sample) -> dict[str, list[Row]]:
    """Spread the rows over the files, copies away from their originals, and shuffle every file."""
    files: dict[str, list[Row]] = {name: [] for name in FILES}
    for row in sample.rows.values():
        number = int(row.id.partition("@")[2] or 1)
        order = places(row, row.id in sample.dirt["huge"])
        files[order[(number - 1) % len(order)]].append(row)
    return {name: sorted(rows, key=lambda row: (unit("row", row.id), row.id)) for name, rows in files.items()}


def insert_broken(lines: list[bytes], broken: dict[str, bytes]) -> list[BrokenLine]:
    """Put the broken lines among the sound ones, and say where."""
    where = []
    for n, (kind, line) in enumerate(broken.items()):
        at = len(lines) * (2 * n + 1) // 6
        lines.insert(at, line)
        where.append(BrokenLine(BROKEN_FILE, at + 1, kind))
    return where


def data_files(sample: Sample, broken: dict[str, bytes]) -> tuple[dict[str, bytes], list[BrokenLine]]:
    """The files of rows, by name, and where the broken lines stand in them."""
    lines = {name: [row.as_json().encode("utf-8") for row in rows] for name, rows in distribute(sample).items()}
    where = insert_broken(lines[BROKEN_FILE], broken)
    return {name: pack(name, b"".join(line + b"\n" for line in each)) for name, each in lines.items()}, where


def pack(name: str, data: bytes) -> bytes:
    """Compress as the name of the file says, without a time stamp."""
    if name.endswith(".gz"):
        return gzip.compress(data, compresslevel=9, mtime=0)
    if name.endswith(".zst"):
        return zstandard.ZstdCompressor(level=19, write_content_size=True, write_checksum=True).compress(data)
    return data


def unpack(name: str, data: bytes) -> bytes:
    """The contents of a file of the sample."""
    if name.endswith(".gz"):
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompress(data) if name.endswith(".zst") else data


def dirt_json(sample: Sample, broken: list[BrokenLine]) -> bytes:
    """The list of what is wrong with which row, for tests and for the curious."""
    whole = {
        "seed": SEED,
        "rows": len(sample.rows),
        "broken_lines": [each._asdict() for each in broken],
        "classes": {
            label: {**dirt._asdict(), "ids": sorted(sample.dirt[label])} for label, dirt in DIRT_CLASSES.items()
        },
    }
    return (json.dumps(whole, ensure_ascii=False, indent=1) + "\n").encode()


# The bytes of compressed files also depend on the zlib and libzstd in use, so only what is inside them is compared.
def differences(made: dict[str, bytes], out: Path) -> list[str]:
    """The names of files that are missing from a folder or hold something else."""
    return [
        name
        for name, data in made.items()
        if not (out / name).exists() or unpack(name, (out / name).read_bytes()) != unpack(name, data)
    ]
