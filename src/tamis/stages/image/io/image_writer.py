"""Write images into tars in the layout of WebDataset, with an index in Parquet beside each."""

from __future__ import annotations

import functools
import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, ClassVar, NamedTuple

import pyarrow as pa

from tamis.errors import MediumError, PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import Publish
from tamis.stages.image.io.samples import is_image
from tamis.stages.io.arguments import check_names
from tamis.stages.io.destination import Destination
from tamis.stages.io.encoders import Encoder, JsonlEncoder
from tamis.stages.io.paths import absolute, path_text
from tamis.stages.io.sink import FileSink
from tamis.tasks import FileGroup, FileSlice, ImageBatch
from tamis.tasks.image_decoding import pillow
from tamis.tasks.media import column_values, shaped_arrays

__all__ = ["ImageWriterStage", "TarEncoder", "TarSinkStage"]

JPEG_QUALITY = 92

_NOT_METADATA = frozenset(
    {
        *("image_bytes", "image_path", "byte_offset", "byte_size", "image_id", "caption", "cls"),
        *("image_data", "image_data_shape", "image_embedding"),
    }
)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")

_ENDINGS = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG", "png"), (b"GIF8", "gif"), (b"BM", "bmp"))
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def ending_of(data: bytes, path: str | None) -> str:
    """The ending that the bytes of an image ask for, or that of its path.

    >>> ending_of(b"GIF89a...", None), ending_of(b"?", "a.TIFF"), ending_of(b"?", None)
    ('gif', 'tiff', 'jpg')
    """
    for begin, ending in _ENDINGS:
        if data.startswith(begin):
            return ending
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data.startswith(_TIFF):
        return "tiff"
    return os.path.splitext(path)[1][1:].lower() if path and is_image(path) else "jpg"


@dataclass(frozen=True)
class TarEncoder(Encoder):
    """A tar: its members one after the other, all with the same owner, mode and time."""

    extension: ClassVar[str] = "tar"


def write_member(sink: BinaryIO, name: str, data: bytes) -> None:
    """Write a file into a tar."""
    head = tarfile.TarInfo(name)
    head.size, head.mtime, head.mode = len(data), 0, 0o644
    sink.write(head.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    sink.write(data)
    sink.write(bytes(-len(data) % 512))


class _Written(NamedTuple):
    """What the index says of an image."""

    image_id: str
    member: str
    original: str
    metadata: str


@dataclass(frozen=True)
class TarDestination(Destination):
    """A directory for tars and their indexes."""

    def own_names(self) -> str:
        own = (Destination(self.path, self.filename, ending).own_names() for ending in (".tar", ".parquet"))
        return "|".join(f"(?:{pattern})" for pattern in own)


@dataclass(repr=False)
class TarSinkStage(FileSink[ImageBatch]):
    """Write consecutive images into tars.

    Args:
        destination: The directory and the names in it.
        encoder: The format.
        images_per_tar: How many images a tar has at most.
        fields: Columns to write beside the images; all of them when not given.
    """

    images_per_tar: int = 1000
    fields: list[str] | None = None

    @property
    def batch_rows(self) -> int:  # type: ignore[override]  # it follows from another parameter
        """How many images one call of :meth:`process_batch` gets."""
        return self.images_per_tar

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.fields or []

    def process(self, task: ImageBatch) -> Iterator[Publish | FileGroup]:
        yield from self.process_batch([task])

    def process_batch(self, tasks: list[ImageBatch]) -> Iterator[Publish | FileGroup]:
        tasks = [task for task in tasks if task.num_items]
        if not tasks:
            return
        first = tasks[0]
        images = ImageBatch.of(ImageBatch.concat(tasks))
        name = self.name_for(first)
        written: list[_Written] = []
        tar = self.write(name, images.num_items, functools.partial(self._fill, images, written))
        yield tar
        index = name.removesuffix(".tar") + ".parquet"
        table = self._index(images, name, written)
        yield replace(self.write(index, 0, functools.partial(_write_parquet, table)), beside=True)
        yield FileGroup(
            [tar.final],
            dataset_name=first.dataset_name,
            slices=(FileSlice(tar.final, size=tar.nbytes),),
            _metadata=dict(first._metadata),
        )

    def _fill(self, images: ImageBatch, written: list[_Written], sink: BinaryIO) -> None:
        ids = column_values(images, "image_id", images.num_items)
        paths = column_values(images, images.path_column, images.num_items)
        captions = column_values(images, "caption", images.num_items)
        labels = column_values(images, "cls", images.num_items)
        metadata = self._metadata(images)
        taken: set[str] = set()
        written.clear()
        for row, data in enumerate(_encoded(images)):
            path = None if paths is None else paths[row].as_py()
            image_id = None if ids is None else ids[row].as_py()
            given = str(image_id) if image_id is not None else None
            key = _key(given or f"{row:06d}", taken)
            member = f"{key}.{ending_of(data, path)}"
            write_member(sink, member, data)
            caption = None if captions is None or not self._writes("caption") else captions[row].as_py()
            if caption is not None:
                write_member(sink, f"{key}.txt", str(caption).encode("utf-8", "surrogatepass"))
            label = None if labels is None or not self._writes("cls") else labels[row].as_py()
            if label is not None:
                write_member(sink, f"{key}.cls", str(label).encode())
            line = metadata[row] if metadata else b""
            if given is not None and given != key:  # the name cannot hold it
                line = _with_id(given, line)
            if line:
                write_member(sink, f"{key}.json", line)
            original = path if path and "byte_offset" not in images.get_columns() else images.row_name(row)
            written.append(_Written(given or key, member, original, line.decode("utf-8")))
        sink.write(bytes(1024))

    def _writes(self, column: str) -> bool:
        return self.fields is None or column in self.fields

    def _metadata(self, images: ImageBatch) -> list[bytes]:
        """The other columns of each row as a JSON object; nothing if there are none."""
        names = [name for name in images.get_columns() if name not in _NOT_METADATA and self._writes(name)]
        if not names:
            return []
        buffer = io.BytesIO()
        JsonlEncoder().write(images.columns(names), buffer)
        return buffer.getvalue().split(b"\n")[:-1]

    def _index(self, images: ImageBatch, tar: str, written: list[_Written]) -> pa.Table:
        columns = {
            "image_id": [each.image_id for each in written],
            "tar_file": [tar] * len(written),
            "member_name": [each.member for each in written],
            "original_path": [each.original for each in written],
            "metadata": [each.metadata or None for each in written],
        }
        table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
        if "image_embedding" in images.get_columns() and self._writes("image_embedding"):
            table = table.append_column("image_embedding", images["image_embedding"])
        return table


def _with_id(image_id: str, line: bytes) -> bytes:
    """A JSON object with the id of the image before its other fields."""
    buffer = io.BytesIO()
    JsonlEncoder().write(pa.table({"image_id": [image_id]}), buffer)
    own = buffer.getvalue().strip()
    return own if not line or line == b"{}" else own[:-1] + b"," + line[1:]


def _key(image_id: str, taken: set[str]) -> str:
    """A name in the tar without an ending: WebDataset's key ends at the first dot. Each is used once."""
    image_id = os.path.splitext(image_id)[0] if is_image(image_id) else image_id
    parts = [part for part in _UNSAFE.sub("_", image_id).split("/") if part not in ("", ".", "..")] or ["_"]
    parts[-1] = parts[-1].replace(".", "_")
    plain = key = "/".join(parts)
    number = 1
    while key in taken:
        number += 1
        key = f"{plain}-{number}"
    taken.add(key)
    return key


def _encoded(images: ImageBatch) -> Iterator[bytes]:
    """The encoded image of each row: as it is, or, where there are only pixels, as JPEG."""
    columns = images.get_columns()
    has_media = images.bytes_column in columns or images.path_column in columns
    opened = images.opener() if has_media else None
    stored = column_values(images, images.bytes_column, images.num_items)
    paths = column_values(images, images.path_column, images.num_items)
    for row, pixels in enumerate(shaped_arrays(images, "image_data")):
        has_bytes = stored is not None and stored[row].is_valid
        has_path = paths is not None and bool(paths[row].as_py())
        if opened is not None and (has_bytes or (has_path and (pixels is None))):
            with opened(row) as file:
                yield file.read()
        elif pixels is not None:
            buffer = io.BytesIO()
            pillow().fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY)
            yield buffer.getvalue()
        else:
            raise MediumError(f"the row {images.row_name(row)} has neither image_bytes, image_path nor image_data")


def _write_parquet(table: pa.Table, sink: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, sink, compression="zstd")


@dataclass
class ImageWriterStage(CompositeStage[ImageBatch, FileGroup]):
    """Write images into tars in the layout of WebDataset, and beside each an index in Parquet.

    An image is written as it is encoded; where a row has only pixels, as JPEG of quality 92. Its caption becomes a
    ``.txt`` beside it, ``cls`` a ``.cls``, and the other columns a ``.json``. Names, sizes and bytes depend on the
    input alone: members have no time and no owner. The index has the columns ``image_id``, ``tar_file``,
    ``member_name``, ``original_path``, ``metadata`` (JSON), and ``image_embedding`` if there is such a column.

    Args:
        output_dir: The directory, or any fsspec address.
        images_per_tar: How many images a tar has at most. Consecutive batches are put together as long as they fit;
            a larger batch is cut.
        verbose: For scripts written for NeMo Curator; not used: progress is shown for the whole run.
        deterministic_name: The same; names are always the same for the same input.
        remove_image_data: The same; nothing follows a writer.
        fields: Columns to write beside the images; all of them when not given.
        mode: What to do when the directory already holds files: ``"error"``, ``"overwrite"``, ``"append"`` or
            ``"ignore"``, as for :class:`~tamis.stages.io.writers.Writer`.
        filename: Template for names, as for :class:`~tamis.stages.io.writers.Writer`.
        storage_options: For the fsspec file system.

    >>> ImageWriterStage("memory://curated", images_per_tar=500).decompose()[0].batch_rows
    500
    """

    output_dir: str | os.PathLike[str]
    images_per_tar: int = 1000
    verbose: bool = False
    deterministic_name: bool = True
    remove_image_data: bool = False
    fields: list[str] | None = None
    mode: str = "error"
    filename: str = "images-{order}"
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "image_writer"

    releases_gil: ClassVar[bool] = True
    is_sink_stage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.output_dir = path_text(self.output_dir)
        check_names("ImageWriterStage", "fields", self.fields)
        if self.images_per_tar < 1:
            raise PlanError(f"ImageWriterStage(images_per_tar={self.images_per_tar}): must be at least 1")
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        destination = TarDestination(absolute(self.output_dir), self.filename, ".tar", self.mode, self.storage_options)
        return [TarSinkStage(destination, TarEncoder(), self.images_per_tar, self.fields).with_(name=self.name)]
