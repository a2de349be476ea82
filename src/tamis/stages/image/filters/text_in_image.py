"""A filter that finds and reads text in images."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError
from tamis.stages.image.filters.image_filter import DecodedImage, ImageFilter
from tamis.stages.image.filters.qr_code import READ_SIDE
from tamis.stages.text.filters.base import SHARE

__all__ = ["TextInImageFilter"]


@dataclass
class TextInImageFilter(ImageFilter):
    """Drop images with much text in them. Score: the share of the picture that lines of text cover, 0 to 1.

    Text is found and read by rapidocr, whose package carries its models (PP-OCR; Chinese, English, and the Latin
    alphabet). It takes some tenths of a second per picture and core: put it after the cheap filters. A line of a single
    character does not count: most of these are not text but round or straight things.

    Args:
        max_text_share: The greatest score.
        characters_field: A column for how many characters were read, without spaces; ``None`` for none.
        ocr_field: A column for what was read, line by line; ``None`` for none.
        confidence: Lines that the reader is less sure of do not count, 0 to 1.
        threads: How many threads one worker uses.
        decoded_side: Pictures whose longer side has more pixels are made smaller; ``None`` for no limit.

    >>> TextInImageFilter().reason()
    'text_share > 0.1'
    """

    max_text_share: float | None = 0.1
    characters_field: str | None = None
    ocr_field: str | None = None
    confidence: float = 0.6
    threads: int = 1
    decoded_side: int | None = READ_SIDE
    name = "text_share"
    score_range = SHARE

    def check_parameters(self) -> None:
        super().check_parameters()
        self._require("confidence", SHARE)
        if self.threads < 1:
            raise ValueError(f"TextInImageFilter(threads={self.threads}): must be at least 1")

    def load_model(self) -> None:
        """Load the models. Called once in each worker."""
        self._reader  # noqa: B018 - made and kept at its first use

    def more_columns(self) -> Mapping[str, pa.DataType]:
        columns = {self.characters_field: pa.int64(), self.ocr_field: pa.string()}
        return {name: kind for name, kind in columns.items() if name is not None}

    def score_image(self, pixels: NDArray[np.uint8]) -> float:
        return self._read(pixels)[0]

    def score_view(self, image: DecodedImage) -> tuple[float, Mapping[str, Any]]:
        share, lines = self._read(image.pixels)
        characters = sum(not character.isspace() for line in lines for character in line)
        columns = {self.characters_field: characters, self.ocr_field: "\n".join(lines)}
        return share, {name: value for name, value in columns.items() if name is not None}

    def _read(self, pixels: NDArray[np.uint8]) -> tuple[float, list[str]]:
        """The share of the picture that is text, and its lines."""
        found = self._reader(np.ascontiguousarray(pixels[..., ::-1]))  # it takes blue, green, red
        if found.boxes is None or found.txts is None:
            return 0.0, []
        height, width = pixels.shape[:2]
        lines = [(box, text) for box, text in zip(found.boxes, found.txts, strict=True) if len(text.strip()) > 1]
        covered = sum(_area(np.asarray(box, float)) for box, _ in lines)
        return min(1.0, covered / (height * width)), [text for _, text in lines]

    @property
    def _reader(self) -> Any:
        made = self.__dict__.get("_made_reader")
        if made is None:
            made = self.__dict__["_made_reader"] = _reader(self.confidence, self.threads)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made_reader"}


def _reader(confidence: float, threads: int) -> Any:
    try:
        from rapidocr import RapidOCR
    except ImportError as e:
        raise MissingExtraError("reading text in images", package="rapidocr", extra="ocr") from e
    parameters = {
        "Global.log_level": "error",
        "Global.text_score": confidence,
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }
    reader = RapidOCR(params=parameters)
    logging.getLogger("RapidOCR").propagate = False
    return reader


def _area(box: NDArray[np.float64]) -> float:
    """The area of a polygon, given its corners in order."""
    x, y = box.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
