"""Read images from tar files in the layout of WebDataset, large ones in parts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tamis.errors import DataError, PlanError, redacted
from tamis.sizes import byte_size
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.image.io.image_files import ImageFiles
from tamis.stages.image.io.samples import ImageRow, RowTable, distinct_ids, is_image, json_line
from tamis.stages.image.io.tar_members import Damage, Member, TarSource, key_of, members
from tamis.stages.io.arguments import check_choice, parse_types
from tamis.stages.io.blocks import MAX_ROW_BYTES, QUARANTINE_HINT, refused, too_long
from tamis.stages.io.partitioning import DEFAULT_BLOCK_BYTES
from tamis.stages.io.paths import COMPRESSED, COMPRESSED_TARS, base_name, compression_of
from tamis.tasks import FileGroup, FileSlice, ImageBatch

__all__ = ["IMAGE_IDS", "TAR_ENDINGS", "TarPartsStage", "WebDatasetReader", "WebDatasetReaderStage"]

IMAGE_IDS = ("key", "number")

TAR_ENDINGS = (".tar", *COMPRESSED_TARS)
"""How names of tars end; ``.tar`` also with the ending of a compression after it."""


@dataclass
class TarPartsStage(ProcessingStage[FileGroup, FileGroup]):
    """Cut large tars into parts of whole samples, by their headers alone; small and compressed ones stay whole.

    Args:
        part_bytes: About the size of a part, in bytes.
        storage_options: For the fsspec file system.
    """

    part_bytes: int = DEFAULT_BLOCK_BYTES
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)

    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True
    fans_out: ClassVar[bool] = True

    def process(self, task: FileGroup) -> Iterator[FileGroup]:
        whole = []
        for file in task.slices:
            if file.is_whole and file.size > self.part_bytes and compression_of(file.path) is None:
                yield from (self._group(task, [part], first) for part, first in self._parts(file))
            else:
                whole.append(file)
        if whole:
            yield self._group(task, whole, 0)

    def _group(self, task: FileGroup, slices: list[FileSlice], first_image: int) -> FileGroup:
        config = {**task.reader_config, "first_image": first_image}
        paths = [file.path for file in slices]
        return FileGroup(
            paths,
            dataset_name=task.dataset_name,
            slices=tuple(slices),
            reader_config=config,
            _metadata=dict(task._metadata),
        )

    def _parts(self, file: FileSlice) -> Iterator[tuple[FileSlice, int]]:
        """The parts, and how many images come before each. What is damaged is left to who reads it."""
        start = images = before = 0
        key: str | None = None
        with TarSource(file, self.storage_options, seeks=True) as source:
            for member in members(source, size=file.size):
                if isinstance(member, Damage):
                    continue
                found = key_of(member.name)
                if found is None or found[0] != key:
                    if member.start - start >= self.part_bytes:
                        yield replace(file, start=start, stop=member.start), before
                        start, before = member.start, images
                    key = found[0] if found else None
                images += is_image(member.name)
        yield replace(file, start=start, stop=file.size), before


@dataclass
class WebDatasetReaderStage(ProcessingStage[FileGroup, ImageBatch]):
    """Read the images of the tars, or parts of tars, of a task.

    Args:
        batch_images: How many images a batch has at most.
        batch_bytes_read: How many bytes of images it has at most, apart from a single larger one.
        fields: Columns to read; all of them when not given. Without ``image_bytes`` the images themselves are skipped.
        image_ids: ``"key"`` or ``"number"``; see :class:`WebDatasetReader`.
        types: Arrow types by column, of fields of JSON.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside.
        storage_options: For the fsspec file system.
        max_row_bytes: Largest file in a tar that is read, in bytes.
    """

    batch_images: int = 100
    batch_bytes_read: int = DEFAULT_BLOCK_BYTES
    fields: list[str] | None = None
    image_ids: str = "key"
    types: dict[str, str] = field(default_factory=dict)
    on_error: str = "raise"
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    max_row_bytes: int = MAX_ROW_BYTES

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = type(self).__name__
        check_choice(owner, "image_ids", self.image_ids, IMAGE_IDS)
        check_choice(owner, "on_error", self.on_error, ("raise", "quarantine"))
        if self.batch_images < 1:
            raise PlanError(f"{owner}: a batch must have at least 1 image, not {self.batch_images}")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.fields or []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None if self.fields is None else frozenset(self.fields)

    def process(self, task: FileGroup) -> Iterator[ImageBatch | BadRows]:
        table = RowTable(self.fields, parse_types(self.name, self.types), self.image_ids == "key")
        held: list[ImageRow] = []
        held_bytes = 0
        for found in self._rows(task):
            if isinstance(found, BadRows):
                yield found
                continue
            if held and (len(held) == self.batch_images or held_bytes + found.nbytes > self.batch_bytes_read):
                yield from self._batch(task, table, held)
                held, held_bytes = [], 0
            held.append(found)
            held_bytes += found.nbytes
        if held:
            yield from self._batch(task, table, held)

    def _batch(self, task: FileGroup, table: RowTable, rows: list[ImageRow]) -> Iterator[ImageBatch | BadRows]:
        """The rows as a batch, after those of which the JSON holds what no table can."""
        try:
            made, names = table.of(rows)
        except DataError:
            readable = []
            for row in rows:
                try:
                    table.of([row])
                    readable.append(row)
                except DataError as e:
                    error = DataError(e.problem, path=row.source, byte=row.position, hint=QUARANTINE_HINT)
                    yield refused(error, self.on_error, row.fields or b"")
            if not readable:
                return
            made, names = table.of(readable)
        metadata = {**task._metadata, "source_files": task.data}
        yield ImageBatch(made, dataset_name=task.dataset_name, _metadata=metadata).named(names)

    def _rows(self, task: FileGroup) -> Iterator[ImageRow | BadRows]:
        first = task.reader_config.get("first_image", 0)
        for file in task.slices:
            try:
                yield from self._rows_of(file, first if len(task.slices) == 1 else 0)
            except DataError as e:
                yield refused(e, self.on_error)

    def _rows_of(self, file: FileSlice, number: int) -> Iterator[ImageRow | BadRows]:
        """The rows of one tar or part of one."""
        stem = _stem(file.path)
        keeps = compression_of(file.path) is None
        left_out = 0
        with TarSource(file, self.storage_options) as source:
            for key, sample in self._samples(source, file):
                if isinstance(sample, BadRows):
                    yield sample
                    continue
                images = [(member, data) for member, data in sample if is_image(member.name)]
                if not images:
                    left_out += len(sample)
                    continue
                first, number = number, number + len(images)
                shared = self._companions(file.path, [each for each in sample if not is_image(each[0].name)], images)
                if isinstance(shared, BadRows):
                    yield shared
                    continue
                ids = distinct_ids([member.name for member, _ in images], key) if key else []
                for i, (member, data) in enumerate(images):
                    if member.problem:
                        problem = f"the file {member.name!r} cannot be read: {member.problem}"
                        error = DataError(problem, path=file.path, byte=member.start, hint=QUARANTINE_HINT)
                        yield refused(error, self.on_error)
                        continue
                    by_number = self.image_ids == "number" or not ids
                    row = ImageRow(
                        source=redacted(file.path),
                        position=member.start,
                        image_id=f"{stem}_{first + i:06d}" if by_number else ids[i],
                        nbytes=len(data),
                        data=data if self._wants_bytes else None,
                        **shared,
                    )
                    if keeps:
                        row.path, row.offset, row.size = file.path, member.data, member.size
                    yield row
        if left_out:
            self.log_metric("files_without_image", left_out)

    @property
    def _wants_bytes(self) -> bool:
        return self.fields is None or "image_bytes" in self.fields

    def _samples(
        self, source: TarSource, file: FileSlice
    ) -> Iterator[tuple[str, list[tuple[Member, bytes]] | BadRows]]:
        """Members with the same key that follow one another, with their bytes; the key is empty if there is none.

        A name that comes again begins a new sample, so that two samples with the same key stay apart.
        """
        key, sample = "", list[tuple[Member, bytes]]()
        stop = None if file.stop is None or file.stop == file.size else file.stop
        size = file.size if compression_of(file.path) is None else -1  # that of the tar, not of the file
        for found in members(source, stop, size):
            if isinstance(found, Damage):
                problem = f"{found.problem}; bytes {found.start} to {found.stop} are left out"
                error = DataError(problem, path=file.path, byte=found.start, hint=QUARANTINE_HINT)
                yield "", refused(error, self.on_error)
                continue
            parsed = key_of(found.name)
            is_ours = is_image(found.name)
            new = parsed[0] if parsed else ""
            if sample and (new != key or not new or any(found.name == other.name for other, _ in sample)):
                yield key, sample
                sample = []
            key = new
            if not is_ours and (parsed is None or parsed[1] not in _COMPANIONS):
                sample.append((found, b""))
                continue
            if found.size > self.max_row_bytes and not found.problem:
                found = replace(found, problem=too_long("file", self.max_row_bytes, file.path).problem)
            if found.problem:
                sample.append((found, b""))
                continue
            data = source.take(found.size) if not is_ours or self._wants_bytes else b""
            if len(data) < found.size and (not is_ours or self._wants_bytes):
                problem = f"the tar is cut off in the file {found.name!r}"
                error = DataError(problem, path=file.path, byte=found.start, hint=QUARANTINE_HINT)
                yield "", refused(error, self.on_error)
                break
            sample.append((found, data))
        if sample:
            yield key, sample

    def _companions(
        self, path: str, files: list[tuple[Member, bytes]], images: list[tuple[Member, bytes]]
    ) -> dict[str, Any] | BadRows:
        """What the files beside images say; or what is wrong with one, and then these images are left out."""
        known: dict[str, Any] = {}
        for member, data in files:
            parsed = key_of(member.name)
            kind = parsed[1] if parsed else ""
            try:
                if member.problem and kind in _COMPANIONS:
                    raise ValueError(member.problem)
                if kind == "txt":
                    known["caption"] = data.decode("utf-8-sig")
                elif kind == "cls":
                    known["label"] = int(data)
                elif kind == "json":
                    known["fields"] = json_line(data)
            except (ValueError, RecursionError) as e:
                problem = f"the file {member.name!r} beside an image cannot be read: {e}"
                error = DataError(problem, path=path, byte=member.start, hint=QUARANTINE_HINT)
                if self.on_error == "raise":
                    raise error from e
                return BadRows(tuple(BadRow(path, None, image.start, problem, data[:1000]) for image, _ in images))
        return known


def _stem(path: str) -> str:
    """The name of a tar without its ending.

    >>> _stem("shards/a.7.tar"), _stem("a.7.tar.gz")
    ('a.7', 'a.7')
    """
    name, ending = os.path.splitext(base_name(path))
    return os.path.splitext(name)[0] if ending.lower() in COMPRESSED else name


_COMPANIONS = frozenset({"txt", "cls", "json"})


@dataclass
class WebDatasetReader(ImageFiles):
    """Read images from tars in the layout of WebDataset, with their captions and metadata.

    Files that follow one another and have the same key (the name up to the first dot) are one sample. Each of its
    images is a row: ``image_bytes``, where these are (``image_path``, ``byte_offset``, ``byte_size``), ``image_id``,
    ``caption`` (from ``.txt``, or else from ``"caption"`` in ``.json``), ``cls``, and a column per field of ``.json``.
    Other files, and samples without an image, are left out and counted. Tars larger than ``blocksize`` are read in
    parts by several workers.

    The other arguments are those of every :class:`~tamis.stages.image.io.image_files.ImageFiles`.

    Args:
        image_ids: ``"key"``: an id is the key of the sample. If it has several images, it is their name without the
            ending. ``"number"``: it is the name of the tar and the number of the image in it (``"shard_000012"``), as
            in NeMo Curator; so are the ids of files whose name gives no key.
        types: Arrow types by column (``{"width": "int32"}``), of fields of JSON; others are inferred.

    >>> WebDatasetReader("shards", batch_images=50).decompose()[-1].batch_images
    50
    """

    image_ids: str = "key"
    types: dict[str, str] = field(default_factory=dict)

    extensions: ClassVar[tuple[str, ...]] = TAR_ENDINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        reading = WebDatasetReaderStage(
            self.batch_images,
            self.block_bytes,
            self.fields,
            self.image_ids,
            self.types,
            self.on_error,
            self.storage_options,
            byte_size(self.max_row_bytes),
        )
        parts = TarPartsStage(self.block_bytes, self.storage_options)
        return [self.listing(), parts.with_(name=f"{self.name} (parts)"), reading.with_(name=self.name)]
