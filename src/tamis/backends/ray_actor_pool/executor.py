"""The actor-pool executor: one stage after the other on pools of Ray actors, with a barrier after each."""

from __future__ import annotations

from typing import Any

from tamis.backends.base import Run
from tamis.backends.streaming.executor import StreamingExecutor
from tamis.errors import did_you_mean
from tamis.plan import Plan
from tamis.runs.progress import NoProgress, PlainProgress

__all__ = ["RayActorPoolExecutor"]

KEYS = ("runtime_env", "reserved_cpus", "reserved_gpus")


class RayActorPoolExecutor(StreamingExecutor):
    """Runs a pipeline on a Ray cluster one stage at a time, each on the whole cluster.

    The outputs of a stage are spilled to the run directory before the next one begins; the order in which tasks finish
    does not matter. For stages that must see everything before they start, and for models so large that only one fits.

    Args:
        config: ``runtime_env`` for all workers; ``reserved_cpus`` and ``reserved_gpus`` to leave to other programs.
        ignore_head_node: Whether to keep the head node free of work.
        show_progress: Whether to show progress.
        progress_interval: Seconds between two lines of progress if the output is not a terminal.
        address: The cluster's address, as for :class:`~tamis.backends.streaming.StreamingExecutor`.
        retries: How often a task is tried again after its stage raised.

    >>> RayActorPoolExecutor(ignore_head_node=True).describe()
    'actor pools on Ray, batch mode'
    """

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        ignore_head_node: bool = False,
        show_progress: bool = True,
        progress_interval: float = 10.0,
        address: str | None = None,
        retries: int = 1,
    ) -> None:
        config = dict(config or {})
        for key in config:
            if key not in KEYS:
                hint = did_you_mean(str(key), KEYS)
                raise ValueError(
                    f"RayActorPoolExecutor(config): unknown key {key!r}, it takes {', '.join(KEYS)}.{hint}"
                )
        super().__init__(
            address,
            execution_mode="batch",
            retries=retries,
            ignore_head_node=ignore_head_node,
            runtime_env=config.get("runtime_env"),
        )
        for key in ("reserved_cpus", "reserved_gpus"):
            amount = config.get(key, 0.0)
            if not (isinstance(amount, int | float) and amount >= 0):
                raise ValueError(f"RayActorPoolExecutor(config): {key}={amount!r} must be a number, and not negative")
            setattr(self, key, float(amount))
        self.show_progress, self.progress_interval = show_progress, progress_interval

    def describe(self) -> str:
        """The executor in a few words."""
        return "actor pools on Ray" + (f" at {self.address}" if self.address else "") + ", batch mode"

    def execute(self, plan: Plan, run: Run) -> bool:
        """Carry out the plan. Returns ``False`` if the user stopped it before its end."""
        if not self.show_progress:
            run.observer = NoProgress()
        elif isinstance(run.observer, PlainProgress):
            run.observer.interval_s = self.progress_interval
        return super().execute(plan, run)
