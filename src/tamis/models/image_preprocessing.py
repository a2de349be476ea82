"""What a vision model is given of an image: its size, how it is made smaller, and the range of its numbers.

It is read from the folder of the model: ``preprocessor_config.json`` of ``transformers``, or ``open_clip_config.json``
of open_clip. Making images smaller is done on 8-bit pixels, on CPUs; the rest is arithmetic, which the device of the
model does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError
from tamis.kernels.resize import RESAMPLINGS, resize

__all__ = ["OPEN_CLIP_CONFIG", "ImagePreprocessing", "read_preprocessing"]

OPEN_CLIP_CONFIG: Final = "open_clip_config.json"
_CONFIG: Final = "preprocessor_config.json"
_RESAMPLING: Final = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""The ways to make an image smaller, at the numbers that Pillow gives them."""

_CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ImagePreprocessing:
    """How an image becomes the numbers that a model is given.

    Args:
        height, width: The size that the model sees, in pixels.
        shorter_side: The shorter side of the image is made so many pixels long, and the middle is cut out; ``None`` if
            the image is squeezed into the size as a whole.
        resample: How it is made smaller: ``"bicubic"``, ``"bilinear"``, ``"lanczos"``, ``"box"``, ``"hamming"`` or
            ``"nearest"``.
        mean, std: What is subtracted from each of the three channels, whose values are from 0 to 1, and what they are
            divided by after that.
        scale: What the values of pixels, 0 to 255, are multiplied by before.

    >>> ImagePreprocessing(4, 4, 4).fitted(np.zeros((8, 12, 3), np.uint8)).shape
    (4, 4, 3)
    """

    height: int
    width: int
    shorter_side: int | None = None
    resample: str = "bicubic"
    mean: tuple[float, ...] = _CLIP_MEAN
    std: tuple[float, ...] = _CLIP_STD
    scale: float = 1 / 255

    @property
    def is_square_crop(self) -> bool:
        """Whether the shorter side becomes the side of a square that is cut out."""
        return self.height == self.width == self.shorter_side

    def fitted(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """An image in the size that the model sees: the same bits as the Pillow processors of ``transformers``."""
        height, width = pixels.shape[:2]
        if self.shorter_side is None:
            return _resized(pixels, self.height, self.width, self.resample)
        short, long = sorted((height, width))
        new_long = int(self.shorter_side * long / short)
        new_height, new_width = (self.shorter_side, new_long) if height <= width else (new_long, self.shorter_side)
        top, left = (new_height - self.height) // 2, (new_width - self.width) // 2
        crop = (max(0, left), max(0, top), min(left + self.width, new_width), min(top + self.height, new_height))
        made = _resized(pixels, new_height, new_width, self.resample, crop)
        if top >= 0 and left >= 0:
            return made
        seen = np.zeros((self.height, self.width, 3), np.uint8)  # it is larger than the image: black around that
        seen[crop[1] - top : crop[3] - top, crop[0] - left : crop[2] - left] = made
        return seen


def read_preprocessing(folder: str | Path, model: str) -> ImagePreprocessing:
    """What the files of a model say about its images.

    Args:
        folder: Its folder.
        model: Its name, for messages.
    """
    place = Path(folder)
    if (place / _CONFIG).exists():
        return _of_transformers(_read(place / _CONFIG), place / _CONFIG)
    if (place / OPEN_CLIP_CONFIG).exists():
        return _of_open_clip(_read(place / OPEN_CLIP_CONFIG), place / OPEN_CLIP_CONFIG)
    raise ModelError(
        f"the model {model} does not say what images it takes: {place} has neither {_CONFIG} nor {OPEN_CLIP_CONFIG}"
    )


def _of_transformers(config: Mapping[str, Any], path: Path) -> ImagePreprocessing:
    size, crop = config.get("size", 224), config.get("crop_size", 224)
    shorter: int | None
    if isinstance(size, int):  # as files of older versions have it
        shorter, squeezed = size, (size, size)
    elif "shortest_edge" in size:
        shorter, squeezed = size["shortest_edge"], (0, 0)
    elif "height" in size and "width" in size:
        shorter, squeezed = None, (size["height"], size["width"])
    else:
        raise ModelError(f"{path}: size={size!r} has neither a shortest_edge nor height and width")
    is_cut = config.get("do_center_crop", "crop_size" in config)
    seen = ((crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])) if is_cut else squeezed
    if not is_cut and shorter is not None:
        if isinstance(size, int):
            shorter = None
        else:
            raise ModelError(f"{path}: images keep their shape (no do_center_crop), and a batch needs one size")
    if is_cut and shorter is None and seen != squeezed:
        raise ModelError(f"{path}: images are squeezed to {squeezed} and then cut to {seen}, which is not supported")
    if not config.get("do_resize", True):
        raise ModelError(f"{path}: do_resize is false, and a batch needs images of one size")
    is_scaled, is_normalised = config.get("do_rescale", True), config.get("do_normalize", True)
    return _checked(
        path,
        seen,
        shorter,
        config.get("resample", 3),
        config.get("image_mean", _CLIP_MEAN) if is_normalised else (0.0,) * 3,
        config.get("image_std", _CLIP_STD) if is_normalised else (1.0,) * 3,
        float(config.get("rescale_factor", 1 / 255)) if is_scaled else 1.0,
    )


def _of_open_clip(config: Mapping[str, Any], path: Path) -> ImagePreprocessing:
    given, vision = config.get("preprocess_cfg") or {}, (config.get("model_cfg") or {}).get("vision_cfg") or {}
    size = given.get("size", vision.get("image_size", 224))
    seen = (size, size) if isinstance(size, int) else (int(size[-2]), int(size[-1]))
    mode = given.get("resize_mode", "shortest")
    if mode not in ("shortest", "squash") or (mode == "shortest" and seen[0] != seen[1]):
        raise ModelError(f"{path}: resize_mode={mode!r} with the size {seen} is not supported")
    shorter = seen[0] if mode == "shortest" else None
    resample = given.get("interpolation", "bicubic")
    return _checked(path, seen, shorter, resample, given.get("mean", _CLIP_MEAN), given.get("std", _CLIP_STD), 1 / 255)


def _checked(
    path: Path,
    size: tuple[int, int],
    shorter_side: int | None,
    resample: int | str,
    mean: Sequence[float],
    std: Sequence[float],
    scale: float,
) -> ImagePreprocessing:
    if isinstance(resample, int) and 0 <= resample < len(_RESAMPLING):
        resample = _RESAMPLING[resample]
    if resample not in _RESAMPLING:
        raise ModelError(f"{path}: images cannot be made smaller by {resample!r}, only by {', '.join(_RESAMPLING)}")
    sides = [*size, *([] if shorter_side is None else [shorter_side])]
    if any(not isinstance(side, int) or side < 1 for side in sides):
        raise ModelError(f"{path}: images cannot have the size {size} (shorter side: {shorter_side})")
    if len(mean) != 3 or len(std) != 3 or not all(std):
        raise ModelError(f"{path}: mean and std must be three numbers, and std not 0: {list(mean)}, {list(std)}")
    return ImagePreprocessing(*size, shorter_side, str(resample), tuple(mean), tuple(std), scale)


def _resized(
    pixels: NDArray[np.uint8], height: int, width: int, resample: str, crop: tuple[int, int, int, int] | None = None
) -> NDArray[np.uint8]:
    """A picture in another size, or the part of that between left, top, right and bottom."""
    if resample in RESAMPLINGS:
        return resize(pixels, width, height, resample, crop)
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("making images smaller", package="pillow", extra="image") from error
    made = Image.fromarray(pixels).resize((width, height), Image.Resampling[resample.upper()])
    return np.asarray(made if crop is None else made.crop(crop))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is damaged: it holds no JSON object")
    return config
