"""What leaves a group of stages: in memory, or in a file at the end of the pipeline and where memory is short."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tamis.backends.group_spec import RunPaths
from tamis.backends.payload import Envelope, enclose, encode_payload
from tamis.plan import END
from tamis.runs.directory import StoredOutput
from tamis.stages.emit import Drop, Publish
from tamis.stages.io.paths import join
from tamis.stages.spill import spill
from tamis.tasks import TableTask, Task

__all__ = ["CARRIED_BYTES", "Outgoing", "dropped_rows"]

CARRIED_BYTES = 64 * 2**20
"""Memory that the outputs of one assignment may take before further ones are spilled to disk."""


class Outgoing:
    """Puts tasks that leave a group into envelopes.

    Args:
        places: Where in the run directory data is put.
    """

    def __init__(self, places: RunPaths) -> None:
        self._places = places
        self._payloads = places.payloads or (join(places.scratch, "payloads") if places.scratch else "")
        self._carried = 0

    def begin(self) -> None:
        """Another assignment begins: what the last one made has been handed over."""
        self._carried = 0

    def enclose(self, target: int, task: Task[Any], nbytes: int) -> tuple[Envelope, list[Publish]]:
        """An envelope, and the file that goes with it: data at the end of the pipeline is not sent to the driver.

        Args:
            target: The vertex that the task goes to.
            task: The task.
            nbytes: Memory that it takes, in bytes.
        """
        if isinstance(task, TableTask):
            _ = task.data  # rows that are only selected are copied together here, and the others are freed
            nbytes = task.nbytes
        envelope = enclose(task, target, nbytes)
        files: list[Publish] = []
        if target == END and self._places.outputs and (task.has_rows or nbytes > 2**16):
            published = spill(task, self._places.outputs, self._places.staging)
            files.append(replace(published, needs_sync=not self._places.staging))
            envelope.payload, envelope.nbytes = StoredOutput(published.final), 0
        elif target != END and self._carried + envelope.nbytes > CARRIED_BYTES and self._payloads:
            # Many children at once: outputs beyond CARRIED_BYTES are spilled.
            envelope.payload, envelope.nbytes = encode_payload(task, self._payloads), 0
        self._carried += envelope.nbytes
        return envelope, files


def dropped_rows(stage: str, drop: Drop) -> TableTask:
    """Rows that a stage dropped as a batch for a side branch, with two columns that say why they are there."""
    import pyarrow as pa

    from tamis.arrays import text_array

    told = {"dropped_by": stage, "dropped_because": drop.reason}
    rows = drop.batch.select(drop.rows)
    rows.dropped, rows.scored = [], []
    return rows.with_columns({c: pa.repeat(text_array([value])[0], len(drop.rows)) for c, value in told.items()})
