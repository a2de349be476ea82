"""What flows: tasks, which are batches of data with a stable identity."""

from tamis.tasks.base import EmptyTask, StagePerf, Task
from tamis.tasks.document import DocumentBatch
from tamis.tasks.files import FileGroup, FileGroupTask, FileSlice

__all__ = ["DocumentBatch", "EmptyTask", "FileGroup", "FileGroupTask", "FileSlice", "StagePerf", "Task"]
