"""Filters of images: which to keep, and why the others go.

The stages that run them are those of :mod:`tamis.stages.text.filters`: ``ScoreFilter``, ``Score`` and ``Filter``. Each
name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.image.filters.aesthetic_filter import ImageAestheticFilterStage as ImageAestheticFilterStage
    from tamis.stages.image.filters.base import BaseFilterStage as BaseFilterStage
    from tamis.stages.image.filters.file_filters import AnimationFilter as AnimationFilter
    from tamis.stages.image.filters.file_filters import AspectRatioFilter as AspectRatioFilter
    from tamis.stages.image.filters.file_filters import ImageFileSizeFilter as ImageFileSizeFilter
    from tamis.stages.image.filters.file_filters import ImageSizeFilter as ImageSizeFilter
    from tamis.stages.image.filters.file_filters import JpegQualityFilter as JpegQualityFilter
    from tamis.stages.image.filters.file_filters import PixelCountFilter as PixelCountFilter
    from tamis.stages.image.filters.file_filters import TransparencyFilter as TransparencyFilter
    from tamis.stages.image.filters.image_filter import ImageFilter as ImageFilter
    from tamis.stages.image.filters.nsfw_filter import ImageNSFWFilterStage as ImageNSFWFilterStage
    from tamis.stages.image.filters.pixel_filters import BorderFilter as BorderFilter
    from tamis.stages.image.filters.pixel_filters import BrightnessFilter as BrightnessFilter
    from tamis.stages.image.filters.pixel_filters import ColorfulnessFilter as ColorfulnessFilter
    from tamis.stages.image.filters.pixel_filters import ContrastFilter as ContrastFilter
    from tamis.stages.image.filters.pixel_filters import EntropyFilter as EntropyFilter
    from tamis.stages.image.filters.pixel_filters import FlatGraphicsFilter as FlatGraphicsFilter
    from tamis.stages.image.filters.pixel_filters import GrayscaleFilter as GrayscaleFilter
    from tamis.stages.image.filters.pixel_filters import NoiseFilter as NoiseFilter
    from tamis.stages.image.filters.pixel_filters import SharpnessFilter as SharpnessFilter
    from tamis.stages.image.filters.qr_code import QrCodeFilter as QrCodeFilter
    from tamis.stages.image.filters.text_in_image import TextInImageFilter as TextInImageFilter
    from tamis.stages.image.filters.text_similarity import ImageTextSimilarityFilter as ImageTextSimilarityFilter

_MODULES = {
    "aesthetic_filter": "ImageAestheticFilterStage",
    "base": "BaseFilterStage",
    "file_filters": (
        "AnimationFilter AspectRatioFilter ImageFileSizeFilter ImageSizeFilter JpegQualityFilter "
        "PixelCountFilter TransparencyFilter"
    ),
    "image_filter": "ImageFilter",
    "nsfw_filter": "ImageNSFWFilterStage",
    "pixel_filters": (
        "BorderFilter BrightnessFilter ColorfulnessFilter ContrastFilter EntropyFilter FlatGraphicsFilter "
        "GrayscaleFilter NoiseFilter SharpnessFilter"
    ),
    "qr_code": "QrCodeFilter",
    "text_in_image": "TextInImageFilter",
    "text_similarity": "ImageTextSimilarityFilter",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
