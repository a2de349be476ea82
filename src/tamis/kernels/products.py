"""Products of matrices in single precision, and what is asked of them: on CPUs by NumPy, on GPUs by torch.

The matrix of all products stays where it was computed. What leaves it are the largest entries, and those from a bound
on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.unit_vectors import product_error

__all__ = ["CpuProducts", "Products", "TorchProducts", "products_on"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

_SUMMED_AT_ONCE: Final = 2**17
"""Rows that a GPU sums at once."""

_IN_ONE_PASS: Final = 2**18
"""Rows whose nearest centres a GPU finds at once where their products are not kept."""


class Products(Protocol):
    """Where matrices are multiplied."""

    rows_at_once: int
    """How many rows to multiply with a matrix of centres at once."""

    pair_rows: int
    pair_columns: int
    """How many rows to multiply with how many others at once, to find pairs."""

    def hold(self, matrix: Vectors) -> Any:
        """A matrix where it is needed for products."""

    def multiply(self, left: Any, right: Any, less: Any = None) -> Any:
        """The products of all rows of two matrices that are held, less a number for each row of the second."""

    def largest(self, products: Any) -> tuple[Vectors, Places]:
        """The largest product in each row, and where it is."""

    def count_from(self, products: Any, bounds: Vectors) -> Places:
        """How many products in each row are at least the bound of the row."""

    def from_bound(self, products: Any, bounds: Vectors) -> tuple[Places, Places, Vectors]:
        """The products that are at least the bound of their row, row by row: their rows, columns and values."""

    def at(self, products: Any, rows: Places) -> Vectors:
        """Some rows of the products."""

    def nearest(
        self, matrix: Any, centres: Any, halves: NDArray[np.float64], longest: float
    ) -> tuple[Places, Places, Places]:
        """The row of ``centres`` with the largest product less ``halves``, for each row of a matrix that is held.

        Args:
            matrix, centres: Matrices that are held.
            halves: Half of the squared length of each centre.
            longest: No row of the matrix is longer.

        Returns:
            The number of that row, which is certain except for rows that have several candidates: then the numbers of
            such rows, and of their candidates, row by row.
        """

    def take(self, matrix: Any, rows: Places) -> Any:
        """Some rows of a matrix that is held."""

    def sums_by(self, matrix: Any, places: Places, count: int, shift: int) -> Places:
        """The rows of a matrix that is held, times ``2**shift`` and rounded, summed by the place given for each."""


class CpuProducts:
    """Products by the linear algebra library that NumPy has, with as many threads as that is given."""

    rows_at_once = 1024
    pair_rows = 512
    pair_columns = 2048

    def hold(self, matrix: Vectors) -> Vectors:
        return matrix

    def multiply(self, left: Vectors, right: Vectors, less: Vectors | None = None) -> Vectors:
        found: Vectors = left @ right.T
        if less is not None:
            found -= less
        return found

    def largest(self, products: Vectors) -> tuple[Vectors, Places]:
        places = products.argmax(axis=1)
        return products[np.arange(len(products)), places], places

    def count_from(self, products: Vectors, bounds: Vectors) -> Places:
        counts: Places = np.count_nonzero(products >= bounds[:, None], axis=1)
        return counts

    def from_bound(self, products: Vectors, bounds: Vectors) -> tuple[Places, Places, Vectors]:
        places = np.flatnonzero(products >= bounds[:, None])
        rows, columns = np.divmod(places, max(1, products.shape[1]))
        return rows, columns, products.reshape(-1)[places]

    def at(self, products: Vectors, rows: Places) -> Vectors:
        return products[rows]

    def nearest(
        self, matrix: Vectors, centres: Vectors, halves: NDArray[np.float64], longest: float
    ) -> tuple[Places, Places, Places]:
        error = _score_error(32, centres.shape[1], longest, halves)
        homes, less = np.empty(len(matrix), np.int64), halves.astype(np.float32)
        rows_found, cells_found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for start, stop in _steps(len(matrix), self.rows_at_once):
            scores = self.multiply(matrix[start:stop], centres, less)
            top, homes[start:stop] = self.largest(scores)
            bounds = (top - np.float32(error)).astype(np.float32)
            unclear = np.flatnonzero(self.count_from(scores, bounds) > 1)
            rows, cells = np.nonzero(scores[unclear] >= bounds[unclear, None])
            rows_found.append(unclear[rows] + start)
            cells_found.append(cells)
        return homes, np.concatenate(rows_found), np.concatenate(cells_found)

    def take(self, matrix: Vectors, rows: Places) -> Vectors:
        return matrix[rows]

    def sums_by(self, matrix: Vectors, places: Places, count: int, shift: int) -> Places:
        sums = np.zeros((count, matrix.shape[1]), np.int64)
        step = max(1, 2**23 // max(1, matrix.shape[1]))
        for start in range(0, len(matrix), step):
            some = places[start : start + step]
            order = np.argsort(some, kind="stable")
            in_order = some[order]
            edges = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1], [True]]))
            whole = np.rint(np.ldexp(matrix[start : start + step], shift)).astype(np.int32)[order]
            for first, last in itertools.pairwise(edges.tolist()):
                sums[in_order[first]] += whole[first:last].sum(axis=0, dtype=np.int64)
        return sums


class TorchProducts:
    """Products on a device of torch.

    Args:
        device: Its name, such as ``"cuda"``.
    """

    rows_at_once = 32768
    pair_rows = 4096
    pair_columns = 16384

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self._device = torch, torch.device(device)
        self._kernel = _nearest_kernel(self._device)
        self._bits = (16, 32, 64) if self.finds_in_one_pass or self._multiplies_halves() else (32, 64)
        # Products of 19 bits, which some cards compute by themselves, would break the bound on the error.
        torch.backends.cuda.matmul.allow_tf32 = False

    def hold(self, matrix: Vectors) -> Any:
        matrix = np.ascontiguousarray(matrix)
        if not matrix.flags.writeable:
            matrix = matrix.copy()  # torch cannot say that a tensor must not be written to
        return self._torch.from_numpy(matrix).to(self._device)

    @property
    def finds_in_one_pass(self) -> bool:
        """Whether there is a kernel that finds nearest centres without keeping products."""
        return self._kernel is not None

    def multiply(self, left: Any, right: Any, less: Any = None) -> Any:
        if less is None:
            return left @ right.T
        return self._torch.addmm(less, left, right.T, beta=-1)

    def largest(self, products: Any) -> tuple[Vectors, Places]:
        values, places = products.max(dim=1)
        return values.cpu().numpy(), places.cpu().numpy()

    def count_from(self, products: Any, bounds: Vectors) -> Places:
        counts: Places = (products >= self.hold(bounds)[:, None]).sum(dim=1).cpu().numpy()
        return counts

    def from_bound(self, products: Any, bounds: Vectors) -> tuple[Places, Places, Vectors]:
        rows, columns = (products >= self.hold(bounds)[:, None]).nonzero(as_tuple=True)
        return rows.cpu().numpy(), columns.cpu().numpy(), products[rows, columns].cpu().numpy()

    def at(self, products: Any, rows: Places) -> Vectors:
        found: Vectors = products[self._torch.from_numpy(rows).to(self._device)].cpu().numpy()
        return found

    def nearest(
        self, matrix: Any, centres: Any, halves: NDArray[np.float64], longest: float
    ) -> tuple[Places, Places, Places]:
        """What is not certain with numbers of 16 bits is computed again with 32, and then with 64."""
        torch = self._torch
        homes = torch.empty(len(matrix), dtype=torch.int64, device=self._device)
        rows = torch.arange(len(matrix), device=self._device)
        less = torch.from_numpy(halves).to(self._device)
        asked: Any = matrix
        for bits in self._bits:
            error = _score_error(bits, centres.shape[1], longest, halves)
            if not np.isfinite(error):
                continue
            unclear = []
            in_one_pass = bits == 16 and self.finds_in_one_pass
            for start, stop in _steps(len(rows), _IN_ONE_PASS if in_one_pass else self.rows_at_once):
                find = self._in_one_pass if in_one_pass else self._by_products
                places, several = find(asked[start:stop], centres, less, bits, error)
                homes[rows[start:stop]] = places
                unclear.append(several)
            rows = rows[torch.cat(unclear)] if unclear else rows
            asked = matrix[rows]
        rows_found, cells_found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for start, stop in _steps(len(rows), self.rows_at_once):
            scores = self._scores(asked[start:stop], centres, less, 64)
            found, cells = (scores >= (scores.max(dim=1).values - error)[:, None]).nonzero(as_tuple=True)
            rows_found.append(rows[start:stop][found].cpu().numpy())
            cells_found.append(cells.cpu().numpy())
        return self._on_host(homes), np.concatenate(rows_found), np.concatenate(cells_found)

    def _in_one_pass(self, rows: Any, centres: Any, less: Any, bits: int, error: float) -> tuple[Any, Any]:
        """The centre with the largest score for each row, and whether others may have it as well."""
        found: tuple[Any, Any] = self._kernel(rows.half(), centres.half(), less.float(), error)
        return found

    def _by_products(self, rows: Any, centres: Any, less: Any, bits: int, error: float) -> tuple[Any, Any]:
        scores = self._scores(rows, centres, less, bits)
        top, places = scores.max(dim=1)
        return places, (scores >= (top - error)[:, None]).sum(dim=1) > 1

    def _scores(self, rows: Any, centres: Any, less: Any, bits: int) -> Any:
        torch = self._torch
        if bits == 16:
            left, right = rows.half(), centres.half().T
            made = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
            return made.sub_(less.float())
        if bits == 32:
            return torch.addmm(less.float(), rows, centres.T, beta=-1)
        return torch.addmm(less, rows.double(), centres.double().T, beta=-1)

    def _on_host(self, found: Any) -> Any:
        """A tensor as an array: through memory that a GPU writes to by itself."""
        held = self._torch.empty(found.shape, dtype=found.dtype, pin_memory=found.is_cuda)
        return held.copy_(found).numpy()

    def _multiplies_halves(self) -> bool:
        """Whether products of 16-bit numbers can be had with 32 bits."""
        torch = self._torch
        one = torch.ones((16, 16), dtype=torch.float16, device=self._device)
        if not one.is_cuda:
            return True  # they are products of 32-bit numbers
        try:
            return bool((torch.mm(one, one, out_dtype=torch.float32) == 16).all())
        except (NotImplementedError, RuntimeError, TypeError):
            return False

    def take(self, matrix: Any, rows: Places) -> Any:
        return matrix[self._torch.from_numpy(rows).to(self._device)]

    def sums_by(self, matrix: Any, places: Places, count: int, shift: int) -> Places:
        torch = self._torch
        sums = torch.zeros((count, matrix.shape[1]), dtype=torch.int64, device=self._device)
        held = torch.from_numpy(places).to(self._device)
        for start in range(0, len(matrix), _SUMMED_AT_ONCE):
            rows = slice(start, start + _SUMMED_AT_ONCE)
            whole = torch.round(torch.ldexp(matrix[rows], torch.tensor(shift, device=self._device))).to(torch.int64)
            sums.index_add_(0, held[rows], whole)  # whole numbers: the order of the additions does not count
        found: Places = sums.cpu().numpy()
        return found


def _nearest_kernel(device: Any) -> Any:
    """The function that finds nearest centres in one pass, where there is one."""
    if device.type != "cuda":
        return None
    try:
        from tamis.kernels.gpu import nearest
    except ImportError:
        return None
    return nearest.nearest_halves if nearest.works() else None


def _steps(count: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, count)) for start in range(0, count, step))


def _score_error(bits: int, dimensions: int, longest: float, halves: NDArray[np.float64]) -> float:
    """How far apart two scores of a row may seem while the exact ones are equal, with numbers of so many bits.

    A score is a product less half of a squared length. Numbers of 16 bits that are too large for them have no bound.
    """
    centre = float(np.sqrt(2 * halves.max(initial=0)))
    largest = max(longest, centre)
    summing = product_error(dimensions, longest * centre + centre**2)
    if bits == 64:
        return 4 * 2.0**-29 * summing  # the exact scores are sums of 64-bit numbers, too
    if bits == 32:
        return 2 * summing
    if largest > 2.0**15:
        return float("inf")
    # Each number is off by 2**-11 of itself, or by 2**-25 if it is very small.
    rounding = 1.01 * 2.0**-10 * longest * centre + 2.0**-25 * np.sqrt(dimensions) * (longest + centre)
    return float(2 * (rounding + 4 * summing))  # matrix units round sums less carefully


def products_on(device: str = "cpu") -> Products:
    """The products of a device: ``"cpu"`` is NumPy, any other name is a device of torch.

    >>> held = products_on("cpu").multiply(np.ones((2, 3), np.float32), np.ones((1, 3), np.float32))
    >>> held.tolist()
    [[3.0], [3.0]]
    """
    return CpuProducts() if device == "cpu" else TorchProducts(device.removeprefix("torch:"))
