"""What earlier starts of a run have finished, read from its ledger.

A line of the ledger holds what became of some tasks that a worker was given at once. It counts as long as all files
that it names are there, under their names and with their sizes, and no later line names one of them.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tamis.errors import redacted
from tamis.runs.directory import RunDirectory
from tamis.runs.ledger import committed_lines, located, own_prefix, segments
from tamis.runs.publication import publish
from tamis.stages.emit import Publish
from tamis.stages.io.paths import base_name, filesystem, is_local, join, parent, remove_file

__all__ = ["FinishedBatch", "FinishedWork", "OutputPlace"]

_KEY, _FILES = b'{"key":"', b',"files":['


@dataclass(frozen=True)
class OutputPlace:
    """A directory that the run writes to: its path, with secrets where it has any, and the options to reach it."""

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class FinishedBatch:
    """What became of tasks that a worker was given at once.

    Args:
        key: Identifies them, see :meth:`tamis.backends.bookkeeper.Bookkeeper.key`.
        stage: The first stage that had them.
        tasks: Their ids.
        files: The files they made: ``path``, ``rows``, ``bytes``.
        outputs: The tasks they made: ``to`` (a stage; none at the end of the pipeline), ``id``, ``order``, ``rows``,
            ``weight``, ``bytes``, and where the data is, if it was kept: ``file`` or ``task``.
        counts: What each stage counted, by its name, as :meth:`tamis.runs.stats.StageStats.record` gives it.
        set_aside: Whether they were given up.
    """

    key: str
    stage: str
    tasks: list[str]
    files: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, dict[str, Any]] = field(default_factory=dict)
    set_aside: bool = False

    def line(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        """What the ledger says of it: what is empty is left out."""
        values = {"files": files, "outputs": self.outputs, "counts": self.counts, "set_aside": self.set_aside}
        given = {name: value for name, value in values.items() if value}
        return {"key": self.key, "stage": self.stage, "tasks": self.tasks, **given}

    @classmethod
    def parse(cls, line: bytes) -> FinishedBatch:
        """The batch of a line."""
        values = json.loads(line)
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})


@dataclass(slots=True)
class _File:
    """A file that a line names, and the key of the line."""

    key: str
    nbytes: int
    temporary: str


class FinishedWork:
    """Finished batches by their keys. Only their places in the ledger are in memory.

    Args:
        directory: The run's directory.
        places: The directories that the run writes to.
        tell: Called with a message for the user when a part of the ledger is damaged.
        nothing: Whether to leave out everything that the ledger names.

    Attributes:
        numbers: For each source, the numbers that its tasks got, by their ids: as many as tasks have the same id.
        groups: For each source, the files that were put into one task, in the order of their numbers.
        finished: The last line of a run that came to its end; ``None`` if something was recorded after it.
    """

    def __init__(
        self,
        directory: RunDirectory,
        places: Sequence[OutputPlace] = (),
        tell: Callable[[str], object] = lambda _: None,
        *,
        nothing: bool = False,
    ) -> None:
        self._scratch = directory.scratch
        self._own_folders = (directory.drops, directory.scores, directory.outputs, directory.quarantine)
        self._own = own_prefix(directory.ledger)
        self._segments: list[BinaryIO] = []
        self._lines: dict[str, tuple[int, int, int]] = {}  # segment, first byte and length of each line
        self._files: dict[str, _File] = {}
        self._invalid: set[str] = set()
        self._used: set[str] = set()
        self._retried: set[str] = set()
        self._drop_files = 0
        self._stale: dict[str, int] = {}  # keys whose rows do not count in this many drop ledgers, the oldest ones
        self._next_is_retried = False
        self._output_places = {redacted(join(place.path, "")): place for place in places}
        self._listings: dict[str, dict[str, int]] = {}
        self.numbers: dict[str, dict[str, deque[int]]] = defaultdict(lambda: defaultdict(deque))
        self.groups: dict[str, list[list[str]]] = defaultdict(list)
        self.finished: dict[str, Any] | None = None
        for name in [] if nothing else segments(directory.ledger):
            self._load(os.path.join(directory.ledger, name), tell)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __len__(self) -> int:
        """How many batches are finished, as far as their files are there."""
        return len(self._lines.keys() - self._invalid)

    @property
    def segments(self) -> int:
        """How many segments of the ledger earlier starts have written, as far as they count."""
        return len(self._segments)

    def close(self) -> None:
        """Close the ledger."""
        for file in self._segments:
            file.close()

    def _load(self, path: str, tell: Callable[[str], object]) -> None:
        self._segments.append(Path(path).open("rb"))  # noqa: SIM115 - held open
        for place, line in committed_lines(path, tell):
            if line.startswith(_KEY):
                self._add(line, place)
                self.finished = None
            else:
                self._note(json.loads(line))

    def _add(self, line: bytes, place: tuple[int, int]) -> None:
        key = line[len(_KEY) : line.index(b'"', len(_KEY))].decode()
        if key in self._lines:
            self._forget_files_of(key)  # the new line names those that are still there
            if not self._next_is_retried:
                self._stale[key] = self._drop_files
        self._lines[key] = len(self._segments) - 1, *place
        self._invalid.discard(key)
        (self._retried.add if self._next_is_retried else self._retried.discard)(key)
        self._next_is_retried = False
        # Quotes within a text are escaped, so the files begin and end here. The rest is read when it is needed.
        at = line.find(_FILES)
        end = line.find(b'],"', at) if at >= 0 else 0
        for file in json.loads(line[at + len(_FILES) - 1 : end + 1 if end >= 0 else -2]) if at >= 0 else ():
            before = self._files.get(file["path"])
            if before is not None and before.key != key:
                self._invalid.add(before.key)
            self._files[file["path"]] = _File(key, file["bytes"], file.get("temporary", ""))

    def _note(self, values: dict[str, Any]) -> None:
        if "fed" in values:
            source = values["fed"]
            for task in values["tasks"]:
                self.numbers[source][task["id"]].append(task["number"])
                if "files" in task:
                    self.groups[source].append([file["path"] for file in task["files"]])
        elif "removed" in values:
            removed = set(values["removed"])
            for key in removed:
                self._lines.pop(key, None)
                self._stale[key] = self._drop_files
            for path in [path for path, file in self._files.items() if file.key in removed]:
                del self._files[path]
        elif "resized" in values:
            file = self._files.get(values["resized"])
            if file is not None:
                file.nbytes = values["bytes"]
        elif "released" in values:  # rows were taken out of the quarantine: their batch is recorded again
            self._next_is_retried = True
            for path in values["released"]:
                self._files.pop(path, None)
        elif "drops" in values:
            self._drop_files += 1
            for file in values["files"]:
                self._files[file["path"]] = _File("", file["bytes"], file.get("temporary", ""))
        elif "finished" in values:
            self.finished = values

    # -- files ---------------------------------------------------------------------------------------------------------

    def restore_names(self) -> None:
        """Give files the names that a crash, after they were recorded, kept them from getting.

        Files of the run directory that the ledger does not name are removed.
        """
        for path, file in self._files.items():
            if file.temporary and file.temporary in self._listing(parent(path)):
                real, options = self._located(path)
                publish(Publish(join(parent(real), file.temporary), real, 0, file.nbytes, options))
        self._listings.clear()
        for folder in self._own_folders:
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if os.path.join(folder, name) not in self._files:
                    remove_file(os.path.join(folder, name))

    def forget_files(self, directory: str) -> None:
        """Forget what was written to a directory: another run has used it since."""
        start = redacted(join(directory, ""))
        self._invalid.update(file.key for path, file in self._files.items() if path.startswith(start))

    @property
    def is_whole(self) -> bool:
        """Whether all files that a finished run keeps are there."""
        between = redacted(join(self._scratch, ""))
        whole = all(path.startswith(between) or file.key not in self._lines for path, file in self._missing())
        self._listings.clear()
        return whole

    def check_files(self) -> None:
        """Forget batches whose files are gone or have another size."""
        self._invalid.update(file.key for _, file in self._missing())

    def _missing(self) -> Iterator[tuple[str, _File]]:
        """Files that are gone or have another size."""
        for path, file in self._files.items():
            if file.key and self._listing(parent(path)).get(base_name(path)) != file.nbytes:
                yield path, file

    def _listing(self, directory: str) -> dict[str, int]:
        """The files of a directory and their sizes, listed once."""
        found = self._listings.get(directory)
        if found is None:
            real, options = self._located(join(directory, ""))
            found = self._listings[directory] = _sizes(real, options)
        return found

    def _located(self, path: str) -> tuple[str, dict[str, Any]]:
        """The path of a file with the secrets that the ledger leaves out, and the options to reach it."""
        for start, place in self._output_places.items():
            if path.startswith(start):
                return join(place.path, "") + path[len(start) :], dict(place.storage_options)
        return path, {}

    # -- batches -------------------------------------------------------------------------------------------------------

    def find(self, key: str, tasks: list[str]) -> FinishedBatch | None:
        """The batch with this key, if it is finished. It then counts as part of this start of the run."""
        batch = self.peek(key, tasks)
        if batch is not None:
            self._used.add(key)
        return batch

    def peek(self, key: str, tasks: list[str]) -> FinishedBatch | None:
        """The batch with this key, if it is finished."""
        place = self._lines.get(key)
        if place is None or key in self._invalid:
            return None
        batch = FinishedBatch.parse(self._read(*place))
        return batch if batch.tasks == tasks else None  # two keys may be equal by accident

    def was_retried(self, key: str) -> bool:
        """Whether rows of a batch were set aside and run again later, from the middle of the pipeline."""
        return key in self._retried

    def is_needed_as_it_was(self, key: str) -> bool:
        """Whether rows of a batch were run again later and other stages have had the rest: it cannot be repeated."""
        if key not in self._retried or key not in self._lines:
            return False
        return any(entry["to"] for entry in FinishedBatch.parse(self._read(*self._lines[key])).outputs)

    def unused(self) -> Iterator[FinishedBatch]:
        """Batches that this start of the run had no use for: their input or a stage has changed."""
        for key, place in self._lines.items():
            if key not in self._used:
                yield FinishedBatch.parse(self._read(*place))

    def remove_unused(self, stages: Iterable[str] | None = None) -> tuple[list[str], list[str]]:
        """Remove the files of batches that this start of the run had no use for.

        Args:
            stages: Only those of groups that begin with one of these stages, and of stages that the plan does not have.

        Returns:
            The keys of the batches, and the files.
        """
        chosen = None if stages is None else set(stages)
        removed: list[str] = []
        files: list[str] = []
        for batch in list(self.unused()) if chosen != set() else []:  # the first source has no stages before it
            if chosen is not None and batch.stage not in chosen:
                continue
            for file in batch.files:
                known = self._files.get(file["path"])
                if known is not None and known.key == batch.key and self._is_of_this_run(file["path"]):
                    remove_file(*self._located(file["path"]))
                    files.append(file["path"])
            removed.append(batch.key)
            self.replaced(batch.key)
        return removed, files

    def _is_of_this_run(self, path: str) -> bool:
        """Whether a file is in a directory that the run still uses. What it wrote elsewhere before stays there."""
        own = (*(join(folder, "") for folder in self._own_folders), redacted(join(self._scratch, "")))
        return path.startswith(own) or any(path.startswith(start) for start in self._output_places)

    def replaced(self, key: str) -> None:
        """A batch is processed again in this start of the run, or does not belong to it any more."""
        if self._lines.pop(key, None) is not None:
            self._stale[key] = self._drop_files

    def repeated(self, key: str, files: Collection[str]) -> None:
        """A batch was processed again: what it had made and does not make any more is removed.

        Args:
            key: The key of the batch.
            files: What it makes now.
        """
        for path in self._forget_files_of(key) if key in self._lines else ():
            if path not in files and self._is_of_this_run(path):
                remove_file(*self._located(path))
        self._retried.discard(key)
        self.replaced(key)

    def _forget_files_of(self, key: str) -> list[str]:
        """Forget the files that the line of a batch names, and no line after it; returns them."""
        named = [file["path"] for file in FinishedBatch.parse(self._read(*self._lines[key])).files]
        own = [path for path in named if path in self._files and self._files[path].key == key]
        for path in own:
            del self._files[path]
        return own

    def clean_drops(self) -> Iterator[tuple[str, int]]:
        """Take the rows of batches that do not count out of the drop ledger: the changed files and their sizes."""
        from tamis.runs.drops import keep_drops

        ledgers = [path for path, file in self._files.items() if not file.key] if self._stale else []
        for number, path in enumerate(ledgers):
            stale = {key for key, count in self._stale.items() if number < count}
            if stale and os.path.exists(path) and keep_drops(path, self._used - stale):
                yield path, os.path.getsize(path)

    def files(self) -> Iterator[str]:
        """The files of the batches that are used."""
        for path, file in self._files.items():
            if file.key in self._used:
                yield path

    def supersede(self, path: str) -> None:
        """A file of this name is written again in this start of the run."""
        self._files.pop(path, None)

    def _read(self, segment: int, start: int, length: int) -> bytes:
        file = self._segments[segment]
        file.seek(start)
        return located(file.read(length), self._own)


def _sizes(directory: str, storage_options: dict[str, Any]) -> dict[str, int]:
    if is_local(directory):
        if not os.path.isdir(directory):
            return {}
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    fs, inner = filesystem(directory, storage_options)
    fs.invalidate_cache()
    try:
        entries = fs.ls(inner, detail=True)
    except FileNotFoundError:
        return {}
    return {base_name(entry["name"]): int(entry["size"]) for entry in entries if entry["type"] == "file"}
