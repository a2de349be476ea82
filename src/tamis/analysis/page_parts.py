"""Parts that the pages of analyses share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tamis.runs import figures
from tamis.runs.html import cell, escaped, fill

__all__ = ["bar_table", "some_names"]

_SHOWN: Final = 15


def some_names(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are.

    >>> some_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def bar_table(counts: Sequence[tuple[str, int]], whole: int) -> str:
    """Values with a bar for how often each occurs.

    Args:
        counts: The values and how often each occurs, most first.
        whole: Of how many.
    """
    most = max((count for _, count in counts), default=1)
    rows = [
        f'<tr><td class="name">{escaped(value, 100)}</td>'
        f'<td class="bar"><span class="track">{fill(count / most)}</span></td>'
        f"{cell(figures.number(count))}{cell(figures.percent(count / whole))}</tr>"
        for value, count in counts[:_SHOWN]
    ]
    more = f'<p class="soft">and {figures.number(len(counts) - _SHOWN)} more</p>' if len(counts) > _SHOWN else ""
    return f'<div class="wide"><table class="grouped"><tbody>{"".join(rows)}</tbody></table></div>{more}'
