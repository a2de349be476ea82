"""How many examples property tests try: all of them in ``make test-all``, a third in ``make test``."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

__all__ = ["as_usual", "examples"]

_IS_THOROUGH = os.environ.get("TAMIS_TESTS") == "thorough"


def examples(number: int, **others: Any) -> settings:
    """Settings for so many examples, or a third of them, but ten at least if there are as many.

    There is no deadline, because the machine may be busy.
    """
    few = max(number // 3, min(number, 10))
    return settings(max_examples=number if _IS_THOROUGH else few, deadline=None, **others)


def as_usual() -> settings:
    """What tests without settings of their own try: a hundred examples, or a third of them."""
    return examples(100)
