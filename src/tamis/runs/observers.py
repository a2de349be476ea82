"""Several observers of one run."""

from __future__ import annotations

from tamis.runs.progress import Observer
from tamis.runs.stats import Snapshot

__all__ = ["Observers"]


class Observers:
    """Passes progress updates to several observers, and messages to the first one.

    Args:
        display: The progress display.
        others: Those who record the run.
    """

    def __init__(self, display: Observer, *others: Observer) -> None:
        self._display, self._all = display, (display, *others)

    def start(self, snapshot: Snapshot) -> None:
        """The run begins."""
        for observer in self._all:
            observer.start(snapshot)

    def update(self, snapshot: Snapshot) -> None:
        """The state now."""
        for observer in self._all:
            observer.update(snapshot)

    def finish(self, snapshot: Snapshot) -> None:
        """The run has ended."""
        for observer in self._all:
            observer.finish(snapshot)

    def message(self, text: str) -> None:
        """A message for the user."""
        self._display.message(text)
