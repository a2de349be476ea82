"""``nemo_curator.backends.slurm_array`` for scripts: which tasks of a Slurm array to submit again."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "SlurmArrayRetryPlan",
    "SlurmArrayRetrySubmission",
    "build_slurm_array_retry_submissions",
    "find_slurm_array_retries",
    "format_slurm_array_indices",
    "is_slurm_array_driver_process",
]


@dataclass(frozen=True)
class SlurmArrayRetryPlan:
    """Shards of an array that are still to do."""

    shard_indices: tuple[int, ...]
    total_shards: int
    minimum_shard_index: int


@dataclass(frozen=True)
class SlurmArrayRetrySubmission:
    """An array to submit: its indices, and what to add to them for the numbers of the shards."""

    array_indices: tuple[int, ...]
    shard_index_offset: int


def is_slurm_array_driver_process() -> bool:
    """Whether this process is on the first node of its Slurm job (or in none)."""
    return os.environ.get("SLURM_NODEID", "0") == "0"


def find_slurm_array_retries(checkpoint_path: str | os.PathLike[str]) -> SlurmArrayRetryPlan | None:
    """The shards of an array that NeMo Curator ran and has not finished; ``None`` if the directory records no array.

    Runs on tamis are no arrays and leave no such records: a run that is started again does what is left.

    Args:
        checkpoint_path: The directory that the array was given for its checkpoints.

    >>> find_slurm_array_retries("no/such/directory")
    """
    directory = Path(checkpoint_path) / ".nemo_curator_metadata" / ".slurm_array_completion"
    if not (directory / "run.json").exists():
        return None
    run = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    first, count = int(run["minimum_shard_index"]), int(run["total_shards"])
    files = directory.glob("completed_slurm_array_*.json")
    done = {int(json.loads(file.read_text(encoding="utf-8"))["shard_index"]) for file in files}
    return SlurmArrayRetryPlan(tuple(sorted({*range(first, first + count)} - done)), count, first)


def build_slurm_array_retry_submissions(
    retry_plan: SlurmArrayRetryPlan, max_array_size: int | None = None
) -> tuple[SlurmArrayRetrySubmission, ...]:
    """The arrays to submit for some shards.

    Args:
        retry_plan: The shards.
        max_array_size: The largest index plus one that the cluster allows; ``None`` for no limit.

    >>> build_slurm_array_retry_submissions(SlurmArrayRetryPlan((1, 4, 5), 6, 0), max_array_size=4)[1]
    SlurmArrayRetrySubmission(array_indices=(0, 1), shard_index_offset=4)
    """
    if max_array_size is not None and max_array_size < 1:
        raise ValueError(f"max_array_size={max_array_size}: must be at least 1")
    shards = sorted(retry_plan.shard_indices)
    if shards and shards[0] < 0:
        raise ValueError(f"{shards[0]} is not a valid number of a shard: they begin at 0")
    size = max_array_size or (max(shards, default=0) + 1)
    groups = itertools.groupby(shards, key=lambda shard: shard // size * size)
    return tuple(SlurmArrayRetrySubmission(tuple(s - start for s in some), start) for start, some in groups)


def format_slurm_array_indices(indices: Iterable[int]) -> str:
    """Indices as ``sbatch --array`` takes them.

    >>> format_slurm_array_indices([0, 1, 2, 7])
    '0-2,7'
    """
    ordered = sorted(set(indices))
    runs = itertools.groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    spans = [[index for _, index in run] for _, run in runs]
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
