"""The result of an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tamis.analysis.inputs import Coverage
from tamis.analysis.scores import figures_of_filters
from tamis.analysis.thresholds import Proposal, kept_by
from tamis.stages.text.filters.measured import MeasuredFilter
from tamis.stages.text.statistics import TextSummary


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis of a data set.

    Args:
        paths: The files, directories and patterns that were analyzed.
        text_field: The column with the text.
        url_field: The column with the documents' addresses, if there is one.
        coverage: How much of the input was analyzed.
        summary: What was counted, and a sample of the documents.
        filters: The filters, with their default thresholds.
        keep_rate: The share of documents that the proposed thresholds should keep, 0 to 1.
        alone: For each filter, thresholds with which it alone keeps that share.
        together: Thresholds with which the chosen filters keep that share one after the other.
        recipe: A recipe with the latter, as YAML.
        quarantined: Rows that could not be read.
        seconds: How long it took.
        no_languages: Why languages were not identified; empty if they were.
        output: The directory with the page and the tables.
    """

    paths: Sequence[str]
    text_field: str
    url_field: str | None
    coverage: Coverage
    summary: TextSummary
    filters: Sequence[MeasuredFilter]
    keep_rate: float
    alone: dict[str, Proposal]
    together: Sequence[Proposal]
    recipe: str
    quarantined: int
    seconds: float
    no_languages: str
    output: str

    @property
    def documents(self) -> int:
        """How many documents were analyzed."""
        return self.summary.total("documents")

    @property
    def documents_in_all(self) -> int:
        """How many documents the input has, estimated from the part that was read."""
        read = self.summary.total("read")
        share = self.coverage.share / self.coverage.fraction
        return read if self.coverage.is_whole or not share else round(read / share)

    @property
    def sample(self) -> pl.DataFrame:
        """The documents in the sample: where they are, lengths, scores, language, script, sites, how they begin."""
        return self.summary.sample

    def scores(self, measure: str) -> NDArray[np.float64]:
        """The values of one measure in the sample: a filter's score, or a length such as ``"words"``."""
        return self.sample[measure].cast(pl.Float64).to_numpy()

    def percentile(self, measure: str, percent: float) -> float:
        """The value that so many percent of the documents do not exceed."""
        return float(np.quantile(self.scores(measure), percent / 100, method="inverted_cdf"))

    def kept_share(self, filter_name: str) -> float:
        """The share of documents that a filter keeps with its default threshold."""
        return 1 - self._decision(filter_name, "dropped") / self.documents

    def dropped_alone_share(self, filter_name: str) -> float:
        """The share of documents that a filter drops with its default threshold, and no other one does."""
        return self._decision(filter_name, "dropped_alone") / self.documents

    def kept_share_of_all(self) -> float:
        """The share of documents that all filters keep with their default thresholds."""
        return float(kept_by(self.filters, {one.name: self.scores(one.name) for one in self.filters}).mean())

    def proposed_share(self) -> float:
        """The share of the sample that the filters keep with the thresholds that are proposed for all together."""
        chosen = [proposal.filter for proposal in self.together]
        return float(kept_by(chosen, {one.name: self.scores(one.name) for one in self.filters}).mean())

    def unseen_loss(self) -> float:
        """How much less than :meth:`proposed_share` may be kept of documents that are not in the sample; 0 where all
        are. A document goes beyond the highest of n scores with a chance of 1 in n + 1, and so at each threshold.
        """
        if self.coverage.is_whole and len(self.sample) == self.documents:
            return 0.0
        thresholds = sum(bound is not None for proposal in self.together for bound in proposal.filter.bounds())
        return min(thresholds / (len(self.sample) + 1), self.proposed_share())

    def shares(self, column: str) -> list[tuple[str, int]]:
        """The values of a column of the sample and how many documents have each, most first.

        Args:
            column: ``"language"``, ``"script"``, ``"site"`` or ``"links"``; a document may have several links.
        """
        values = self.sample[column]
        if values.dtype == pl.List(pl.String):
            values = values.explode()
        counts = values.drop_nulls().alias("value").value_counts(name="documents")
        ordered = counts.sort(["documents", "value"], descending=[True, False])
        return list(ordered.iter_rows())

    def to_dict(self) -> dict[str, Any]:
        """The main figures, for programs."""
        distinct = self.summary.distinct()
        names = ("documents", "read", "null", "empty", "bytes", "characters", "words", "lines")
        return {
            "paths": list(self.paths),
            "documents_in_all": self.documents_in_all,
            "is_whole": self.coverage.is_whole,
            **{name: self.summary.total(name) for name in names},
            "quarantined": self.quarantined,
            "duplicate_share": distinct.duplicate_share,
            "duplicate_share_error": distinct.share_error,
            "languages": dict(self.shares("language")),
            "scripts": dict(self.shares("script")),
            **figures_of_filters(self),
            "output": self.output,
            "seconds": self.seconds,
        }

    def _decision(self, filter_name: str, column: str) -> int:
        return int(self.summary.decisions.filter(pl.col("filter") == filter_name)[column].sum())
