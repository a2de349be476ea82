"""What flows: tasks, which are batches of data with a stable identity."""

from tamis.tasks.base import EmptyTask, StagePerf, Task
from tamis.tasks.document import DocumentBatch
from tamis.tasks.drop import Drop
from tamis.tasks.files import FileGroup, FileGroupTask, FileSlice
from tamis.tasks.row_names import RowNames
from tamis.tasks.table import TableTask

__all__ = [
    "DocumentBatch",
    "Drop",
    "EmptyTask",
    "FileGroup",
    "FileGroupTask",
    "FileSlice",
    "RowNames",
    "StagePerf",
    "TableTask",
    "Task",
]
