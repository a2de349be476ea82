"""Ctrl-C: the first lets what is in flight finish, the second stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopSignal:
    """Counts the user's wishes to stop while it is entered.

    Only the main thread can hear signals; elsewhere :meth:`request` is the way to ask.

    >>> with StopSignal() as stop:
    ...     stop.request()
    ...     stop.level
    1
    """

    def __init__(self) -> None:
        self.level = 0
        self._before: dict[int, Any] = {}

    def request(self) -> None:
        """Ask to stop: once after what is in flight, twice at once."""
        self.level += 1

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.request()
