"""Files of arrays in the safetensors format: plain data, no code, mapped into memory when read.

A file is the length of a header as eight bytes, the header as JSON (name, type, shape and place of each array), and the
arrays. The same arrays and metadata give the same bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import ModelError

__all__ = ["read_tensors", "write_tensors"]

_TYPES: Final = {
    "U8": "uint8",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F32": "float32",
    "F64": "float64",
}
_NAMES: Final = {dtype: name for name, dtype in _TYPES.items()}
_ALIGNMENT: Final = 64


def write_tensors(path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata to a file.

    Args:
        path: The file.
        arrays: Arrays of numbers by name.
        metadata: Texts by name.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, array in arrays.items():
        ends = [at, at + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": ends}
        at += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    with Path(path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)


def read_tensors(path: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a file, mapped into memory, and its metadata. Raises ``ModelError`` if it is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tensors(f"{folder}/a", {"x": np.arange(3)}, {"made": "here"})
    ...     arrays, metadata = read_tensors(f"{folder}/a")
    ...     arrays["x"].tolist(), metadata
    ([0, 1, 2], {'made': 'here'})
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        with file.open("rb") as source:
            (length,) = struct.unpack("<Q", source.read(8))
            if length > size - 8:
                raise ValueError("its header is cut off")
            header = json.loads(source.read(length))
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        arrays: dict[str, NDArray[Any]] = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            dtype, shape = np.dtype(_TYPES[entry["dtype"]]).newbyteorder("<"), tuple(entry["shape"])
            if begin < 0 or end > size - 8 - length or int(np.prod(shape)) * dtype.itemsize != end - begin:
                raise ValueError(f"the array {name!r} is cut off")
            whole = begin == end
            mapped = np.zeros(shape, dtype) if whole else np.memmap(file, dtype, "r", 8 + length + begin, shape)
            arrays[name] = mapped.view(np.ndarray)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError(f"{file} cannot be read: it is missing, damaged or cut off ({error})") from error
    return arrays, metadata
