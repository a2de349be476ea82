"""Kernels over pixels."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.arguments import Number, Signature
from tamis.kernels.image_sums import COLORS, SUMS
from tamis.kernels.signatures.parameter_kinds import byte_array, floats, integers, short_integers, words


def weights_inside(begins: NDArray[np.int64], counts: NDArray[np.int64], count: int, taps: int, size: int) -> bool:
    """Whether weights are for pixels that are there.

    Args:
        begins, counts: From which pixel on, and for how many.
        count: How many sums there are.
        taps: How many weights a sum has at most.
        size: How many pixels there are.

    >>> begins, counts = np.array([0, 1]), np.array([2, 2])
    >>> weights_inside(begins, counts, 2, 2, 3), weights_inside(begins, counts, 2, 2, 2)
    (True, False)
    """
    first, many = begins[:count], counts[:count]
    return bool((first >= 0).all() and (many >= 0).all() and (many <= taps).all() and (first + many <= size).all())


IMAGE_SIGNATURES: Final[dict[str, Signature]] = {
    "image_measures": Signature(
        conditions=("0 < width and 0 < height",),
        pixels=byte_array("3 * width * height"),
        height=Number(),
        width=Number(),
        luma=byte_array("width * height", is_written=True),
        luma_counts=integers("256", is_written=True),
        spread_counts=integers("256", is_written=True),
        color_counts=integers(f"{COLORS}", is_written=True),
        sums=integers(f"{SUMS}", is_written=True),
    ),
    "resize": Signature(
        conditions=(
            "width > 0 and height > 0 and new_width > 0 and new_height > 0",
            *(
                f"({a}_begins[:{new}] >= 0).all() and ({a}_counts[:{new}] >= 0).all() and "
                f"({a}_counts[:{new}] <= {a}_taps).all() and "
                f"({a}_begins[:{new}] >= {a}_begins[0]).all() and "
                f"({a}_begins[:{new}] + {a}_counts[:{new}] <= {a}_begins[{new} - 1] + {a}_counts[{new} - 1]).all() and "
                f"{a}_begins[{new} - 1] + {a}_counts[{new} - 1] <= {old}"
                for a, new, old in (("x", "new_width", "width"), ("y", "new_height", "height"))
            ),
        ),
        pixels=byte_array("3 * width * height"),
        height=Number(),
        width=Number(),
        x_begins=integers("new_width"),
        x_counts=integers("new_width"),
        x_weights=short_integers("x_taps * new_width"),
        x_taps=Number(),
        new_width=Number(),
        y_begins=integers("new_height"),
        y_counts=integers("new_height"),
        y_weights=short_integers("y_taps * new_height"),
        y_taps=Number(),
        new_height=Number(),
        turned=byte_array(
            "48 * max(16, int(x_begins[new_width - 1] + x_counts[new_width - 1] - x_begins[0]))", is_written=True
        ),
        narrow=byte_array("48 * new_width", is_written=True),
        between=byte_array(
            "int(y_begins[new_height - 1] + y_counts[new_height - 1] - y_begins[0])"
            " * ((3 * new_width + 63) // 64 * 64) + 64",
            is_written=True,
        ),
        line=byte_array("(3 * new_width + 63) // 64 * 64", is_written=True),
        resized=byte_array("3 * new_width * new_height", is_written=True),
    ),
    "grey_thumbnail": Signature(
        conditions=(
            "0 < width < 1 << 31 and 0 < height < 1 << 31 and columns > 0 and rows > 0",
            "weights_inside(x_begins, x_counts, columns, x_taps, width)",
            "weights_inside(y_begins, y_counts, rows, y_taps, height)",
        ),
        helpers={"weights_inside": weights_inside},
        pixels=byte_array("3 * height * width"),
        height=Number(),
        width=Number(),
        x_begins=integers("columns"),
        x_counts=integers("columns"),
        x_weights=short_integers("columns * x_taps"),
        x_taps=Number(),
        columns=Number(),
        y_begins=integers("rows"),
        y_counts=integers("rows"),
        y_weights=short_integers("rows * y_taps"),
        y_taps=Number(),
        rows=Number(),
        height_first=Number(),
        grey=byte_array("height * width", is_written=True),
        half=byte_array("rows * width if height_first else columns * height", is_written=True),
        sums=short_integers("width", is_written=True),
        thumbnail=byte_array("rows * columns", is_written=True),
    ),
    "dct_hash": Signature(
        thumbnail=byte_array("1024"),
        first_waves=floats("14"),
        second_waves=floats("9"),
        turns=floats("32"),
        low=floats("256", is_written=True),
        line=floats("32", is_written=True),
        room=floats("64", is_written=True),
        hashes=words("1", is_written=True),
    ),
}
"""By the names of kernels."""
