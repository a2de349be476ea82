"""What flows: tasks, which are batches of data with a stable identity."""

from tamis.tasks.audio import AudioBatch, AudioTask
from tamis.tasks.base import EmptyTask, StagePerf, Task
from tamis.tasks.document import DocumentBatch
from tamis.tasks.drop import Drop
from tamis.tasks.files import FileGroup, FileGroupTask, FileSlice
from tamis.tasks.image import ImageBatch, ImageObject
from tamis.tasks.media import MediaBatch
from tamis.tasks.row_names import RowNames
from tamis.tasks.table import TableTask
from tamis.tasks.video import Clip, ClipStats, Video, VideoMetadata, VideoTask

__all__ = [
    "AudioBatch",
    "AudioTask",
    "Clip",
    "ClipStats",
    "DocumentBatch",
    "Drop",
    "EmptyTask",
    "FileGroup",
    "FileGroupTask",
    "FileSlice",
    "ImageBatch",
    "ImageObject",
    "MediaBatch",
    "RowNames",
    "StagePerf",
    "TableTask",
    "Task",
    "Video",
    "VideoMetadata",
    "VideoTask",
]
