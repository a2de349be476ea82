"""Where lines begin that hold more than white space."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels import native
from tamis.kernels.lines import line_starts

PIECES = st.sampled_from([b"\n", b"\n\n", b" ", b"\t", b"\r", b"x", b"\x0c", b"\xc2\xa0", b"y" * 63, b" " * 65])


def plain(data: bytes) -> list[int]:
    starts, start = [], 0
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            starts.append(start)
        start += len(line) + 1
    return starts


@examples(400)
@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_blank_lines_are_left_out(data: bytes) -> None:
    assert line_starts(data).tolist() == plain(data)
    assert line_starts(memoryview(data)).tolist() == plain(data)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_without_the_kernel_the_result_is_the_same(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        assert line_starts(data).tolist() == plain(data)


@pytest.mark.parametrize("lines", [1023, 1024, 1025, 100_000])
def test_very_many_short_lines_are_all_found(lines: int) -> None:
    assert line_starts(b"x\n" * lines).tolist() == list(range(0, 2 * lines, 2))
