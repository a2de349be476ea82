"""Ctrl-C: the first one lets running tasks finish, the second one ends the run at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = "Stopping: finishing what is in flight. Press Ctrl-C again to stop at once."
"""What the user is told after the first Ctrl-C."""


class StopSignal:
    """Counts the user's requests to stop while it is entered.

    The driver's loop reads :attr:`level` between its turns. While the loop's own thread runs a stage
    (:meth:`interruptible`), it cannot: then the first request is announced by another thread, and the second one raises
    :class:`KeyboardInterrupt` inside the stage. A third one raises wherever the main thread is, should the loop hang.

    Signals reach only the main thread; other threads call :meth:`request`.

    Attributes:
        level: How often the user asked to stop.
        announced: Whether the user has been told that the run is stopping.

    >>> with StopSignal() as stop:
    ...     stop.request()
    ...     stop.level
    1
    """

    def __init__(self) -> None:
        self.level = 0
        self.announced = False
        self._before: dict[int, Any] = {}
        self._announce: Callable[[str], None] | None = None  # set while a stage runs in this thread

    def request(self) -> None:
        """Ask to stop: once to let running tasks finish, twice to stop at once."""
        self.level += 1

    @contextmanager
    def interruptible(self, announce: Callable[[str], None]) -> Iterator[None]:
        """Let signals reach code that does not return to the driver's loop for a while.

        Args:
            announce: Shows a message to the user; called from another thread.
        """
        self._announce = announce
        try:
            yield
        finally:
            self._announce = None

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        if self.level >= 3 or (self.level == 2 and self._announce is not None):
            raise KeyboardInterrupt
        if self.level == 2 or self._announce is None:
            return  # the driver's loop sees it
        self.announced = True
        # In a thread: the stage that was interrupted may be in the middle of writing to the same stream.
        threading.Thread(target=self._announce, args=(STOPPING,), name="tamis-stopping", daemon=True).start()
