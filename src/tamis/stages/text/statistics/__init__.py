"""Statistics of documents: what is in a data set, in summaries of fixed size that can be put together."""

from tamis.stages.text.statistics.stage import TextStatistics
from tamis.stages.text.statistics.summary import TextSummary, merge_summaries

__all__ = ["TextStatistics", "TextSummary", "merge_summaries"]
