"""The rows of the sample, and the pages they are made of."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from .chance import by_chance
from .packages import BuildError
from .plaintext import read_html, read_mallard
from .selection import TREES, Tree
from .sources import SOURCE_OF


@dataclass(frozen=True)
class Row:
    """One line of the sample."""

    id: str
    text: str
    lang: str
    source: str
    url: str

    def as_json(self) -> str:
        """The row as one line of JSON."""
        fields = {
            "id": self.id,
            "text": self.text,
            "lang": self.lang,
            "source": self.source,
            "license": SOURCE_OF[self.source].license,
            "url": self.url,
        }
        return json.dumps(fields, ensure_ascii=False)


@functools.cache
def page_text(path: Path, keep_navigation: bool) -> str:
    """The text of a page, read once."""
    return read_mallard(path) if path.suffix == ".page" else read_html(path, keep_navigation).text()


@dataclass(frozen=True)
class Library:
    """The pages of all trees, read on demand."""

    root: Path  # the unpacked packages, each in a folder of its name

    def path(self, tree: Tree, page: str) -> Path:
        """Where a page lies."""
        return self.root / tree.package / tree.root / page

    def pages(self, tree: Tree) -> list[str]:
        """The pages of a tree, as paths below its root."""
        top = self.path(tree, "")
        found = (path.relative_to(top).as_posix() for path in top.glob(tree.pattern))
        return sorted(page for page in found if not page.startswith("_"))

    def text(self, tree: Tree, page: str, keep_navigation: bool = False) -> str:
        """The text of a page."""
        return page_text(self.path(tree, page), keep_navigation)

    def row(self, tree: Tree, page: str, keep_navigation: bool = False) -> Row:
        """A page as a row of the sample."""
        text = self.text(tree, page, keep_navigation)
        return Row(tree.row_id(page), text, tree.lang, tree.package, f"{tree.root}/{page}")

    def untranslated_share(self, tree: Tree, page: str) -> float:
        """How much of a page, by characters, stands in the same words in its English twin."""
        if not tree.english or not self.path(TREES[tree.english], page).exists():
            return 0.0
        english = set(self.text(TREES[tree.english], page).splitlines())
        lines = [line for line in self.text(tree, page).splitlines() if len(line) > 20]
        return sum(len(line) for line in lines if line in english) / max(1, sum(map(len, lines)))


class Origin(NamedTuple):
    """Where a row came from, for rows that are ordinary pages."""

    tree: Tree
    page: str
    navigation: bool  # whether the row kept the navigation bars


class Sample:
    """The rows chosen so far, by id, and for every class of dirt the ids of the rows that have it."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.dirt: dict[str, set[str]] = defaultdict(set)
        self.origins: dict[str, Origin] = {}

    def add(self, row: Row, *classes: str) -> None:
        """Add a row, once, and note its dirt."""
        if row.id in self.rows:
            raise BuildError(f"{row.id} is in the sample twice")
        self.rows[row.id] = row
        for label in classes:
            self.dirt[label].add(row.id)

    def add_again(self, row: Row, *classes: str) -> None:
        """Add a further version of a row under an id of its own, as if the page had been fetched once more."""
        names = (f"{row.id}@{n}" for n in range(2, 99))
        self.add(replace(row, id=next(name for name in names if name not in self.rows)), *classes)

    def damage(self, row: Row, text: str, label: str) -> None:
        """Put a damaged text in the place of a sound one."""
        self.rows[row.id] = replace(row, text=text)
        self.dirt[label].add(row.id)

    def sound(self, purpose: str) -> Iterator[Row]:
        """Ordinary pages without dirt, but for navigation bars, in the order of chance."""
        spoilt = {name for label, names in self.dirt.items() if label != "navigation_bars" for name in names}
        for name in by_chance(self.origins.keys() - spoilt, purpose):
            yield self.rows[name]

    def unused_pages(self, library: Library, tree: Tree, purpose: str, max_untranslated: float) -> Iterator[str]:
        """Ordinary pages of a tree that the sample does not hold yet, in the order of chance."""
        for page in by_chance(library.pages(tree), purpose):
            fits = tree.row_id(page) not in self.rows and tree.accepts(library.text(tree, page))
            if fits and library.untranslated_share(tree, page) <= max_untranslated:
                yield page
