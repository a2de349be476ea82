"""Which kernels there are for states of tokens on this machine's GPU."""

from __future__ import annotations

import functools
import logging
from typing import Any

__all__ = ["row_kernels"]


@functools.cache
def row_kernels() -> Any:
    """The module :mod:`tamis.models.triton_kernels`, or ``None`` where Triton is missing or does not work."""
    try:
        from tamis.models import triton_kernels

        triton_kernels.check()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it: PyTorch does the same, more slowly
        logging.getLogger("tamis").info("models run without Triton's kernels: %s", error)
        return None
    return triton_kernels
