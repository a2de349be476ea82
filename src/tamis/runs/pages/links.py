"""Where the links of a page lead: from a report to the files beside it, from a page that is served to other pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from tamis.runs.html import escaped

_FILES: Final = {
    "ledger": "ledger/",
    "quarantine": "quarantine/",
    "drop ledger": "drops/",
    "summary": "run.json",
    "manifest": "manifest.json",
    "plan": "plan.txt",
    "metrics": "metrics.jsonl",
    "scores": "scores.json",
}


@dataclass(frozen=True)
class Links:
    """The links of a page about a run.

    Args:
        files: The address of each kind of file of the run, as far as it has them.
        drops: Gives the address of the rows that a stage dropped for a reason; ``None`` if there is no such page.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    drops: Callable[[str, str], str] | None = None


def files_beside(run_dir: str, page: str) -> Links:
    """Links from a page to the files of a run, relative, so that they stay right when both are moved together."""
    start = os.path.dirname(os.path.abspath(page))
    found = {}
    for name, file in _FILES.items():
        path = os.path.join(os.path.abspath(run_dir), file)
        if os.path.exists(path):
            relative = os.path.relpath(path, start).replace(os.sep, "/")
            found[name] = quote(relative if relative.startswith(".") else f"./{relative}") + "/" * file.endswith("/")
    return Links(found)


def turn_pages(earlier: str, later: str) -> str:
    """Links to the pages before and after; nothing where there is none."""
    links = [f'<a class="button" rel="prev" href="{escaped(earlier)}">Previous page</a>'] if earlier else []
    links += [f'<a class="button" rel="next" href="{escaped(later)}">Next page</a>'] if later else []
    return f'<nav class="pages" aria-label="More rows">{"".join(links)}</nav>' if links else ""
