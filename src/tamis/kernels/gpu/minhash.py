"""MinHash signatures on an NVIDIA GPU: the same bits as :mod:`tamis.kernels.minhash`.

Texts that are on the GPU stay there; those of an Arrow column are copied in parts, through memory that the GPU reads by
itself, while it works on other parts. CuPy is needed (``pip install "tamis[gpu]"``), and imported when it is.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import minhash_definition as plain
from tamis.kernels.buffers import TextBuffers
from tamis.kernels.minhash import MinHash
from tamis.kernels.minhash import band_hashes as cpu_band_hashes
from tamis.kernels.normalizing import normalized

__all__ = ["band_hashes", "is_available", "signatures", "signatures_on_device"]

_PART_BYTES: Final = 16 << 20
_LONG_TEXT: Final = 64 << 10
_WARPS_OF_LONG_TEXT: Final = 8
_TILE: Final = 32 * 36
_ORDINARY_SHARED: Final = 48 << 10


def is_available() -> bool:
    """Whether there are CuPy and a GPU.

    >>> is_available() in (True, False)
    True
    """
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # noqa: BLE001 - CuPy has many ways to say that there is no driver, library or device
        return False


def signatures(
    minhash: MinHash, texts: pa.Array | pa.ChunkedArray, num_bands: int | None = None, threads: int = 4
) -> NDArray[Any]:
    """What :meth:`tamis.kernels.minhash.MinHash.signatures` returns, or the hashes of the bands, which are far smaller.

    Args:
        minhash: The parameters.
        texts: Of any Arrow type for texts. They are normalised by the processor. The row of a null has no meaning.
        num_bands: If given, the result is that of :func:`tamis.kernels.minhash.band_hashes`.
        threads: How many parts of the column are copied and worked on at the same time. One thread copies far fewer
            bytes per second than a GPU takes.

    >>> if is_available():
    ...     column = pa.array(["one text", "another"])
    ...     assert (signatures(MinHash(), column) == MinHash().signatures(column)).all()
    """
    device = _cupy().cuda.Device()
    width, dtype = (minhash.num_hashes, minhash.dtype) if num_bands is None else (num_bands, np.dtype(np.uint64))
    _check_bands(minhash.num_hashes, num_bands)
    made = np.empty((len(texts), width), dtype)

    def work(part: TextBuffers, target: NDArray[Any]) -> None:
        with device:
            slots = _free_slots(device.id)
            try:
                slot = slots.get_nowait()
            except queue.Empty:
                slot = _Slot()
            slot.work(minhash, num_bands, part, target)
            slots.put(slot)  # not after an error: the GPU may still use its memory

    with ThreadPoolExecutor(threads) as pool:
        done, waiting = 0, []
        for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
            for part in _parts(TextBuffers.of(_joined(normalized(chunk, minhash.normalize)))):
                waiting.append(pool.submit(work, part, made[done : done + len(part)]))
                done += len(part)
        for each in waiting:
            each.result()
    return made


def signatures_on_device(minhash: MinHash, data: Any, offsets: Any) -> Any:
    """The signatures of texts that are on the GPU, as a CuPy array.

    The work is queued on CuPy's current stream, which is PyTorch's unless one of them was told to use another one.

    Args:
        minhash: The parameters; without ``normalize``, which the processor would do.
        data: The UTF-8 bytes of all texts: a CuPy array, a PyTorch tensor of type ``uint8``, or anything else with
            the interface of CUDA arrays.
        offsets: Where each text begins, and as the last entry where the last one ends, in ``data``.

    >>> if is_available():
    ...     import cupy
    ...     assert signatures_on_device(MinHash(), cupy.zeros(10, "uint8"), [0, 4, 10]).shape == (2, 260)
    """
    cupy = _cupy()
    if minhash.normalize:
        raise ValueError(f"normalize={minhash.normalize} is not done on a GPU: normalise the texts first")
    data, offsets = cupy.ascontiguousarray(cupy.asarray(data)), cupy.asarray(offsets, dtype=cupy.int64)
    if data.dtype != cupy.uint8 or data.ndim != 1:
        raise TypeError(f"the bytes of texts must be one array of uint8, not {data.ndim} of {data.dtype}")
    ends = offsets[[0, -1]].get().tolist()
    if not 0 <= ends[0] <= ends[1] <= len(data) or bool((cupy.diff(offsets) < 0).any()):
        raise ValueError("the offsets point outside of the bytes of the texts, or are not in ascending order")
    sizes = cupy.diff(offsets)
    rows = [cupy.flatnonzero(sizes <= _LONG_TEXT), cupy.flatnonzero(sizes > _LONG_TEXT)]
    launch = _Launch.of(minhash, data, offsets, rows)
    for row in cupy.flatnonzero(launch.unfinished).get().tolist():
        begin, end = offsets[row : row + 2].get().tolist()
        text = pa.array([data[begin:end].get().tobytes()], pa.large_binary())
        launch.made[row] = cupy.asarray(minhash.signatures(text)[0])
    return launch.made


def band_hashes(signatures: Any, num_bands: int) -> Any:
    """What :func:`tamis.kernels.minhash.band_hashes` returns, for signatures on the GPU, as a CuPy array.

    Args:
        signatures: A CuPy array, or one with the interface of CUDA arrays.
        num_bands: A divisor of the length of a signature.

    >>> if is_available():
    ...     import cupy
    ...     assert band_hashes(cupy.zeros((3, 260), "uint32"), 20).shape == (3, 20)
    """
    cupy = _cupy()
    signatures = cupy.ascontiguousarray(cupy.asarray(signatures))
    _check_bands(signatures.shape[1], num_bands)
    hashes = cupy.empty((len(signatures), num_bands), cupy.uint64)
    if hashes.size:
        kernel = _function("bands", "bands", BITS=8 * signatures.dtype.itemsize)
        numbers = [np.int64(number) for number in (hashes.size, num_bands, signatures.shape[1] // num_bands)]
        kernel((-(-hashes.size // 256),), (256,), (signatures, *numbers, hashes))
    return hashes


@dataclass
class _Launch:
    """Signatures that the GPU is working on.

    Args:
        made: Where they will be.
        unfinished: Will be 1 for long texts that repeat themselves, which are left to the processor.
        used: Arrays that must live until the work is done.
    """

    made: Any
    unfinished: Any
    used: list[Any]

    @classmethod
    def of(cls, minhash: MinHash, data: Any, offsets: Any, rows: list[Any]) -> _Launch:
        """Queue the work on the current stream.

        Args:
            rows: Those with short texts, and those with long ones.
        """
        cupy = _cupy()
        count = len(offsets) - 1
        made = cupy.empty((count, minhash.num_hashes), minhash.dtype)
        unfinished = cupy.zeros(count, cupy.uint8)
        used = [data, offsets, *rows]
        words, places, data_bytes = data, offsets, np.int64(data.size)
        if minhash.unit == "word" and count:
            words, places = _word_hashes(data, offsets)
            used += [words, places]
        multiplier, key = plain.mixing_of(minhash.seed)
        power = np.uint64(pow(int(multiplier), minhash.ngram, 1 << 64))
        factors, terms = map(cupy.asarray, plain.permutations_of(minhash.seed, minhash.num_hashes, minhash.bits))
        used += [factors, terms]
        for warps, chosen in zip((1, _WARPS_OF_LONG_TEXT), rows, strict=True):
            if len(chosen):
                kernel, shared = _kernel_for(minhash, warps)
                arguments = (words, places, chosen, multiplier, power, key, factors, terms, made, unfinished)
                kernel((len(chosen),), (32 * warps,), (data, data_bytes, *arguments), shared_mem=shared)
        return cls(made, unfinished, used)


class _Slot:
    """Memory for one part of a column, on both sides, and a stream of work on it."""

    def __init__(self) -> None:
        self._stream = _cupy().cuda.Stream(non_blocking=True)
        self._pinned: dict[str, NDArray[np.uint8]] = {}

    def work(self, minhash: MinHash, num_bands: int | None, part: TextBuffers, target: NDArray[Any]) -> None:
        """Make the signatures of some texts, or the hashes of their bands; other threads use the GPU meanwhile."""
        cupy = _cupy()
        first, nbytes = int(part.offsets[0]), part.nbytes
        text = self._memory("text", max(nbytes, 1), np.uint8)
        text[:nbytes] = part.data[first : first + nbytes]
        offsets = self._memory("offsets", len(part) + 1, np.int64)
        np.subtract(part.offsets, first, out=offsets)
        sizes = np.diff(offsets)
        short, long = np.flatnonzero(sizes <= _LONG_TEXT), np.flatnonzero(sizes > _LONG_TEXT)
        order = self._memory("rows", len(part), np.int64)
        np.concatenate([short, long], out=order)
        with self._stream:
            data, places, rows = (cupy.empty(len(each), each.dtype) for each in (text, offsets, order))
            for device, host in ((data, text), (places, offsets), (rows, order)):
                device.set(host, stream=self._stream)
            launch = _Launch.of(minhash, data[:nbytes], places, [rows[: len(short)], rows[len(short) :]])
            made = launch.made if num_bands is None else band_hashes(launch.made, num_bands)
            results = self._memory("results", made.size, made.dtype)
            flags = self._memory("flags", len(part), np.uint8)
            made.reshape(-1).get(stream=self._stream, out=results, blocking=False)
            launch.unfinished.get(stream=self._stream, out=flags, blocking=False)
            self._stream.synchronize()
        target[...] = results.reshape(target.shape)
        for row in np.flatnonzero(flags).tolist():
            by_processor = minhash.signatures(pa.array([part.text(row)], pa.large_binary()))
            if num_bands is not None:
                by_processor = cpu_band_hashes(by_processor, num_bands)
            target[row] = by_processor[0]

    def _memory(self, name: str, length: int, dtype: Any) -> NDArray[Any]:
        """Memory that the GPU can read by itself."""
        import cupyx

        held, size = self._pinned.get(name), length * np.dtype(dtype).itemsize
        if held is None or len(held) < size:
            # CuPy keeps such memory when it is freed, and gives it out again for the same size. To get it from the
            # driver takes longer than the work.
            held = self._pinned[name] = cupyx.empty_pinned(1 << max(size - 1, 4096).bit_length(), np.uint8)
        return held[:size].view(dtype)


@functools.cache
def _free_slots(device: int) -> queue.SimpleQueue[_Slot]:
    """Slots of a device that are not in use. They are kept: CuPy keeps the memory of each stream for that stream."""
    return queue.SimpleQueue()


def _parts(column: TextBuffers) -> Iterator[TextBuffers]:
    """Runs of texts of about so many bytes."""
    begin = 0
    while begin < len(column):
        wanted = int(np.searchsorted(column.offsets, column.offsets[begin] + _PART_BYTES, side="right")) - 1
        end = min(max(wanted, begin + 1), len(column))
        yield TextBuffers(column.data, column.offsets[begin : end + 1])
        begin = end


def _word_hashes(data: Any, offsets: Any) -> tuple[Any, Any]:
    """The hashes of the words of all texts, and where those of each text begin."""
    cupy = _cupy()
    starts = cupy.empty(len(data), cupy.uint8)
    count = len(offsets) - 1
    _function("words", "word_starts")((count,), (128,), (data, offsets, starts))
    nbytes = int(offsets[-1] - offsets[0])
    places = cupy.flatnonzero(starts[:nbytes])
    hashes = cupy.empty(len(places), cupy.uint64)
    if len(places):
        blocks = -(-len(places) // 128)
        arguments = (data, offsets, np.int64(count), places, np.int64(len(places)), hashes)
        _function("words", "word_hashes")((blocks,), (128,), arguments)
    return hashes, cupy.searchsorted(places, offsets - offsets[0]).astype(cupy.int64)


def _kernel_for(minhash: MinHash, warps: int) -> tuple[Any, int]:
    """The kernel for some parameters, and how much shared memory it needs."""
    by_words, is_fast = minhash.unit == "word", minhash.scheme == "fast"
    view = _TILE + minhash.ngram * (1 if by_words else 4)
    size = minhash.bits // 8
    each = (0 if by_words else _aligned(view + 16)) + _aligned((view + 64) * (8 if by_words else 4))
    each += 0 if is_fast else _aligned((_TILE + 64) * size)
    shared = warps * each + minhash.num_hashes * (size + 1)
    kernel = _function(
        "minhash",
        "signatures",
        NGRAM=minhash.ngram,
        NUM_HASHES=minhash.num_hashes,
        BITS=minhash.bits,
        VALUE_BITS=plain.value_bits_of(minhash.num_hashes, minhash.bits) if is_fast else 0,
        BY_WORDS=int(by_words),
        WARPS=warps,
    )
    if shared > _ORDINARY_SHARED:
        most = _cupy().cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        if shared > most:
            raise ValueError(
                f"ngram={minhash.ngram} and num_hashes={minhash.num_hashes} need {shared} bytes of shared memory, and "
                f"this GPU has {most}: use smaller numbers, or the processor"
            )
        kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared


def _function(source: str, name: str, **macros: int) -> Any:
    """A function of a file of CUDA code in this folder, for the current device."""
    return _compiled(_cupy().cuda.Device().id, source, name, **macros)


@functools.cache
def _compiled(device: int, source: str, name: str, **macros: int) -> Any:
    code = Path(__file__).with_name(f"{source}.cu").read_text(encoding="utf-8")
    options = tuple(f"-D{macro}={value}" for macro, value in macros.items())
    return _cupy().RawModule(code=code, options=options).get_function(name)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError('MinHash on a GPU needs CuPy: pip install "tamis[gpu]"') from error
    return cupy


def _check_bands(length: int, num_bands: int | None) -> None:
    if num_bands is not None and (num_bands < 1 or length % num_bands):
        raise ValueError(f"{length} numbers of a signature cannot be split into {num_bands} bands of the same size")


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def _joined(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
