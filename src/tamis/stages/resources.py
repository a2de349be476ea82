"""What one worker of a stage needs to run, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import ResourceError


@dataclass(frozen=True)
class Resources:
    """What one worker of a stage needs. Fractions are allowed.

    Args:
        cpus: CPU cores.
        gpus: GPUs: whole ones, or a fraction of one (``0.25``: four workers share a GPU).
        gpu_memory_gb: Memory on a single GPU, in GB, instead of ``gpus``: turned into a fraction of the card the
            worker lands on, so it means the same on a 24 GB card and on an 80 GB one.

    >>> Resources(gpus=0.25).requires_gpu
    True
    >>> Resources(gpu_memory_gb=10).gpu_fraction(card_memory_gb=80)
    0.125
    """

    cpus: float = 1.0
    gpu_memory_gb: float = 0.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for field in ("cpus", "gpus", "gpu_memory_gb"):
            if getattr(self, field) < 0:
                raise ValueError(f"Resources({field}={getattr(self, field)}): must not be negative")
        if self.gpus and self.gpu_memory_gb:
            raise ValueError(
                f"Resources(gpus={self.gpus}, gpu_memory_gb={self.gpu_memory_gb}): give one of them. "
                "'gpus' counts cards or a share of one, 'gpu_memory_gb' asks for memory on a single card"
            )
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"Resources(gpus={self.gpus}): more than one GPU must be a whole number of them")

    @property
    def requires_gpu(self) -> bool:
        """Whether a worker needs a GPU or part of one."""
        return self.gpus > 0 or self.gpu_memory_gb > 0

    def gpu_fraction(self, card_memory_gb: float) -> float:
        """The share of a card of this size that one worker takes, ``gpus`` where that was given."""
        if not self.gpu_memory_gb:
            return self.gpus
        if self.gpu_memory_gb > card_memory_gb:
            raise ResourceError(
                f"Resources(gpu_memory_gb={self.gpu_memory_gb:g}) is more than the card's {card_memory_gb:g} GB"
            )
        return self.gpu_memory_gb / card_memory_gb


@dataclass(frozen=True)
class NodeInfo:
    """The machine a stage is set up on."""

    node_id: str = "local"


@dataclass(frozen=True)
class WorkerMetadata:
    """The worker a stage is set up on.

    Args:
        worker_id: Its name.
        scratch: A directory of the run that every worker can reach (a local path or an fsspec address).
        gpu_ids: The GPUs given to this worker.
        allocation: What the executor gave to the worker, in its own words.
    """

    worker_id: str = "0"
    scratch: str = ""
    gpu_ids: tuple[int, ...] = ()
    allocation: Any = None
