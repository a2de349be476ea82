"""JPEG decoded by an NVIDIA GPU (nvJPEG, as torchvision has it), and made as small as a model sees it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtraError
from tamis.models.encoder import load_torch
from tamis.models.image_preprocessing import ImagePreprocessing
from tamis.tasks import ImageBatch
from tamis.tasks.image_decoding import MAX_PIXELS, check_size
from tamis.tasks.jpeg_head import jpeg_head

if TYPE_CHECKING:
    import torch

__all__ = ["EncodedImages", "GpuDecoder"]

_END: Final = b"\xff\xd9"
"""The end of a JPEG. A file that was cut off has none, which the decoder of the card does not mind."""

_ADOBE: Final = b"Adobe"
"""A segment of a JPEG; the byte six bytes behind this word says how colours were transformed, 0 for not at all."""

_LONGEST: Final = 16
"""The greatest ratio of the sides of an image that is made smaller on the card."""

_ON_GPU: Final = ("bilinear", "bicubic")


@dataclass(frozen=True)
class EncodedImages:
    """Images that are not decoded yet, for a :class:`~tamis.models.batch_runner.BatchRunner`.

    Args:
        batch: The images.
        present: Which of the rows have one.
    """

    batch: ImageBatch
    present: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.present)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """1 for each image, 0 for a row without one."""
        return self.present.astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> EncodedImages:
        """Some of the rows."""
        return EncodedImages(self.batch.select(rows), self.present[rows])

    def sample(self) -> EncodedImages:
        """A grey image."""
        from tamis.tasks import ImageObject

        grey = ImageObject(image_data=np.full((8, 8, 3), 128, np.uint8))
        return EncodedImages(ImageBatch([grey]), np.ones(1, np.bool_))

    def too_large(self, memory: str) -> str:
        """What to say when one image does not fit into the memory of a device."""
        return f"the model with a single image does not fit into the memory of the {memory}: give the worker more of it"


class GpuDecoder:
    """Decodes images on a GPU and makes them as small as a model sees them.

    JPEG in colours, upright and complete, is decoded and resized by the card; every other image on the CPU. The card
    resizes with floating-point numbers, so pixels may differ by one or two from those of the CPU. It does not notice
    all damage within a JPEG.

    Args:
        preprocessing: What the model is given.
        device: The GPU.
    """

    def __init__(self, preprocessing: ImagePreprocessing, device: str = "cuda") -> None:
        self._torch = load_torch("decoding images on a GPU")
        try:
            from torchvision.io import ImageReadMode, decode_jpeg
        except ImportError as error:
            raise MissingExtraError("decoding images on a GPU", package="torchvision", extra="gpu-decoding") from error
        self._decode, self._mode = decode_jpeg, ImageReadMode.RGB
        self._preprocessing, self._device = preprocessing, device

    def __call__(self, images: EncodedImages) -> torch.Tensor:
        """The images on the GPU: uint8, in the order of the rows; three channels, height, width."""
        seen = self._preprocessing
        made: Any = self._torch.empty(
            (len(images), 3, seen.height, seen.width), dtype=self._torch.uint8, device=self._device
        )
        encoded = self._encoded(images.batch)
        fast = [row for row, data in enumerate(encoded) if data is not None and _is_plain(data)]
        if seen.resample not in _ON_GPU:
            fast = []
        for row, picture in zip(fast, self._decoded([encoded[row] for row in fast]), strict=False):
            made[row] = self._fitted(picture)
            encoded[row] = b""
        slow = [row for row, data in enumerate(encoded) if data != b""]
        if slow:
            pixels = [seen.fitted(each) for each in images.batch.select(np.array(slow)).pixels()]
            there = self._torch.from_numpy(np.stack(pixels)).to(self._device)
            made[self._torch.tensor(slow, device=self._device)] = there.permute(0, 3, 1, 2)
        found: torch.Tensor = made
        return found

    @staticmethod
    def _encoded(batch: ImageBatch) -> list[bytes | None]:
        """The encoded images; ``None`` for those of which there are pixels."""
        if "image_data" in batch.get_columns():
            return [None] * batch.num_items
        return list(batch.payloads())

    def _decoded(self, encoded: Sequence[bytes | None]) -> list[Any]:
        """The pictures, or none of them if the card refuses one: then the CPU says which, and why."""
        torch = self._torch
        if not encoded:
            return []
        given = [torch.from_numpy(np.frombuffer(data or b"", np.uint8).copy()) for data in encoded]
        try:
            found: list[Any] = self._decode(given, mode=self._mode, device=self._device)
        except RuntimeError:
            return []
        return found

    def _fitted(self, picture: Any) -> Any:
        """A picture in the size that the model sees."""
        seen = self._preprocessing
        height, width = picture.shape[1:]
        if seen.shorter_side is None:
            return self._resized(picture, seen.height, seen.width)
        longer = int(seen.shorter_side * max(height, width) / min(height, width))
        size = (seen.shorter_side, longer) if height <= width else (longer, seen.shorter_side)
        if size[0] < seen.height or size[1] < seen.width:  # black around it, as on the CPU
            fitted = seen.fitted(picture.permute(1, 2, 0).cpu().numpy())
            return self._torch.from_numpy(fitted).to(self._device).permute(2, 0, 1)
        top, left = (size[0] - seen.height) // 2, (size[1] - seen.width) // 2
        return self._resized(picture, *size)[:, top : top + seen.height, left : left + seen.width]

    def _resized(self, picture: Any, height: int, width: int) -> Any:
        if picture.shape[1:] == (height, width):
            return picture
        found = self._torch.nn.functional.interpolate(
            picture[None].float(), size=(height, width), mode=self._preprocessing.resample, antialias=True
        )
        return found[0].round().clamp(0, 255)


def _is_plain(data: bytes) -> bool:
    """Whether the card shows a JPEG as the CPU would: in colours, upright, and not cut off.

    Those with untransformed colours and very long ones are for the CPU as well: the card would take the former for
    YCbCr, and make all of the latter larger.
    """
    head = jpeg_head(data)
    if head is None or head.channels != 3 or head.bits != 8 or head.orientation != 1 or _END not in data[-64:]:
        return False
    adobe = data.find(_ADOBE, 0, 2**16)
    if adobe >= 0 and data[adobe + len(_ADOBE) + 6 :][:1] == b"\0":
        return False
    if max(head.width, head.height) > _LONGEST * min(head.width, head.height):
        return False
    try:
        check_size(head.width, head.height, MAX_PIXELS)
    except ValueError:
        return False  # the CPU refuses it, and says why
    return True
