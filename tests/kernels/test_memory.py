"""No kernel touches memory beyond its arrays, and none is called with arguments that would make it do so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.kernels import native
from tamis.kernels.buffers import PADDING, TextBuffers
from tamis.kernels.signatures import SIGNATURES
from tamis.kernels.utf8 import Utf8

SCRIPT = Path(__file__).parents[1] / "support" / "guarded_kernels.py"


@pytest.mark.skipif(sys.platform == "win32", reason="memory is protected in another way there")
@pytest.mark.parametrize("name", native.NAMES)
def test_no_kernel_reads_or_writes_beyond_its_arrays(name: str) -> None:
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), name]
    environment = os.environ | {"TAMIS_KERNELS": "wait"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert name in done.stdout.split()


GOOD = (
    *(np.frombuffer(b"some text", np.uint8), np.array([0, 4, 9]), 2, 9),
    *(np.zeros(8, np.uint8), np.array([1, 2]), 1, 0, np.empty(3 * PADDING, np.uint8), np.zeros(2, np.uint8)),
)
"""What the kernel "needles" may be called with."""


def call_with(place: int, argument: Any) -> int:
    kernel = native.load("needles")
    assert kernel is not None
    return kernel(*GOOD[:place], argument, *GOOD[place + 1 :])


@pytest.mark.parametrize(
    ("place", "argument", "error", "message"),
    [
        (0, np.zeros(9, np.int8), TypeError, "texts must be an array of uint8, not one of int8"),
        (0, b"some text", TypeError, "texts must be an array of uint8, not bytes"),
        (1, np.array([0, 4, 9], np.int32), TypeError, "offsets must be an array of int64, not one of int32"),
        (1, np.array([0, 4]), ValueError, r"offsets has 2 elements and needs 3 \(row_count \+ 1\)"),
        (1, np.array([0, 4, 9, 9])[::-1][1:], ValueError, "offsets must be a contiguous array"),
        (1, np.array([0, 4, 10]), ValueError, r"0 <= offsets\[0\] <= offsets\[row_count\] <= readable does not hold"),
        (2, 1.5, TypeError, "row_count must be a whole number, not float"),
        (2, -1, ValueError, "row_count = -1 is not between 0 and"),
        (3, 10, ValueError, r"texts has 9 elements and needs 10 \(readable\)"),
        (6, 1 << 64, ValueError, "needle_count = 18446744073709551616 is not between 0 and"),
        (9, np.frombuffer(b"ab", np.uint8), ValueError, "found is read-only, but the kernel writes to it"),
        (9, np.zeros(1, np.uint8), ValueError, "found has 1 elements and needs 2"),
    ],
)
def test_wrong_arguments_are_refused(place: int, argument: Any, error: type[Exception], message: str) -> None:
    assert call_with(2, 2) == 0
    with pytest.raises(error, match=f"kernel 'needles': .*{message}"):
        call_with(place, argument)


def test_the_number_of_arguments_is_checked() -> None:
    kernel = native.load("needles")
    assert kernel is not None
    with pytest.raises(TypeError, match="kernel 'needles': it takes 10 arguments, not 9"):
        kernel(*GOOD[1:])


@pytest.mark.parametrize(
    ("begins", "error", "message"),
    [
        ([np.zeros(1, np.int64)], ValueError, "begins has 1 arrays and needs 2"),
        ([np.zeros(1, np.int64), np.zeros(1, np.int32)], TypeError, "begins must be an array of int64"),
        ([np.zeros(1, np.int64), np.zeros(0, np.int64)], ValueError, "begins has 0 elements and needs 1"),
        ([np.zeros(1, np.int64), None], TypeError, "begins must be an array of int64, not NoneType"),
        (np.zeros(2, np.int64), TypeError, "begins must be a list of arrays, not one of int64"),
    ],
)
def test_each_array_of_a_list_is_checked(begins: Any, error: type[Exception], message: str) -> None:
    kernel = native.load("json_text")
    assert kernel is not None
    data = [np.frombuffer(b"x", np.uint8)] * 2
    arguments = (
        *(0, 1, 2, np.frombuffer(b'{"a":,"b":', np.uint8), np.array([5, 10]), np.ones(2, np.uint8), data, begins),
        *([np.ones(1, np.int64)] * 2, [None, np.zeros(1, np.uint8)], np.array([1, 1]), np.empty(2 * PADDING, np.uint8)),
        *(np.empty(1000, np.uint8), 1000, np.zeros(1, np.int64)),
    )
    with pytest.raises(error, match=f"kernel 'json_text': {message}"):
        kernel(*arguments)


def test_damaged_arrow_data_is_refused() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 5, 3], np.int32)), pa.py_buffer(b"abc")]
    array = pa.Array.from_buffers(pa.string(), 2, buffers)
    for read in (TextBuffers.of, Utf8.from_arrow):
        with pytest.raises(ValueError, match=r"the offsets of an Arrow array of type (large_)?string are damaged"):
            read(array)


def test_every_kernel_can_be_compiled_and_loaded() -> None:
    assert [name for name in SIGNATURES if native.load(name) is None] == []
