"""The ways through a plan, as ``plan.json`` of a run has it: which stages a row passed before it came to another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tamis.plan import END
from tamis.stages.emit import DROPPED
from tamis.stages.flow import COPY

__all__ = ["PlanPaths", "Way"]

_PATH: Final = re.compile(r"Destination\(path='((?:[^'\\]|\\.)*)'")


@dataclass(frozen=True)
class Way:
    """Stages that rows pass once: the main ones of a pipeline, or those that the copies of a Tee go through.

    Args:
        tee: The Tee that sends copies here; empty for the main way.
        start: The number of its first stage.
        stages: The numbers of its stages, without those that are given copies of the copies.
        names: Their names.
    """

    tee: str
    start: int
    stages: frozenset[int]
    names: frozenset[str]


class PlanPaths:
    """The stages of a plan and the ways between them.

    Args:
        outline: The plan as :func:`tamis.plan.outline.outline` gives it; may be empty.
    """

    def __init__(self, outline: Mapping[str, Any]) -> None:
        self._vertices: list[Mapping[str, Any]] = list(outline.get("vertices", ()))
        self._numbers = {vertex["name"]: number for number, vertex in enumerate(self._vertices)}
        self.writers = {v["name"]: _directory(v) for v in self._vertices if v.get("sink")}
        """The directory that each writer writes to; empty where it is not known."""
        self.ways = self._ways()
        """The ways that rows go, the main one first, each before those of copies that are made on it."""

    def _ways(self) -> list[Way]:
        starts = [(number, v["edges"][COPY]) for number, v in enumerate(self._vertices) if COPY in v.get("edges", ())]
        reached = {start: frozenset(self._reached(start)) - {END} for _, start in starts}
        ways = []
        for tee, start in [(-1, 0), *starts]:
            inner = [r for n, r in reached.items() if n != start and (tee < 0 or n in reached[start])]
            own = (reached[start] if tee >= 0 else frozenset(range(len(self._vertices)))).difference(*inner)
            name = self._vertices[tee]["name"] if tee >= 0 else ""
            ways.append(Way(name, start, own, frozenset(self._vertices[number]["name"] for number in own)))
        return ways

    def way_of(self, stage: str) -> Way:
        """The way that a stage is on; the main one for stages that the plan does not have."""
        return next((way for way in self.ways[1:] if stage in way.names), self.ways[0])

    @property
    def shown(self) -> list[str]:
        """The stages that reports show: without sources and internal ones."""
        return [v["name"] for v in self._vertices if not v.get("internal") and not v.get("source")]

    @property
    def has_barrier(self) -> bool:
        """Whether a stage looks at all rows before it goes on: after it, tasks do not follow from those before it."""
        return any(v.get("source") for v in self._vertices[1:])

    def writer_of(self, path: str) -> str:
        """The stage that wrote a file: the one with the longest directory that the file is in; empty if none is."""
        found = [(len(place), name) for name, place in self.writers.items() if place and path.startswith(place)]
        return max(found)[1] if found else ""

    def places_of_dropped(self, stage: str = "") -> list[str]:
        """The directories that rows are written to which a stage, or any stage, has dropped."""
        starts = [
            vertex["edges"][DROPPED]
            for vertex in self._vertices
            if DROPPED in vertex["edges"] and stage in ("", vertex["name"])
        ]
        after = {number for start in starts for number in self._reached(start)}
        return [place for name, place in self.writers.items() if place and self._numbers[name] in after]

    def passed(self, stage: str, target: str) -> str:
        """Whether a row that came to ``target`` passed a stage: ``"passed"``, ``"maybe"`` or ``"not reached"``.

        Args:
            stage: The stage.
            target: Where the row came to, on the same way; empty for its end, wherever that is.
        """
        ends = {self._numbers[target]} if target else {END}
        number = self._numbers[stage]
        way = self.way_of(stage)
        if not self._reaches(number, ends, way) or number in ends:
            return "not reached"
        return "maybe" if self._reaches(way.start, ends, way, without=number) else "passed"

    def _reached(
        self, start: int, without: int | None = None, *, kept: bool = False, way: Way | None = None
    ) -> set[int]:
        """What can be reached from a stage; with ``kept`` only by rows that are not dropped."""
        found: set[int] = set()
        waiting = [start]
        while waiting:
            number = waiting.pop()
            if number in found or number == without or (way and number != END and number not in way.stages):
                continue
            found.add(number)
            if 0 <= number < len(self._vertices):
                edges = self._vertices[number]["edges"]
                waiting += [to for port, to in edges.items() if not (kept and port == DROPPED)]
        return found

    def _reaches(self, start: int, ends: set[int], way: Way, without: int | None = None) -> bool:
        return start != without and bool(self._reached(start, without, kept=ends == {END}, way=way) & ends)


def _directory(vertex: Mapping[str, Any]) -> str:
    """The directory of a writer, with a slash at its end."""
    found = _PATH.search(str(vertex.get("parameters", {}).get("destination", "")))
    return found[1].rstrip("/") + "/" if found else ""
