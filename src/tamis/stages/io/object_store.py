"""Files in Ray's object store: what machines without a common file system share.

A file is a few objects, each a piece of its bytes, so that a reader fetches the pieces that it needs. An actor beside
the driver, the directory, knows which file consists of which objects and owns them: they outlive the workers that wrote
them, and are freed when the run ends. Ray moves objects to disk where memory is short.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from fsspec import AbstractFileSystem

__all__ = ["PROTOCOL", "ObjectFileSystem", "start_directory"]

PROTOCOL = "tamis-objects"

_NAMESPACE = "tamis"
_LEAST_PIECE, _MOST_PIECES = 2**20, 64
"""A file has up to so many pieces, none smaller than this, in bytes."""

Entry = tuple[list[int], list[Any]]
"""The sizes of the pieces of a file, and the objects."""


def start_directory(**options: Any) -> tuple[Any, str]:
    """Start the actor; return it and the address of a folder for files. The files are there as long as the actor is."""
    import ray

    name = f"tamis-files-{secrets.token_hex(6)}"
    actor = ray.remote(num_cpus=0)(_Directory).options(name=name, namespace=_NAMESPACE, **options).remote()
    return actor, f"{PROTOCOL}://{name}"


class _Directory:
    """The actor: knows the files by their paths."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, Entry]] = {}
        self._shelves: dict[str, Any] = {}

    def take_over(self, path: str, node: str, sizes: list[int], refs: list[Any]) -> list[Any]:
        """Make a file of objects of a worker's; return those that replace them, on the same machine.

        What an actor returns belongs to the caller, here: so the objects that are kept do not end with the worker.
        """
        own: list[Any] = []
        if refs:
            answer = self._shelf(node).copy.options(num_returns=len(refs)).remote(*refs)
            own = [answer] if len(refs) == 1 else list(answer)
        self._add(path, (sizes, own))
        return own

    def _shelf(self, node: str) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if node not in self._shelves:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            shelf = ray.remote(num_cpus=0, max_restarts=-1)(_Shelf)
            self._shelves[node] = shelf.options(scheduling_strategy=where).remote()
        return self._shelves[node]

    def _add(self, path: str, entry: Entry) -> None:
        folder, name = _split(path)
        self._folders.setdefault(folder, {})[name] = entry

    def find(self, paths: Sequence[str]) -> list[Entry | None]:
        places = [_split(path) for path in paths]
        return [self._folders.get(folder, {}).get(name) for folder, name in places]

    def sizes(self, folder: str) -> tuple[dict[str, int], list[str]]:
        below = [other for other in self._folders if other.startswith(f"{folder}/")]
        return {name: sum(entry[0]) for name, entry in self._folders.get(folder, {}).items()}, below

    def move(self, path: str, to: str) -> bool:
        folder, name = _split(path)
        entry = self._folders.get(folder, {}).pop(name, None)
        if entry is not None:
            self._add(to, entry)
        return entry is not None

    def remove(self, path: str) -> bool:
        folder, name = _split(path)
        found = self._folders.get(folder, {}).pop(name, None) is not None
        for other in [other for other in self._folders if other == path or other.startswith(f"{path}/")]:
            found = bool(self._folders.pop(other)) or found
        return found


class _Shelf:
    """An actor on each machine that copies objects, so that the copies belong to the caller."""

    def copy(self, *pieces: Any) -> Any:
        return pieces[0] if len(pieces) == 1 else pieces


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.strip("/").rpartition("/")
    return folder, name


class ObjectFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The fsspec file system of ``tamis-objects://NAME/...``, where ``NAME`` is the actor."""

    protocol = PROTOCOL
    cachable = True
    takes_buffers: ClassVar[bool] = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._actors: dict[str, Any] = {}

    def _actor(self, path: str) -> Any:
        import ray

        name = path.strip("/").partition("/")[0]
        if name not in self._actors:
            gone = FileNotFoundError(f"{PROTOCOL}://{name}: these files ended with the driver that made them")
            if not ray.is_initialized():  # looking for the actor would start a cluster
                raise gone
            try:
                self._actors[name] = ray.get_actor(name, namespace=_NAMESPACE)
            except ValueError as error:
                raise gone from error
        return self._actors[name]

    def _ask(self, path: str, method: str, *arguments: Any) -> Any:
        import ray

        return ray.get(getattr(self._actor(path), method).remote(*arguments))

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        import ray

        path = self._strip_protocol(path)
        content = np.frombuffer(value, np.uint8)
        step = max(_LEAST_PIECE, -(-len(content) // _MOST_PIECES))
        pieces = [content[at : at + step] for at in range(0, len(content), step)]
        refs = [ray.put(piece) for piece in pieces]
        node = ray.get_runtime_context().get_node_id()
        ray.get(self._ask(path, "take_over", path, node, [len(piece) for piece in pieces], refs))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> Any:
        return self.cat_ranges([path], start, end)[0]

    def cat_ranges(
        self, paths: Any, starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return", **_: Any
    ) -> list[Any]:
        import ray

        paths = [self._strip_protocol(path) for path in paths]
        firsts, lasts = (list(v) if isinstance(v, list | tuple) else [v] * len(paths) for v in (starts, ends))
        distinct = list(dict.fromkeys(paths))
        found = dict(zip(distinct, self._ask(paths[0], "find", distinct), strict=True)) if paths else {}
        wanted: list[list[tuple[Any, int, int]]] = []
        for path, first, last in zip(paths, firsts, lasts, strict=True):
            entry = found[path]
            if entry is None:
                raise FileNotFoundError(f"{PROTOCOL}://{path}")
            wanted.append(_pieces(entry, first or 0, sum(entry[0]) if last is None else last))
        refs = list(dict.fromkeys(ref for pieces in wanted for ref, _, _ in pieces))
        try:
            objects = dict(zip(refs, ray.get(refs), strict=True))
        except ray.exceptions.ObjectLostError as error:
            raise OSError(
                "data between stages was in the memory of a machine that is gone. Start the run again; run("
                'scratch="s3://...") or a directory that all machines share keeps such data safe'
            ) from error
        return [_joined([objects[ref][start:stop] for ref, start, stop in pieces]) for pieces in wanted]

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path).rstrip("/")
        files, folders = self._ask(path, "sizes", path)
        if not files and not folders:
            raise FileNotFoundError(f"{PROTOCOL}://{path}")
        below = dict.fromkeys(other[len(path) + 1 :].partition("/")[0] for other in folders)
        found = [{"name": f"{path}/{name}", "size": size, "type": "file"} for name, size in files.items()]
        found += [{"name": f"{path}/{name}", "size": 0, "type": "directory"} for name in below if name not in files]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path).rstrip("/")
        (entry,) = self._ask(path, "find", [path])
        if entry is not None:
            return {"name": path, "size": sum(entry[0]), "type": "file"}
        self.ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        if not self._ask(self._strip_protocol(path1), "move", *map(self._strip_protocol, (path1, path2))):
            raise FileNotFoundError(path1)

    def rm_file(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self._ask(path, "remove", path):
            raise FileNotFoundError(path)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self.rm_file(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing to do: a folder is there when it has a file."""

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return io.BytesIO(self.cat_file(path)) if mode == "rb" else _Written(self, path)


class _Written(io.BytesIO):
    """A file that is written to memory and stored when it is closed, unless an exception ends the block."""

    def __init__(self, fs: ObjectFileSystem, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            self._fs.pipe_file(self._path, self.getbuffer())
        super().close()


def _pieces(entry: Entry, start: int, stop: int) -> list[tuple[Any, int, int]]:
    """The objects that hold a range of bytes, with the range inside each."""
    found, at = [], 0
    for size, ref in zip(*entry, strict=True):
        if at < stop and at + size > start:
            found.append((ref, max(start - at, 0), min(stop - at, size)))
        at += size
    return found


def _joined(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return memoryview(pieces[0])
    return b"".join(memoryview(piece) for piece in pieces)
