"""The result of an analysis of images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tamis.analysis.scores import PERCENTILES, figures_of_filters
from tamis.analysis.thresholds import Proposal, Scores, kept_by
from tamis.stages.image.filters import ImageFilter

__all__ = ["SIZES", "DuplicateGroups", "ImageAnalysis"]

SIZES: Final = ("width", "height", "nbytes", "caption_characters")
"""What every image has beside the scores of filters."""


@dataclass(frozen=True)
class DuplicateGroups:
    """Images of the sample that are the same in some respect.

    Args:
        groups: The groups: numbers of images, those that stay first; the largest group first.
    """

    groups: Sequence[Sequence[int]]

    @property
    def removed(self) -> int:
        """How many images would be removed if one of each group stayed."""
        return sum(len(group) - 1 for group in self.groups)


@dataclass(frozen=True)
class ImageAnalysis:
    """The result of an analysis of images.

    Args:
        paths: The files, directories and patterns that were analyzed.
        fraction: The share of the images that was measured, 0 to 1.
        table: The images, one row each: where they are, sizes, format, hashes, caption, scores of filters, and the
            ``problem`` of those that cannot be decoded.
        exact: Groups of images with the same bytes.
        pixels: Groups of images with the same pixels.
        near: Groups of images whose perceptual hashes are nearly the same.
        filters: The filters, with their default thresholds.
        keep_rate: The share of images that the proposed thresholds should keep, 0 to 1.
        alone: For each filter, thresholds with which it alone keeps that share.
        together: Thresholds with which the chosen filters keep that share one after the other.
        recipe: A recipe with the latter, as YAML.
        quarantined: Images that could not be read from their files.
        seconds: How long it took.
        output: The directory with the page and the tables.
    """

    paths: Sequence[str]
    fraction: float
    table: pl.DataFrame
    exact: DuplicateGroups
    pixels: DuplicateGroups
    near: DuplicateGroups
    filters: Sequence[ImageFilter]
    keep_rate: float
    alone: dict[str, Proposal]
    together: Sequence[Proposal]
    recipe: str
    quarantined: int
    seconds: float
    output: str

    @property
    def images(self) -> int:
        """How many images were measured, broken ones among them."""
        return self.table.height

    @property
    def whole(self) -> pl.DataFrame:
        """The images that could be decoded."""
        return self.table.filter(pl.col("problem").is_null())

    @property
    def broken(self) -> pl.DataFrame:
        """The images that could not be decoded."""
        return self.table.filter(pl.col("problem").is_not_null())

    def scores(self, measure: str) -> NDArray[np.float64]:
        """The values of one measure: a filter's score, or one of :data:`SIZES`; of images that could be decoded."""
        return self.whole[measure].drop_nulls().cast(pl.Float64).to_numpy()

    def all_scores(self) -> Scores:
        """The scores of all filters."""
        return {one.name: self.scores(one.name) for one in self.filters}

    def percentile(self, measure: str, percent: float) -> float:
        """The value that so many percent of the images do not exceed; 0 if there are none."""
        values = self.scores(measure)
        return float(np.quantile(values, percent / 100, method="inverted_cdf")) if len(values) else 0.0

    def kept(self, one: ImageFilter) -> NDArray[np.bool_]:
        """Which images a filter keeps with its default threshold."""
        return np.asarray(one.keep_scores(self.scores(one.name)))

    def kept_share(self, filter_name: str) -> float:
        """The share of images that a filter keeps with its default threshold."""
        return _share(self.kept(self._filter(filter_name)))

    def dropped_alone_share(self, filter_name: str) -> float:
        """The share of images that a filter drops with its default threshold, and no other one does."""
        drops = {one.name: ~self.kept(one) for one in self.filters}
        others = sum(
            (dropped for name, dropped in drops.items() if name != filter_name), np.zeros(len(self.whole), int)
        )
        return _share(drops[filter_name] & (others == 0))

    def kept_share_of_all(self) -> float:
        """The share of images that all filters keep with their default thresholds."""
        return _share(kept_by(self.filters, self.all_scores())) if self.filters else 1.0

    def proposed_share(self) -> float:
        """The share of images that the filters keep with the thresholds that are proposed for all together."""
        return _share(kept_by([proposal.filter for proposal in self.together], self.all_scores()))

    def counts(self, column: str) -> list[tuple[str, int]]:
        """The values of a column and how many images have each, most first."""
        found = Counter(value for value in self.whole[column].to_list() if value is not None)
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))

    def to_dict(self) -> dict[str, Any]:
        """The main figures, for programs."""
        return {
            "paths": list(self.paths),
            "fraction": self.fraction,
            "images": self.images,
            "broken": len(self.broken),
            "quarantined": self.quarantined,
            "bytes": int(self.table["nbytes"].sum() or 0),
            "formats": dict(self.counts("image_format")),
            "exact_duplicates": self.exact.removed,
            "pixel_duplicates": self.pixels.removed,
            "near_duplicates": self.near.removed,
            "with_caption": int(self.table["caption_characters"].fill_null(0).gt(0).sum()),
            "sizes": {name: {str(p): self.percentile(name, p) for p in PERCENTILES} for name in SIZES},
            **figures_of_filters(self),
            "output": self.output,
            "seconds": self.seconds,
        }

    def _filter(self, name: str) -> ImageFilter:
        return next(one for one in self.filters if one.name == name)


def _share(kept: NDArray[np.bool_]) -> float:
    return float(kept.mean()) if len(kept) else 1.0
