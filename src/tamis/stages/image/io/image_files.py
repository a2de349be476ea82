"""Read images from folders of files, and what all readers of images have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import DataError, PlanError, redacted
from tamis.sizes import byte_size
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import BadRows
from tamis.stages.image.io.samples import IMAGE_ENDINGS, ImageRow, RowTable
from tamis.stages.io.arguments import check_choice, check_names, path_list
from tamis.stages.io.blocks import MAX_ROW_BYTES, refused, too_long
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.partitioning import DEFAULT_BLOCK_BYTES, FilePartitioningStage
from tamis.stages.io.paths import absolute, join, open_read, parent, reading
from tamis.tasks import EmptyTask, FileGroup, FileSlice, ImageBatch

__all__ = ["ImageFiles", "ImageFolderReader", "ImageFolderReaderStage"]


@dataclass
class ImageFiles(CompositeStage[EmptyTask, ImageBatch]):
    """List files and read images from them. The base of readers of images; all of them take these arguments.

    Args:
        file_paths: A file, a directory (with all below it), a pattern such as ``"data/**/*.tar"``, or any fsspec
            address (``s3://``, ``gs://``, ...); or a list of those.
        files_per_partition: Whole files per task, instead of ``blocksize``.
        blocksize: Bytes of input per task, as a number or as ``"64MiB"``; 32 MiB by default. A batch has no more.
        batch_images: How many images a batch has at most.
        fields: Columns to read; all of them when not given. Without ``image_bytes``, rows only say where images are.
        file_extensions: Endings to look for in directories.
        storage_options: For the fsspec file system.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside and goes on.
        max_row_bytes: Largest image that is read, as a number or as ``"1GiB"``; a larger one counts as broken.
    """

    file_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    batch_images: int = 100
    fields: list[str] | None = None
    file_extensions: list[str] | None = None
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    on_error: str = "raise"
    max_row_bytes: int | str = MAX_ROW_BYTES

    extensions: ClassVar[tuple[str, ...]] = ()
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = type(self).__name__
        self.file_paths = path_list(owner, "file_paths", self.file_paths)
        check_choice(owner, "on_error", self.on_error, ("raise", "quarantine"))
        check_names(owner, "fields", self.fields)
        if self.batch_images < 1:
            raise PlanError(f"{owner}(batch_images={self.batch_images}): must be at least 1")
        byte_size(self.max_row_bytes)
        self.listing()

    @property
    def block_bytes(self) -> int:
        """The size of a task, in bytes."""
        return byte_size(self.blocksize) if self.blocksize is not None else DEFAULT_BLOCK_BYTES

    def listing(self) -> FilePartitioningStage:
        """The stage that lists the files."""
        extensions = list(self.file_extensions or self.extensions)
        return FilePartitioningStage(
            self.file_paths, self.files_per_partition, self.blocksize, extensions, self.storage_options
        )


@dataclass
class ImageFolderReaderStage(ProcessingStage[FileGroup, ImageBatch]):
    """Read images, a file each.

    Args:
        roots: The folders that were listed: ids are paths below them.
        caption_extension: The ending of files with captions beside the images; none when not given.
        batch_images: How many images a batch has at most.
        fields: Columns to read; all of them when not given.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside.
        storage_options: For the fsspec file system.
        max_row_bytes: Largest image that is read, in bytes.
    """

    roots: list[str] = field(default_factory=list)
    caption_extension: str | None = None
    batch_images: int = 100
    fields: list[str] | None = None
    on_error: str = "raise"
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    max_row_bytes: int = MAX_ROW_BYTES

    releases_gil: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.fields or list(_COLUMNS)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(self.outputs()[1])

    def process(self, task: FileGroup) -> Iterator[ImageBatch | BadRows]:
        table = RowTable(self.fields or list(_COLUMNS))
        for first in range(0, len(task.slices), self.batch_images):
            rows = []
            for file in task.slices[first : first + self.batch_images]:
                try:
                    rows.append(self._row(file))
                except DataError as e:
                    yield refused(e, self.on_error)
            if rows:
                made, names = table.of(rows)
                metadata = {**task._metadata, "source_files": [row.path for row in rows]}
                yield ImageBatch(made, dataset_name=task.dataset_name, _metadata=metadata).named(names)

    def _row(self, file: FileSlice) -> ImageRow:
        row = ImageRow(redacted(file.path), 0, self._id(file.path), 0, path=file.path)
        if self.fields is None or "image_bytes" in self.fields:
            if file.size > self.max_row_bytes:
                raise too_long("image", self.max_row_bytes, file.path)
            row.data = self._read(file.path)
            count_bytes(len(row.data))
        if self.caption_extension is not None:
            row.caption = self._caption(file.path)
        return row

    def _read(self, path: str) -> bytes:
        with reading(path), open_read(path, self.storage_options) as handle:
            return handle.read()

    def _caption(self, path: str) -> str | None:
        """The text of the file beside an image; ``None`` if there is none."""
        beside = path[: len(path) - len(os.path.splitext(path)[1])] + str(self.caption_extension)
        try:
            data = self._read(beside)
        except DataError as e:
            if isinstance(e.__cause__, FileNotFoundError):
                return None
            raise
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise DataError(f"this caption is not UTF-8: {e.reason}", path=beside, byte=e.start) from e

    def _id(self, path: str) -> str:
        """The path below the folder that was listed."""
        for root in self.roots:
            below = join(root, "")
            if path.startswith(below):
                return path[len(below) :].replace(os.sep, "/")
        return path.rpartition("/")[2] if "://" in path else os.path.basename(path)


_COLUMNS = ("image_id", "image_bytes", "image_path", "caption")


@dataclass
class ImageFolderReader(ImageFiles):
    """Read images from files: those of a folder and of all folders in it, or those that are named.

    The columns are ``image_id`` (the path below the folder), ``image_bytes``, ``image_path`` and ``caption``.

    The other arguments are those of every :class:`ImageFiles`.

    Args:
        file_extensions: Endings to look for in directories; JPEG, PNG, WebP, GIF, BMP and TIFF by default.
        caption_extension: Read captions from files beside the images with this ending (``".txt"``).

    >>> ImageFolderReader("photos", fields=["image_id", "image_path"]).decompose()[-1].roots[0].endswith("photos")
    True
    """

    caption_extension: str | None = None

    extensions: ClassVar[tuple[str, ...]] = IMAGE_ENDINGS

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        given = [self.file_paths] if isinstance(self.file_paths, str | os.PathLike) else self.file_paths
        stage = ImageFolderReaderStage(
            [_root(absolute(path)) for path in given],
            self.caption_extension,
            self.batch_images,
            self.fields,
            self.on_error,
            self.storage_options,
            byte_size(self.max_row_bytes),
        )
        return [self.listing(), stage.with_(name=self.name)]


def _root(path: str) -> str:
    """The folder that an address begins with: all of it up to the first pattern."""
    while any(sign in path for sign in "*?["):
        path = parent(path)
    return path
