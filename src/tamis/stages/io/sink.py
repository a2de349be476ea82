"""What every stage that writes files has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tamis.stages.base import ProcessingStage
from tamis.stages.io.destination import Destination
from tamis.stages.io.encoders import Encoder
from tamis.tasks import FileGroup, Task

__all__ = ["FileSink"]

X = TypeVar("X", bound=Task[Any])


@dataclass
class FileSink(ProcessingStage[X, FileGroup]):
    """A stage that writes files: what the driver does with its directory before and after a run.

    Args:
        destination: The directory and the names in it.
        encoder: The format.
    """

    destination: Destination
    encoder: Encoder

    releases_gil: ClassVar[bool] = True
    is_sink_stage: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def prepare(self) -> None:
        """Get the directory ready. Called once by the driver before a run starts, not when one goes on."""
        self.destination.prepare()

    def finish(self) -> None:
        """Clean up after a run that came to its end. Called once by the driver."""
        self.destination.sweep()

    def leftovers(self, before: float) -> list[str]:
        """Files of an earlier run between those of this one, which began at the given time (seconds since 1970)."""
        return self.destination.leftovers(before)
