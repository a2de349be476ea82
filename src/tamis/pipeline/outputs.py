"""The directories a run writes to: claimed before it starts, put in order when it is done."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tamis.errors import TamisError, redacted
from tamis.pipeline.nothing_to_do import input_content
from tamis.plan import Plan
from tamis.plan.describe import describe
from tamis.runs.directory import RunDirectory
from tamis.runs.finished_work import FinishedWork, OutputPlace
from tamis.runs.ledger import committed_lines, segments
from tamis.runs.publication import publish, sync
from tamis.stages.base import SourceStage
from tamis.stages.emit import Publish
from tamis.stages.io.output_directory import OutputDirectory, WriterRun
from tamis.stages.io.paths import join
from tamis.stages.io.sink import FileSink
from tamis.tasks import Task
from tamis.tasks.base import digest

_LOG = logging.getLogger("tamis")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Rows and bytes of a file that a run has written."""

    rows: int
    nbytes: int


class Outputs:
    """The output directories of a run. As a context manager it gives them up again, however the run ends.

    Args:
        plan: The plan. Its writers get the id of the run.
        directory: The run directory.
        initial: Tasks that the run starts with.
        started: When it started, as ISO 8601 in UTC.
        fresh: Whether nothing counts that earlier starts have finished.
    """

    def __init__(
        self, plan: Plan, directory: RunDirectory, initial: Sequence[Task[Any]], started: str, *, fresh: bool = False
    ) -> None:
        self._plan, self._directory, self._initial = plan, directory, initial
        self._run = WriterRun(directory.run_id, redacted(directory.address), plan.name, fingerprint(plan), started)
        self._directories = [OutputDirectory(sinks) for sinks in _by_directory(plan).values()]
        places = [OutputPlace(sink.destination.path, sink.destination.storage_options) for sink in _sinks(plan)]
        self.damage: list[str] = []
        """Messages about parts of the ledger that cannot be read."""
        self.finished = FinishedWork(directory, places, self.damage.append, nothing=fresh)
        """What earlier starts of the run have finished."""
        source = plan.vertices[0]
        if isinstance(source.stage, SourceStage):
            source.stage.keep_groups(self.finished.groups.get(source.name, ()))

    def __enter__(self) -> Outputs:
        try:
            for directory in self._directories:
                directory.lock(self._run)
            self.finished.restore_names()
            for directory in self._directories:
                directory.prepare(self._run, self._current_input, self._directory.replaced_run)
                if not directory.continues:
                    self.finished.forget_files(directory.path)
            self.finished.check_files()
        except BaseException:
            self._release()
            raise
        return self

    @property
    def are_complete(self) -> bool:
        """Whether an earlier start has finished the run: same pipeline, same input, and its files are all there."""
        end = self.finished.finished
        if end is None or self.damage or end["plan"] != self._run.fingerprint or not end["input"]:
            return False
        try:
            if end["input"] != self._current_input():
                return False
        except (TamisError, OSError):
            return False  # the run itself says what is wrong with the input
        return self.finished.is_whole

    def use_all(self) -> None:
        """Count everything that earlier starts have finished as part of this one."""
        for batch in list(self.finished.unused()):
            self.finished.find(batch.key, batch.tasks)

    def end(self, state: str) -> dict[str, Any]:
        """The line with which the ledger of a run ends that came to its end."""
        return {"finished": state, "plan": self._run.fingerprint, "input": self._input()}

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for directory in self._directories:
            try:
                directory.release()
            except Exception:  # noqa: BLE001 - a store may raise anything, and it must not hide how the run ended
                _LOG.warning("%s could not be released", redacted(directory.path), exc_info=True)

    def check(self, finished: Publish) -> None:
        """Refuse a finished file whose schema does not fit the other files of its output."""
        for directory in self._directories if finished.output else ():
            if directory.path == finished.output:
                directory.check(finished)

    def finish(self, resized: Callable[[Publish, int], None]) -> list[str]:
        """Put the directories in order after a run that came to its end; return what to tell the user.

        Args:
            resized: Called with each file that was written anew, and with how much larger that made it, in bytes.
        """
        messages = []
        for directory in self._directories:
            count = 0
            for rewritten, grown in directory.rewrites(self._published):
                publish(sync(rewritten))
                resized(rewritten, grown)
                count += 1
            if count:
                files = "1 file was" if count == 1 else f"{count} files were"
                messages.append(
                    f"{redacted(directory.path)}: {files} written again, so that all have one schema. "
                    "Types that are declared where the data is read, for instance JsonlReader(types={...}), avoid that"
                )
            messages += directory.finish(self._input(), self._published)
        return messages

    def written(self) -> Iterator[tuple[list[FileSink[Any]], dict[str, WrittenFile]]]:
        """For each output directory its writers, and the files of this run by their names in the directory.

        Files that describe others, such as the index of a tar, are left out.
        """
        sizes: dict[str, WrittenFile] = {}
        for segment in segments(self._directory.ledger):
            for _, line in committed_lines(os.path.join(self._directory.ledger, segment), lambda _: None):
                values = json.loads(line)
                for file in (file for file in values.get("files", ()) if not file.get("beside")):
                    sizes[str(file["path"])] = WrittenFile(int(file["rows"]), int(file["bytes"]))
                if values.get("resized") in sizes:
                    sizes[values["resized"]] = replace(sizes[values["resized"]], nbytes=int(values["bytes"]))
        published = set(self._published())
        for path, sinks in _by_directory(self._plan).items():
            below = redacted(join(path, ""))
            yield (
                sinks,
                {
                    name.removeprefix(below): sizes[name]
                    for name in sorted(published)
                    if name in sizes and name.startswith(below)
                },
            )

    def _published(self) -> Iterable[str]:
        """The files of the run: those that earlier starts have written and this one has used, and its own."""
        yield from self.finished.files()
        for own in segments(self._directory.ledger)[self.finished.segments :]:
            for _, line in committed_lines(os.path.join(self._directory.ledger, own), lambda _: None):
                for file in json.loads(line).get("files", ()):
                    yield str(file["path"])

    def _current_input(self) -> str:
        """What the input is now."""
        source = self._plan.vertices[0].stage
        return source.current_input_id() if isinstance(source, SourceStage) else input_content(self._initial)

    def _input(self) -> str:
        """What the input of the run was; empty if it cannot be listed any more."""
        source = self._plan.vertices[0].stage
        if isinstance(source, SourceStage) and source.input_id:
            return source.input_id
        try:
            return self._current_input()
        except (TamisError, OSError):
            return ""


def fingerprint(plan: Plan) -> str:
    """A digest of the pipeline and of the addresses that it reads."""
    return digest(plan.fingerprint, describe(plan.vertices[0].stage))


def _sinks(plan: Plan) -> Iterator[FileSink[Any]]:
    return (vertex.stage for vertex in plan.vertices if isinstance(vertex.stage, FileSink))


def _by_directory(plan: Plan) -> dict[str, list[FileSink[Any]]]:
    found: dict[str, list[FileSink[Any]]] = {}
    for sink in _sinks(plan):
        found.setdefault(sink.destination.path, []).append(sink)
    return found
