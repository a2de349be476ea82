"""Batches of audio."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError
from tamis.tasks.media import MediaBatch, column_values

__all__ = ["AudioBatch", "AudioTask"]

_ZEROS = 16
"""Zero crossings of the sinc on each side: the length of the filter that changes a sample rate."""

_AT_ONCE = 2**13
"""Output samples that are computed at once."""


class _Sound(NamedTuple):
    samples: NDArray[np.float32]  # frames, channels
    rate: int


@dataclass
class AudioBatch(MediaBatch):
    """A batch of recordings: one row each, encoded (WAV, FLAC, ...) in ``audio_bytes`` or in ``audio_filepath``.

    A row may be a part of its recording: from ``offset_s`` on, ``duration_s`` long (seconds), where there are such
    columns.

    >>> AudioBatch([{"audio_filepath": "a.wav", "text": "hello"}]).get_columns()
    ['audio_filepath', 'text']
    """

    bytes_column: ClassVar[str] = "audio_bytes"
    path_column: ClassVar[str] = "audio_filepath"

    def samples(self, sample_rate: int | None = None) -> Iterator[NDArray[np.float32]]:
        """The samples of each recording, one recording at a time: one channel, from -1 to 1.

        Several channels are averaged.

        Args:
            sample_rate: Samples per second to convert to; each recording's own by default.
        """
        starts = column_values(self, "offset_s", self.num_items)
        lengths = column_values(self, "duration_s", self.num_items)
        for row, file in enumerate(self.files()):
            sound = self._decoded(file, row)
            start = round((starts[row].as_py() or 0) * sound.rate) if starts is not None else 0
            length = lengths[row].as_py() if lengths is not None else None
            stop = None if length is None else start + round(length * sound.rate)
            mono = sound.samples[start:stop].mean(axis=1, dtype=np.float32)
            yield mono if sample_rate in (None, sound.rate) else _resampled(mono, sound.rate, int(sample_rate or 0))

    def with_metadata(self) -> Self:
        """The batch with ``sample_rate`` (per second), ``num_channels`` and ``duration`` (seconds, of the whole)."""
        types = {"sample_rate": pa.int32(), "num_channels": pa.int32(), "duration": pa.float64()}
        return self._with_heads(types, self._head)

    def _head(self, file: BinaryIO, row: int) -> tuple[int, int, float]:
        """Sample rate, channels and duration of a recording."""
        try:
            with wave.open(file) as wav:
                return wav.getframerate(), wav.getnchannels(), wav.getnframes() / wav.getframerate()
        except (wave.Error, EOFError):
            soundfile = _soundfile(self.row_name(row))
            file.seek(0)
            try:
                about = soundfile.info(file)
            except soundfile.LibsndfileError as e:
                raise DataError(f"the recording {self.row_name(row)} cannot be read: {e}") from e
            return int(about.samplerate), int(about.channels), int(about.frames) / int(about.samplerate)

    def _decoded(self, file: BinaryIO, row: int) -> _Sound:
        try:
            with wave.open(file) as wav:
                frames = wav.readframes(wav.getnframes())
                samples = _from_pcm(frames, wav.getsampwidth()).reshape(-1, wav.getnchannels())
                return _Sound(samples, wav.getframerate())
        except (wave.Error, EOFError):
            soundfile = _soundfile(self.row_name(row))
            file.seek(0)
            try:
                samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as e:
                raise DataError(f"the recording {self.row_name(row)} cannot be decoded: {e}") from e
            return _Sound(samples, int(rate))


@dataclass
class AudioTask(AudioBatch):
    """One recording with its entry in a manifest: a batch of one row, which can be given as a dict.

    >>> task = AudioTask({"audio_filepath": "a.wav", "text": "hello"})
    >>> task.num_items, task.entry["text"]
    (1, 'hello')
    """

    @classmethod
    def _rows_of(cls, data: Any) -> Any:
        is_entry = isinstance(data, Mapping) and not any(isinstance(v, list | pa.Array) for v in data.values())
        return [dict(data)] if is_entry else data

    @property
    def entry(self) -> dict[str, Any]:
        """The row as a dict."""
        row: dict[str, Any] = self.data.slice(0, 1).to_pylist()[0]
        return row


def _from_pcm(frames: bytes, width: int) -> NDArray[np.float32]:
    """Samples of 8 bits (unsigned), 16, 24 or 32 bits (signed, little-endian) as numbers from -1 to 1."""
    values: NDArray[Any]
    if width == 1:
        values = np.frombuffer(frames, np.uint8) / 128 - 1
    elif width == 3:
        padded = np.zeros((len(frames) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(frames, np.uint8)[: 3 * len(padded)].reshape(-1, 3)
        values = padded.view("<i4")[:, 0] / 2**31
    else:
        values = np.frombuffer(frames, f"<i{width}") / 2 ** (8 * width - 1)
    return values.astype(np.float32)


def _resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Samples at another rate, with a windowed sinc that removes what the lower of the two rates cannot hold."""
    if wanted < 1:
        raise ValueError(f"sample_rate={wanted}: must be at least 1")
    count = int(np.ceil(len(samples) * wanted / rate))
    cutoff = min(1.0, wanted / rate)
    half = int(np.ceil(_ZEROS / cutoff))
    padded = np.concatenate([np.zeros(half, np.float32), samples, np.zeros(half + 1, np.float32)])
    taps = np.arange(-half + 1, half + 1)
    made = np.empty(count, np.float32)
    for first in range(0, count, _AT_ONCE):
        at = np.arange(first, min(first + _AT_ONCE, count)) * (rate / wanted)
        whole = np.floor(at).astype(np.int64)
        distance = taps[None, :] - (at - whole)[:, None]
        window = np.cos(np.clip(distance / half, -1, 1) * np.pi / 2) ** 2
        weights = cutoff * np.sinc(cutoff * distance) * window
        made[first : first + len(at)] = (padded[whole[:, None] + taps[None, :] + half] * weights).sum(axis=1)
    return made


def _soundfile(recording: str) -> Any:
    try:
        import soundfile
    except ImportError as e:
        what = f"decoding {recording}, which is not a PCM WAV file,"
        raise MissingExtraError(what, package="soundfile", extra="audio") from e
    return soundfile
