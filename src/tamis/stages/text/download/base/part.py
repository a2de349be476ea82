"""What the parts of a source share."""

from __future__ import annotations

import inspect

__all__ = ["SourcePart"]


class SourcePart:
    """A part of a source.

    It is shown with its parameters, as far as it keeps them as attributes of the same names, with or without ``_``.

    >>> class Years(SourcePart):
    ...     def __init__(self, first: int, last: int = 2024) -> None:
    ...         self.first, self._last = first, last
    >>> Years(2020)
    Years(first=2020, last=2024)
    """

    def __repr__(self) -> str:
        shown = []
        for name in inspect.signature(type(self)).parameters:
            kept = [attribute for attribute in (name, f"_{name}") if hasattr(self, attribute)]
            shown += [f"{name}={getattr(self, attribute)!r}" for attribute in kept[:1]]
        return f"{type(self).__name__}({', '.join(shown)})"
