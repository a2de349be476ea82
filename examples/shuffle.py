"""Bring the rows of each site together, whatever file they came in, and keep the longest text of each."""

from tamis import DocumentBatch, Pipeline
from tamis.stages.exchange import ShuffleStage


class LongestPerSite(ShuffleStage):
    """Of each site the row with the longest text."""

    def reduce(self, partition: DocumentBatch) -> DocumentBatch:
        import polars as pl

        rows = partition.to_polars().sort(pl.col("text").str.len_chars(), descending=True, maintain_order=True)
        return DocumentBatch(rows.unique("site", keep="first", maintain_order=True))


batches = [
    DocumentBatch([{"site": "a.org", "text": "short"}, {"site": "b.org", "text": "the only one of its site"}]),
    DocumentBatch([{"site": "a.org", "text": "the longer of the two"}, {"site": "c.org", "text": "another"}]),
]
result = Pipeline(name="shuffle", stages=[LongestPerSite(by=["site"], partitions=4)]).run(initial_tasks=batches)

print("the longest text of each site:")
for task in result:
    print(*task.data.to_pylist(), sep="\n")
