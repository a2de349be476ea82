"""``nemo_curator.utils`` for scripts: listing, splitting and merging files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec

from tamis.errors import MissingExtraError
from tamis.stages.io import megatron
from tamis.stages.io.paths import base_name, filesystem, is_local, join, make_directory, open_read, open_write

__all__ = [
    "get_all_file_paths_and_size_under",
    "get_all_file_paths_under",
    "get_deterministic_hash",
    "get_fs",
    "is_remote_url",
    "merge_file_prefixes",
    "split_jsonl_file_by_size",
]

Options = dict[str, Any] | None


def get_fs(path: str, storage_options: Options = None) -> fsspec.AbstractFileSystem:
    """The fsspec file system of a path."""
    return filesystem(path, storage_options)[0]


def is_remote_url(url: str) -> bool:
    """Whether an address is not a path on this machine.

    >>> is_remote_url("s3://bucket/key"), is_remote_url("/data/a.jsonl")
    (True, False)
    """
    return not is_local(url)


def get_deterministic_hash(inputs: Sequence[str], seed: str = "") -> str:
    """Twelve hexadecimal digits that follow from some texts, in any order, and a seed.

    >>> get_deterministic_hash(["a", "b"]) == get_deterministic_hash(["b", "a"])
    True
    """
    return hashlib.sha256(f"{'|'.join(sorted(inputs))}|{seed}".encode()).hexdigest()[:12]


def get_all_file_paths_and_size_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | Sequence[str] | None = None,
    storage_options: Options = None,
    fs: fsspec.AbstractFileSystem | None = None,
    sort_by_size: bool = True,
) -> list[tuple[str, int]]:
    """The files in a directory with their sizes in bytes (-1 when unknown).

    Args:
        path: A directory, a file or a pattern.
        recurse_subdirectories: Whether to list files in subdirectories, too.
        keep_extensions: Only files with these endings, with or without a dot, in any case.
        storage_options: For the fsspec file system.
        fs: The file system, instead of the one that the path and the options name.
        sort_by_size: Whether to sort by size, the smallest first; otherwise by path.
    """
    system = fs or get_fs(path, storage_options)
    some = [keep_extensions] if isinstance(keep_extensions, str) else keep_extensions
    wanted = None if some is None else {ending.casefold().lstrip(".") for ending in some}
    found: list[tuple[str, int]] = []
    for root in system.glob(path) if any(c in path for c in "*?[") else [system._strip_protocol(path)]:
        if system.isdir(root):
            listed = system.find(root, maxdepth=None if recurse_subdirectories else 1, detail=True)
        else:
            listed = {root: system.info(root)} if system.exists(root) else {}
        for file, about in listed.items():
            if wanted is None or os.path.splitext(base_name(file))[1].casefold().lstrip(".") in wanted:
                size = about.get("size")
                full = system.unstrip_protocol(file) if is_remote_url(path) else file
                found.append((full, -1 if size is None else int(size)))
    return sorted(found, key=lambda pair: (pair[1], pair[0]) if sort_by_size else (0, pair[0]))


def get_all_file_paths_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | Sequence[str] | None = None,
    storage_options: Options = None,
    fs: fsspec.AbstractFileSystem | None = None,
) -> list[str]:
    """The files in a directory, sorted; see :func:`get_all_file_paths_and_size_under`."""
    sized = get_all_file_paths_and_size_under(
        path, recurse_subdirectories, keep_extensions, storage_options, fs, sort_by_size=False
    )
    return [file for file, _ in sized]


class RayFunction:
    """A function that can be called as it is, or on a Ray cluster with ``remote()``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Call it here."""
        return self._function(*arguments, **settings)

    def remote(self, *arguments: Any, **settings: Any) -> Any:
        """Call it on the cluster; returns a reference for ``ray.get()``."""
        try:
            import ray
        except ImportError as e:
            raise MissingExtraError(f"{self.__name__}.remote()", package="ray", extra="ray") from e
        return ray.remote(self._function).remote(*arguments, **settings)


def _split_jsonl(input_file: str, output_path: str, target_size_mb: int = 128, storage_options: Options = None) -> None:
    """Split a JSON lines file into files up to a size, ``<name>_<number>.jsonl``.

    A line is never cut: one that is longer than the size is a file by itself.

    Args:
        input_file: The file.
        output_path: The directory for the new ones.
        target_size_mb: Their size, in MiB.
        storage_options: For fsspec file systems.
    """
    stem, ending = os.path.splitext(base_name(input_file))
    make_directory(output_path, storage_options)
    number, sink, room = 0, None, 0
    try:
        with open_read(input_file, storage_options) as lines:
            for line in lines:
                if sink is None or len(line) > room:
                    if sink is not None:
                        sink.close()
                        number += 1
                    sink = open_write(join(output_path, f"{stem}_{number}{ending}"), storage_options)
                    room = target_size_mb * 2**20
                sink.write(line)
                room -= len(line)
    finally:
        if sink is not None:
            sink.close()


split_jsonl_file_by_size = RayFunction(_split_jsonl)


def merge_file_prefixes(input_dir: str, output_prefix: str) -> None:
    """Merge all pairs of ``.bin`` and ``.idx`` in a directory into one, in the order of their names."""
    names = {path.with_suffix("") for path in Path(input_dir).iterdir() if path.suffix in (".bin", ".idx")}
    pairs = sorted(str(name) for name in names)
    for pair in pairs:
        for ending in (".bin", ".idx"):
            if not os.path.isfile(pair + ending):
                raise FileNotFoundError(f"{pair}{ending} is missing, but the other file of the pair exists")
    if not pairs:
        raise ValueError(f"there is no pair of .bin and .idx files in {input_dir}")
    megatron.merge_file_prefixes(pairs, output_prefix)
