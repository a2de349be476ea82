"""The shape of a cluster, in words: how many machines, with how many cores and GPUs each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tamis.errors import PlanError

__all__ = ["ClusterShape"]

_MACHINES = re.compile(r"(?:(\d+)x)?(\d+)cpus?(?:,(\d+)gpus?)?", re.IGNORECASE)


@dataclass(frozen=True)
class ClusterShape:
    """Cores and GPUs of a cluster.

    Args:
        machines: Machines.
        cpus: Cores, over all machines.
        gpus: GPUs, over all machines.
    """

    machines: int
    cpus: int
    gpus: int = 0

    @classmethod
    def parse(cls, text: str) -> ClusterShape:
        """Read a shape: ``8x16cpu,2gpu`` is 8 machines with 16 cores and 2 GPUs each; ``+`` adds other machines.

        >>> ClusterShape.parse("8x16cpu,2gpu"), ClusterShape.parse("4cpu + 2x64cpu")
        (ClusterShape(machines=8, cpus=128, gpus=16), ClusterShape(machines=3, cpus=132, gpus=0))
        """
        machines = cpus = gpus = 0
        for part in text.replace(" ", "").split("+"):
            found = _MACHINES.fullmatch(part)
            count, cores, cards = (
                (int(n or d) for n, d in zip(found.groups(), (1, 0, 0), strict=True)) if found else (0,) * 3
            )
            if not count or not cores:
                raise PlanError(f"cluster {text!r}: write machines, cores and GPUs such as 8x16cpu or 8x16cpu,2gpu")
            machines, cpus, gpus = machines + count, cpus + count * cores, gpus + count * cards
        return cls(machines, cpus, gpus)

    def __str__(self) -> str:
        machines = "1 machine" if self.machines == 1 else f"{self.machines} machines"
        return f"{machines}, {self.cpus} cores" + (f", {self.gpus} GPUs" if self.gpus else "")
