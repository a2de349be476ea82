"""What fuzzy deduplication of a data set would remove, and what it would cost: from a sample.

The documents of the sample are compared with each other only. Of a document that occurs twice, a sample may have one,
so it shows fewer duplicates than the whole has; :func:`tamis.runs.extrapolation.distinct_in_whole` computes from how
often documents occur in the sample how many there may be in the whole.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tamis.backends.local import LocalExecutor
from tamis.errors import DataError
from tamis.pipeline import Pipeline
from tamis.pipeline.estimate import Estimate
from tamis.pipeline.sample_run import SAMPLE_BLOCK_BYTES, InputParts, SampleRun, list_input, run_sample, spread
from tamis.plan import Plan
from tamis.runs.duplicate_pairs import rethresholded
from tamis.runs.extrapolation import distinct_in_whole
from tamis.runs.row_lookup import parse_name
from tamis.sizes import byte_size
from tamis.stages.column_values import text_values
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.deduplication.fuzzy.buckets import HashBands
from tamis.stages.io import FilePartitioningStage, ParquetWriter
from tamis.stages.io.readers import Reader
from tamis.tasks import FileGroup, TableTask

__all__ = ["DeduplicationEstimate", "ThresholdEstimate", "TimeEstimate", "chance_of_pair", "estimate_deduplication"]

THRESHOLDS: Final = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)

_BANDS, _PER_BAND = 64, 5
"""Bands for the sample: they find 87 % of the pairs of similarity 0.5 and 99 % of those from 0.6 on."""

_PARTS: Final = 128
_SMALLEST_PART: Final = 64 * 1024
_SIGNED: Final = 64 * 2**20
_MEASURED_S: Final = 3.0


@dataclass(frozen=True)
class ThresholdEstimate:
    """What would be removed if all pairs of at least some similarity were joined.

    Args:
        threshold: The similarity.
        removed: Documents of the sample that would be removed.
        share: Their share of the sample, 0 to 1.
        whole_share: The share that may be removed of the whole data set.
        found: The chance that the bands asked for find a pair of exactly this similarity.
    """

    threshold: float
    removed: int
    share: float
    whole_share: float
    found: float


@dataclass(frozen=True)
class TimeEstimate:
    """How long it takes.

    Args:
        target: On what, in words.
        cores, gpus: How many of each.
        seconds: The time for the whole.
    """

    target: str
    cores: int
    gpus: int
    seconds: float


@dataclass(frozen=True)
class DeduplicationEstimate:
    """What deduplication would remove and need.

    Args:
        documents: Documents of the sample.
        sample_bytes, input_bytes: The size of the sample and of the input, as their files are.
        thresholds: What would be removed at which similarity.
        times: How long it takes on this machine, and on what else was asked for.
        cost: The estimate for this machine, with what each stage needs.
        memory_budget: Memory for the tables of the stage, beside ``cost.memory_bytes``, at most.
        signatures_per_s: Bytes of text that one core signs in a second, measured.
        notes: What to know about the figures.
    """

    documents: int
    sample_bytes: int
    input_bytes: int
    thresholds: list[ThresholdEstimate]
    times: list[TimeEstimate]
    cost: Estimate
    memory_budget: int
    signatures_per_s: float
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the sample is everything."""
        return self.sample_bytes >= self.input_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "is_whole": self.is_whole}


def estimate_deduplication(
    reader: Reader,
    settings: Mapping[str, Any] | None = None,
    *,
    sample: int | str | None = "256MiB",
    cores: Sequence[int] = (),
    gpus: int = 0,
    workers: int | None = None,
) -> DeduplicationEstimate:
    """Compare the documents of a sample, and predict what the whole needs.

    Args:
        reader: What reads the input.
        settings: Parameters of :class:`~tamis.stages.deduplication.fuzzy.FuzzyDeduplication`: how texts are cut and
            signed.
        sample: How much of the input to look at, as a size of its files; everything when ``None``.
        cores: Predict the time for these numbers of cores, too.
        gpus: Predict it for so many GPUs beside them, which then make the signatures.
        workers: How many tasks of the sample are processed at the same time; all cores by default.
    """
    settings = dict(settings or {})
    executor = LocalExecutor() if workers is None else LocalExecutor(workers=workers)
    configured = FuzzyDeduplication(**settings)
    with tempfile.TemporaryDirectory(prefix="tamis-dedup-estimate-") as folder:
        pairs = os.path.join(folder, "pairs")
        bands = {"num_bands": _BANDS, "minhashes_per_band": _PER_BAND, "verify": THRESHOLDS[0], "pairs_path": pairs}
        compared = Pipeline("compare", "", [reader, FuzzyDeduplication(**{**settings, **bands})])
        plan = compared.plan(executor)
        parts = list_input(plan)
        chosen = _chosen(plan, parts, None if sample is None else byte_size(sample))
        run = run_sample(plan, executor, chosen.parts, os.path.join(folder, "run"), drop_ledger=False)
        documents = _documents(run, plan)
        if not documents:
            raise DataError("the sample contains no documents", path=", ".join(_paths(chosen.parts)))
        os.makedirs(pairs, exist_ok=True)
        share = min(1.0, run.nbytes / max(1, parts.nbytes))
        thresholds = [_at(pairs, threshold, documents, share, chosen, configured) for threshold in THRESHOLDS]
        whole = Pipeline(
            "dedup fuzzy", "", [reader, configured, ParquetWriter(os.path.join(folder, "out"), mode="overwrite")]
        )
        cost = whole.estimate(executor, sample_seconds=_MEASURED_S)
        rate, text_share = _signing(reader, configured, chosen.parts)
    times = _times(cost, len(parts.tasks), cores, gpus, rate, text_share)
    notes = list(cost.notes)
    if len(parts.tasks) < max(cores, default=0):
        tasks = len(parts.tasks)
        notes.append(f"The input makes {tasks} task{'s' * (tasks != 1)}: more cores than that have nothing to do")
    if gpus:
        notes.append(
            "The time with GPUs is what is left for the cores when they make no signatures: it is not measured, and "
            "the GPUs are taken to be faster than that"
        )
    return DeduplicationEstimate(
        documents,
        run.nbytes,
        parts.nbytes,
        thresholds,
        times,
        cost,
        byte_size(configured.memory_budget),
        rate,
        notes,
    )


def chance_of_pair(similarity: float, num_bands: int, minhashes_per_band: int) -> float:
    """The chance that bands find a pair of some similarity.

    >>> [round(chance_of_pair(similarity, 20, 13), 2) for similarity in (0.6, 0.8, 0.9)]
    [0.03, 0.68, 1.0]
    """
    return float(1 - (1 - similarity**minhashes_per_band) ** num_bands)


@dataclass(frozen=True)
class _Sample:
    """Parts of the input.

    Args:
        parts: The parts.
        block_bytes: The size that they were cut to, at most.
    """

    parts: list[FileGroup]
    block_bytes: int


def _chosen(plan: Plan, parts: InputParts, nbytes: int | None) -> _Sample:
    """Parts of the input, spread over it: many small ones, since duplicates may be far apart."""
    if nbytes is None or nbytes >= parts.nbytes:
        return _Sample(parts.tasks, SAMPLE_BLOCK_BYTES)
    source, block, pieces = plan.vertices[0].stage, SAMPLE_BLOCK_BYTES, parts.parts
    assert isinstance(source, FilePartitioningStage)
    if parts.parts is not parts.tasks:  # the files can be cut anywhere
        block = min(max(nbytes // _PARTS, _SMALLEST_PART), SAMPLE_BLOCK_BYTES)
        pieces = list(replace(source, blocksize=block).splits(""))
    # With one part nothing would be known of duplicates that are anywhere.
    count = max(2, len(pieces) * nbytes // max(1, parts.nbytes))
    return _Sample(spread(pieces, count, seed=1), block)


def _paths(parts: Sequence[FileGroup]) -> list[str]:
    return [path for part in parts[:3] for path in part.data[:1]]


def _documents(run: SampleRun, plan: Plan) -> int:
    """Documents that were read."""
    reader = plan.vertices[plan.vertices[0].edges["out"]].name
    return sum(stage.rows_out for stage in run.stages if stage.name == reader)


def _at(
    pairs: str, threshold: float, documents: int, share: float, sample: _Sample, stage: FuzzyDeduplication
) -> ThresholdEstimate:
    found = rethresholded(pairs, threshold, ()).rows
    copies, nearby = _copies(found, sample)
    whole = 1 - distinct_in_whole(copies, documents, share, nearby)
    chance = chance_of_pair(threshold, stage.num_bands, stage.minhashes_per_band)
    return ThresholdEstimate(threshold, found.num_rows, found.num_rows / documents, whole, chance)


def _copies(found: pa.Table, sample: _Sample) -> tuple[list[int], int]:
    """How often documents occur that are anywhere, and how many duplicates are near the document that stays."""
    copies: Counter[str] = Counter()
    nearby = 0
    for removed, kept in zip(*(found.column(name).to_pylist() for name in ("removed", "kept")), strict=True):
        one, other = parse_name(removed), parse_name(kept)
        if one.source == other.source and abs(one.position - other.position) < sample.block_bytes:
            nearby += 1
        else:
            copies[kept] += 1
    # Of duplicates that are anywhere, one of as many as there are parts is in the same part by chance.
    by_chance = min(nearby, round(copies.total() / max(1, len(sample.parts) - 1)))
    return [*(count + 1 for count in copies.values()), *[2] * by_chance], nearby - by_chance


def _signing(reader: Reader, stage: FuzzyDeduplication, parts: Iterable[FileGroup]) -> tuple[float, float]:
    """Bytes of text that one core signs in a second, and the bytes of text for each byte of the input's files."""
    minhash = next(part.minhash for part in stage.decompose() if isinstance(part, HashBands))
    read, signed, stored, seconds = reader.reader_stage(), 0, 0, 0.0
    read.setup()
    for part in parts:
        for batch in read.process(part):
            if not isinstance(batch, TableTask) or not batch.num_items:
                continue
            column = text_values(batch[stage.text_field], stage.text_field, stage.name)
            began = time.perf_counter()
            minhash.signatures(column)
            seconds += time.perf_counter() - began
            signed += column.nbytes
        stored += part.weight
        if signed >= _SIGNED:
            break
    return signed / max(seconds, 1e-9), signed / max(1, stored)


def _times(
    cost: Estimate, tasks: int, cores: Sequence[int], gpus: int, rate: float, text_share: float
) -> list[TimeEstimate]:
    work = (cost.seconds - cost.startup_seconds) * min(cost.workers, max(1, tasks))  # core seconds
    signing = min(work, cost.input_bytes * text_share / max(rate, 1.0))
    found = [TimeEstimate(cost.target, cost.workers, 0, cost.seconds)]
    for number in cores or ((cost.workers,) if gpus else ()):
        used = min(number, max(1, tasks))
        found.append(TimeEstimate(f"{number} cores", number, 0, cost.startup_seconds + work / used))
        if gpus:
            seconds = cost.startup_seconds + (work - signing) / used
            found.append(TimeEstimate(f"{number} cores, {gpus} GPUs", number, gpus, seconds))
    return found
