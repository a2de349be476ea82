"""Read images from wherever they are: the stage of NeMo Curator's name, and a reader that looks at what there is."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import DataError, PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.image.io.image_files import ImageFiles, ImageFolderReader
from tamis.stages.image.io.samples import IMAGE_ENDINGS
from tamis.stages.image.io.struct_column import UnpackImages
from tamis.stages.image.io.web_dataset import TAR_ENDINGS, TarPartsStage, WebDatasetReader, WebDatasetReaderStage
from tamis.stages.io.arrow import ArrowReader
from tamis.stages.io.listing import Listing
from tamis.stages.io.parquet import ParquetReader
from tamis.stages.io.partitioning import FilePartitioningStage
from tamis.stages.io.paths import COMPRESSED, absolute, with_compressions
from tamis.stages.io.readers import Reader
from tamis.tasks import FileGroup, ImageBatch

__all__ = ["ImageReader", "ImageReaderStage"]


@dataclass
class ImageReaderStage(CompositeStage[FileGroup, ImageBatch]):
    """Read images from tars, given the tars by a ``FilePartitioningStage`` before it, or by ``file_paths``.

    It is :class:`~tamis.stages.image.io.web_dataset.WebDatasetReader` with the arguments of NeMo Curator. Images stay
    encoded until a stage asks for pixels.

    Args:
        dali_batch_size: How many images a batch has at most, unless ``task_batch_size`` says so.
        verbose: For scripts written for NeMo Curator; not used: progress is shown for the whole run.
        num_threads: The same; stages that decode have a thread for each core that they ask for.
        num_gpus_per_worker: The same; reading needs no GPU.
        task_batch_size: How many images a batch has at most.
        file_paths: What to read, if no stage before it lists the tars.
        image_ids: As for :class:`WebDatasetReader`: ``"key"`` or ``"number"``.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside and goes on.
        storage_options: For the fsspec file system.

    >>> [stage.name for stage in ImageReaderStage(task_batch_size=64, file_paths="shards").decompose()]
    ['FilePartitioningStage', 'image_reader (parts)', 'image_reader']
    """

    dali_batch_size: int = 100
    verbose: bool = True
    num_threads: int = 8
    num_gpus_per_worker: float = 0.25
    task_batch_size: int | None = None
    file_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    image_ids: str = "key"
    on_error: str = "raise"
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "image_reader"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        reading = WebDatasetReaderStage(
            self.task_batch_size if self.task_batch_size is not None else self.dali_batch_size,
            image_ids=self.image_ids,
            on_error=self.on_error,
            storage_options=self.storage_options,
        )
        stages: list[ProcessingStage[Any, Any]] = [
            TarPartsStage(storage_options=self.storage_options).with_(name=f"{self.name} (parts)"),
            reading.with_(name=self.name),
        ]
        if self.file_paths is None:
            return stages
        listing = FilePartitioningStage(
            self.file_paths, file_extensions=list(TAR_ENDINGS), storage_options=self.storage_options
        )
        return [listing, *stages]


_LOOKED_AT = 1000
"""How many files are looked at to find out what there is."""

_TABLES: dict[str, type[Reader]] = {".parquet": ParquetReader, ".arrow": ArrowReader}


@dataclass
class ImageReader(ImageFiles):
    """Read images from tars in the layout of WebDataset, from Parquet and Arrow files, or from files of their own.

    Tars are read if there are as many of them as images or more; tables beside them, their index, are left out.
    Otherwise the first file decides. What is left out is logged. To say so yourself, and for more settings, use
    :class:`WebDatasetReader`, :class:`ImageFolderReader`, or ``ParquetReader`` (``ArrowReader``) and
    :class:`UnpackImages`.

    The other arguments are those of every :class:`~tamis.stages.image.io.image_files.ImageFiles`.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.PNG").write_bytes(b"...")
    ...     [type(stage).__name__ for stage in ImageReader(folder).decompose()]
    ['FilePartitioningStage', 'ImageFolderReaderStage']
    """

    extensions: ClassVar[tuple[str, ...]] = (*TAR_ENDINGS, *_TABLES, *IMAGE_ENDINGS)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        kind = self._kind()
        settings: dict[str, Any] = {
            "file_paths": self.file_paths,
            "files_per_partition": self.files_per_partition,
            "blocksize": self.blocksize,
            "storage_options": self.storage_options,
            "on_error": self.on_error,
            "max_row_bytes": self.max_row_bytes,
        }
        if kind in _TABLES:
            reader = _TABLES[kind](**settings, file_extensions=[kind]).with_(name=self.name)
            return [*reader.unfold(), UnpackImages(fields=self.fields)]
        settings |= {"batch_images": self.batch_images, "fields": self.fields}
        if kind in TAR_ENDINGS:
            return WebDatasetReader(**settings).with_(name=self.name).decompose()
        endings = self.file_extensions or list(IMAGE_ENDINGS)
        return ImageFolderReader(**settings, file_extensions=endings).with_(name=self.name).decompose()

    def _kind(self) -> str:
        """How names of the files end that are read."""
        given = [self.file_paths] if isinstance(self.file_paths, str | os.PathLike) else self.file_paths
        endings = with_compressions(self.file_extensions or self.extensions)
        listing = Listing(tuple(absolute(path) for path in given), endings, self.storage_options)
        try:
            kinds = [_ending(file.path) for file in itertools.islice(listing.files(), _LOOKED_AT)]
        except DataError as e:
            raise PlanError(f"{self.name}: {e}") from e
        tars = [kind for kind in kinds if kind in TAR_ENDINGS]
        if len(tars) >= max(1, sum(kind in IMAGE_ENDINGS for kind in kinds)):
            return tars[0]
        return next(kind for kind in kinds if kind not in TAR_ENDINGS)


def _ending(path: str) -> str:
    """The ending of a name, in lower case, before that of its compression."""
    plain, ending = os.path.splitext(path.lower())
    return os.path.splitext(plain)[1] if ending in COMPRESSED else ending
