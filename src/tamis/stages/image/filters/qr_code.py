"""A filter that finds QR codes and other barcodes in images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, did_you_mean
from tamis.stages.image.filters.image_filter import DecodedImage, ImageFilter
from tamis.stages.text.filters.base import NOT_NEGATIVE

__all__ = ["READ_SIDE", "QrCodeFilter"]

READ_SIDE = 1024
"""The longest side, in pixels, at which codes and text are looked for."""


@dataclass
class QrCodeFilter(ImageFilter):
    """Drop images with a QR code or another barcode. Score: how many codes could be read.

    Codes are found and read by zxing-cpp: QR codes of about three pixels per module or more at any angle, upright ones
    from two on.

    Args:
        max_codes: The greatest number of codes.
        formats: The kinds of codes, by their names in zxing-cpp: ``"QRCode"``, ``"MicroQRCode"``, ``"DataMatrix"``,
            ``"Aztec"``, ``"PDF417"``, ``"EAN13"``, ``"Code128"``, ...; an empty list for every kind.
        content_field: A column for what the codes say, a list of texts; ``None`` for none.
        decoded_side: Pictures whose longer side has more pixels are made smaller; ``None`` for no limit.

    >>> QrCodeFilter().reason()
    'codes > 0'
    """

    max_codes: int = 0
    formats: list[str] = field(default_factory=lambda: ["QRCode"])
    content_field: str | None = None
    decoded_side: int | None = READ_SIDE
    name = "codes"
    score_type = pa.int64()
    score_range = NOT_NEGATIVE
    releases_gil = True

    def check_parameters(self) -> None:
        super().check_parameters()
        self._formats(_zxing())

    def more_columns(self) -> Mapping[str, pa.DataType]:
        return {} if self.content_field is None else {self.content_field: pa.list_(pa.string())}

    def score_image(self, pixels: NDArray[np.uint8]) -> int:
        return len(self._texts(pixels))

    def score_view(self, image: DecodedImage) -> tuple[float, Mapping[str, Any]]:
        texts = self._texts(image.pixels)
        return len(texts), {} if self.content_field is None else {self.content_field: texts}

    def _texts(self, pixels: NDArray[np.uint8]) -> list[str]:
        zxing = _zxing()
        height, width = pixels.shape[:2]
        view = zxing.ImageView(np.ascontiguousarray(pixels).reshape(-1), width, height, zxing.ImageFormat.RGB)
        return [code.text for code in zxing.read_barcodes(view, **self._formats(zxing))]

    def _formats(self, zxing: Any) -> dict[str, Any]:
        known = zxing.BarcodeFormat.__members__
        for name in self.formats:
            if name not in known:
                raise ValueError(f"QrCodeFilter(formats=...): there is no {name!r}.{did_you_mean(name, known)}")
        return {"formats": [known[name] for name in self.formats]} if self.formats else {}


def _zxing() -> Any:
    try:
        import zxingcpp
    except ImportError as e:
        raise MissingExtraError("finding barcodes", package="zxing-cpp", extra="qr") from e
    return zxingcpp
