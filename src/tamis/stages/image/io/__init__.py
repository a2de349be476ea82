"""Reading and writing images: WebDataset tars, folders, Parquet, data sets of Hugging Face.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.image.io.convert import (
        ConvertImageBatchToDocumentBatchStage as ConvertImageBatchToDocumentBatchStage,
    )
    from tamis.stages.image.io.image_files import ImageFolderReader as ImageFolderReader
    from tamis.stages.image.io.image_reader import ImageReader as ImageReader
    from tamis.stages.image.io.image_reader import ImageReaderStage as ImageReaderStage
    from tamis.stages.image.io.image_writer import ImageWriterStage as ImageWriterStage
    from tamis.stages.image.io.struct_column import UnpackImages as UnpackImages
    from tamis.stages.image.io.web_dataset import WebDatasetReader as WebDatasetReader

_MODULES = {
    "convert": "ConvertImageBatchToDocumentBatchStage",
    "image_files": "ImageFolderReader",
    "image_reader": "ImageReader ImageReaderStage",
    "image_writer": "ImageWriterStage",
    "struct_column": "UnpackImages",
    "web_dataset": "WebDatasetReader",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
