"""How long tasks take: a fading mean, which follows changes and smooths out single tasks."""

from __future__ import annotations

from dataclasses import dataclass

KEPT = 48.0
"""Roughly how many of the last assignments count."""


@dataclass
class ServiceTime:
    """Seconds of work per assignment and per task.

    >>> service = ServiceTime()
    >>> service.per_task is None
    True
    >>> service.add(2.0, tasks=4)
    >>> service.per_assignment, service.per_task
    (2.0, 0.5)
    """

    seconds: float = 0.0
    assignments: float = 0.0
    tasks: float = 0.0

    def add(self, seconds: float, tasks: int) -> None:
        """Add an assignment of this many tasks that took this long."""
        fading = min(1.0, KEPT / (self.assignments + 1.0))
        self.seconds = self.seconds * fading + seconds
        self.assignments = self.assignments * fading + 1.0
        self.tasks = self.tasks * fading + tasks

    @property
    def per_assignment(self) -> float | None:
        """Mean seconds of an assignment; ``None`` before the first."""
        return self.seconds / self.assignments if self.assignments else None

    @property
    def per_task(self) -> float | None:
        """Mean seconds of a task; ``None`` before the first."""
        return self.seconds / self.tasks if self.tasks else None
