"""A batch of videos, or of clips of videos."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError
from tamis.tasks.media import MediaBatch, column_values

__all__ = ["Clip", "ClipStats", "Video", "VideoMetadata", "VideoTask"]


@dataclass
class VideoMetadata:
    """What the head of a video says. Sizes are in bytes and pixels, ``duration`` in seconds, the bit rate in kbit/s."""

    size: int | None = None
    height: int | None = None
    width: int | None = None
    framerate: float | None = None
    num_frames: int | None = None
    duration: float | None = None
    video_codec: str | None = None
    pixel_format: str | None = None
    audio_codec: str | None = None
    bit_rate_k: int | None = None


@dataclass
class Clip:
    """A part of a video.

    Args:
        uuid: Its id.
        source_video: The video's path.
        span: Where it begins and ends, in seconds.
        buffer: The clip as a file of its own (MP4), once it is cut out.
    """

    uuid: uuid.UUID
    source_video: str
    span: tuple[float, float]
    buffer: bytes | None = None

    @property
    def duration(self) -> float:
        """How long it is, in seconds."""
        return self.span[1] - self.span[0]


@dataclass
class ClipStats:
    """How many clips of a video went which way.

    >>> stats = ClipStats(num_passed=1, max_clip_duration=2.0)
    >>> stats.combine(ClipStats(num_passed=2, max_clip_duration=1.0))
    >>> stats.num_passed, stats.max_clip_duration
    (3, 2.0)
    """

    num_filtered_by_motion: int = 0
    num_filtered_by_aesthetic: int = 0
    num_passed: int = 0
    num_transcoded: int = 0
    num_with_embeddings: int = 0
    num_with_caption: int = 0
    num_with_webp: int = 0
    total_clip_duration: float = 0.0
    max_clip_duration: float = 0.0

    def combine(self, other: ClipStats) -> None:
        """Add the counts of another part of the video."""
        longest = max(self.max_clip_duration, other.max_clip_duration)
        for f in dataclasses.fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))
        self.max_clip_duration = longest


@dataclass
class Video:
    """One video with what is known of it.

    Args:
        input_video: Where its file is.
        source_bytes: The file itself, if it has been read.
        metadata: What its head says.
        clips: Parts of it.
        errors: What went wrong with it, by stage.
    """

    input_video: Path | str
    source_bytes: bytes | None = None
    metadata: VideoMetadata = field(default_factory=VideoMetadata)
    clips: list[Clip] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)


_METADATA_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("size", "num_frames", "bit_rate_k"), pa.int64()),
    **dict.fromkeys(("height", "width"), pa.int32()),
    **dict.fromkeys(("framerate", "duration"), pa.float64()),
    **dict.fromkeys(("video_codec", "pixel_format", "audio_codec"), pa.string()),
}


@dataclass
class VideoTask(MediaBatch):
    """A batch of videos or clips: one row each, in ``video_bytes`` or in the file ``video_path``.

    A row may be a part of its video, from ``start_s`` to ``end_s`` (seconds), where there are such columns: many rows
    can stand for parts of one long file, which is never read as a whole. ``data`` may be anything that a table can be
    made of, one :class:`Video`, or a list of them; clips of these become rows.

    >>> task = VideoTask(Video("a.mp4", metadata=VideoMetadata(width=854, height=480)))
    >>> task["width"].to_pylist(), task.videos()[0].metadata.height
    ([854], 480)
    >>> task.cut([[(0.0, 2.5), (2.5, 4.0)]])["end_s"].to_pylist()
    [2.5, 4.0]
    """

    bytes_column: ClassVar[str] = "video_bytes"
    path_column: ClassVar[str] = "video_path"

    @classmethod
    def _rows_of(cls, data: Any) -> Any:
        videos = [data] if isinstance(data, Video) else data
        if not isinstance(videos, list) or not videos or not all(isinstance(item, Video) for item in videos):
            return data
        rows = [(video, clip) for video in videos for clip in (video.clips or [None])]  # type: ignore[list-item]
        payloads = [clip.buffer if clip is not None else video.source_bytes for video, clip in rows]
        columns: dict[str, Any] = {"video_path": pa.array([str(video.input_video) for video, _ in rows], pa.string())}
        if any(payload is not None for payload in payloads):
            columns["video_bytes"] = pa.array(payloads, pa.large_binary())
        for name, kind in _METADATA_TYPES.items():
            values = [getattr(video.metadata, name) for video, _ in rows]
            if any(value is not None for value in values):
                columns[name] = pa.array(values, kind)
        if any(clip is not None for _, clip in rows):
            columns["clip_id"] = pa.array([None if clip is None else str(clip.uuid) for _, clip in rows], pa.string())
            for at, name in enumerate(("start_s", "end_s")):
                columns[name] = pa.array([None if clip is None else clip.span[at] for _, clip in rows], pa.float64())
        return columns

    def videos(self) -> list[Video]:
        """The videos of the rows, in order; rows that are clips of one video, one after the other, are in it."""
        made: list[Video] = []
        for row in self.data.to_pylist():
            path, payload = str(row.get("video_path") or ""), row.get("video_bytes")
            span = (row.get("start_s"), row.get("end_s"))
            is_clip = None not in span
            if not (is_clip and made and made[-1].clips and str(made[-1].input_video) == path):
                about = VideoMetadata(**{name: row[name] for name in _METADATA_TYPES if row.get(name) is not None})
                made.append(Video(path, None if is_clip else payload, about))
            if is_clip:
                number = row.get("clip_id") or uuid.uuid5(uuid.NAMESPACE_URL, f"{path}#t={span[0]},{span[1]}")
                made[-1].clips.append(Clip(uuid.UUID(str(number)), path, (span[0], span[1]), payload))
        return made

    def cut(self, spans: Sequence[Sequence[tuple[float, float]]]) -> Self:
        """Clips as rows of their own, by reference: nothing is decoded. Their names lead back to the video's.

        Args:
            spans: For each row the beginnings and ends of its clips, in seconds of the file.
        """
        parents = np.repeat(np.arange(self.num_items), [len(some) for some in spans])
        ends = np.array([span for some in spans for span in some], np.float64).reshape(-1, 2)
        clips = self.derived(self.data.take(pa.array(parents)), parents)
        return clips.with_columns({"start_s": pa.array(ends[:, 0]), "end_s": pa.array(ends[:, 1])})

    def with_metadata(self) -> Self:
        """The batch with the columns of :class:`VideoMetadata`, read from the heads of the videos."""

        def read(file: BinaryIO, row: int) -> list[Any]:
            with self._opened(file, row) as container:
                about = _metadata_of(container, file.seek(0, 2))
            return [getattr(about, name) for name in _METADATA_TYPES]

        return self._with_heads(_METADATA_TYPES, read)

    def frames(self, every_s: float = 1.0, max_side: int | None = None) -> Iterator[NDArray[np.uint8]]:
        """Frames of each row, one row at a time: number, height, width and three channels (RGB) of uint8.

        Args:
            every_s: Seconds between frames; 0 for every frame.
            max_side: Frames whose longer side has more pixels are made smaller.
        """
        starts = column_values(self, "start_s", self.num_items)
        ends = column_values(self, "end_s", self.num_items)
        for row, file in enumerate(self.files()):
            start = (starts[row].as_py() if starts is not None else None) or 0.0
            end = ends[row].as_py() if ends is not None else None
            with self._opened(file, row) as container:
                some = list(_decoded(container, start, end, every_s, max_side))
            yield np.stack(some) if some else np.zeros((0, 0, 0, 3), np.uint8)

    def _opened(self, file: BinaryIO, row: int) -> Any:
        try:
            import av
        except ImportError as e:
            raise MissingExtraError("decoding video", package="av", extra="video") from e
        try:
            container = av.open(file)
        except (av.error.FFmpegError, ValueError) as e:
            raise DataError(f"the video {self.row_name(row)} cannot be read: {e}") from e
        if not container.streams.video:
            container.close()
            raise DataError(f"{self.row_name(row)} has no video in it")
        return container


def _metadata_of(container: Any, size: int) -> VideoMetadata:
    stream = container.streams.video[0]
    rate = stream.average_rate or stream.guessed_rate
    seconds = container.duration / 1e6 if container.duration is not None else None
    if stream.duration is not None and stream.time_base is not None:
        seconds = float(stream.duration * stream.time_base)
    frames = stream.frames or (round(seconds * float(rate)) if seconds is not None and rate is not None else None)
    sound = container.streams.audio
    return VideoMetadata(
        size=size,
        height=stream.codec_context.height,
        width=stream.codec_context.width,
        framerate=None if rate is None else float(rate),
        num_frames=frames,
        duration=seconds,
        video_codec=stream.codec_context.name,
        pixel_format=stream.codec_context.pix_fmt,
        audio_codec=sound[0].codec_context.name if sound else None,
        bit_rate_k=(container.bit_rate or 0) // 1000 or None,
    )


def _decoded(
    container: Any, start: float, end: float | None, every_s: float, max_side: int | None
) -> Iterator[NDArray[np.uint8]]:
    """Frames at the times asked for: the first at or after each."""
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    if start > 0:
        container.seek(int(start * 1e6))  # to the key frame before it
    wanted = start
    for frame in container.decode(stream):
        at = frame.time if frame.time is not None else wanted
        if end is not None and at >= end:
            return
        if at + 1e-6 < wanted:
            continue
        wanted = max(wanted + every_s, at) if every_s else at
        longest = max(frame.width, frame.height)
        share = 1.0 if max_side is None else min(1.0, max_side / longest)
        size = (max(1, round(frame.width * share)), max(1, round(frame.height * share)))
        yield frame.to_ndarray(width=size[0], height=size[1], format="rgb24")
