"""What every stage that writes files has in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar

from tamis.stages.base import ProcessingStage
from tamis.stages.emit import Publish
from tamis.stages.io.destination import Destination
from tamis.stages.io.encoders import Encoder
from tamis.tasks import FileGroup, Task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileSink"]

X = TypeVar("X", bound=Task[Any])


@dataclass
class FileSink(ProcessingStage[X, FileGroup]):
    """A stage that writes files into an output directory.

    Args:
        destination: The directory and the names in it.
        encoder: The format.

    Attributes:
        run_id: The id of the run that the stage writes for. The driver sets it before the run starts.
    """

    destination: Destination
    encoder: Encoder
    run_id: str = field(default="", init=False, repr=False)

    releases_gil: ClassVar[bool] = True
    is_sink_stage: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def name_for(self, task: Task[Any]) -> str:
        """The name of the file for a task; with ``mode="append"`` another one in every run."""
        return self.destination.name_for(task, self.run_id if self.destination.mode == "append" else "")

    def write(
        self, relative: str, rows: int, fill: Callable[[BinaryIO], object], schema: pa.Schema | None = None
    ) -> Publish:
        """Write a file under a temporary name, ready to be published."""
        return self.destination.write(relative, rows, fill, self.run_id, schema)
