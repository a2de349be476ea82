"""Which addresses to fetch."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tamis.errors import PlanError
from tamis.stages.base import SourceStage
from tamis.stages.resources import Resources
from tamis.stages.text.forms import ShownWithParameters
from tamis.tasks import EmptyTask, FileGroup, FileSlice

__all__ = ["URLGenerationStage", "URLGenerator", "URLList"]


class URLGenerator(ShownWithParameters, ABC):
    """Finds the addresses of a source: from a list, an index on the web, a range of dates.

    >>> class Years(URLGenerator):
    ...     def generate_urls(self) -> list[str]:
    ...         return [f"https://example.org/{year}.jsonl.gz" for year in (2023, 2024)]
    >>> len(Years().generate_urls())
    2
    """

    @abstractmethod
    def generate_urls(self) -> list[str]:
        """The addresses, in an order that is the same each time."""


@dataclass
class URLList(URLGenerator):
    """Addresses that are known already.

    Args:
        urls: Web addresses, local paths, or any address fsspec knows.

    >>> URLList(["https://example.org/a.txt"]).generate_urls()
    ['https://example.org/a.txt']
    """

    urls: list[str]

    def __post_init__(self) -> None:
        if isinstance(self.urls, str):
            raise PlanError(f"URLList({self.urls!r}): give a list of addresses, [{self.urls!r}]")

    def generate_urls(self) -> list[str]:
        return list(self.urls)


@dataclass
class URLGenerationStage(SourceStage[EmptyTask, FileGroup]):
    """Make a task of each address.

    Args:
        url_generator: Finds the addresses. It is asked once, on the driver.
        limit: At most so many of them.

    >>> [task.data for task in URLGenerationStage(URLList(["a.txt", "b.txt"])).splits("")]
    [['a.txt'], ['b.txt']]
    """

    url_generator: URLGenerator
    limit: int | None = None

    resources = Resources(cpus=0.5)
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = f"url_generation_{type(self.url_generator).__name__.lower()}"
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"url_limit={self.limit}: must be at least 1, or None for no limit")

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        """One task for each address."""
        yield from self.noting_input(self._tasks())

    def _tasks(self) -> Iterator[FileGroup]:
        times: Counter[str] = Counter()
        for url in itertools.islice(self._urls, self.limit):
            # An address that comes again is another task, and so has to have another id.
            version = f"again {times[url]}" if times[url] else ""
            times[url] += 1
            yield FileGroup([url], _metadata={"source_url": url}, slices=[FileSlice(url, version=version)])

    @functools.cached_property
    def _urls(self) -> list[str]:
        # Asking may mean to fetch an index, and the run asks twice: to make the tasks and to see how many there are.
        return self.url_generator.generate_urls()
