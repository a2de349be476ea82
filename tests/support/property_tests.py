"""How many examples property tests try: all of them in ``make test-all``, a third in ``make test``."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

__all__ = ["examples"]

_IS_THOROUGH = os.environ.get("TAMIS_TESTS") == "thorough"


def examples(number: int, **others: Any) -> settings:
    """Settings for so many examples, or a third of them; the machine may be busy, so there is no deadline."""
    return settings(max_examples=number if _IS_THOROUGH else -(-number // 3), deadline=None, **others)
