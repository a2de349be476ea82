"""The directory that a run writes to: one writer at a time, and a marker that says whose output it holds.

What happens when the directory already holds files is the writer's ``mode``:

error      the run is refused. Only the output of the same pipeline over the same input is replaced, file by file
overwrite  earlier output is removed first; the run is refused if there is any other file
append     new files are added; each has the id of the run in its name, so that it replaces nothing
ignore     new files are added, and files of the same names are replaced without a question, as NeMo Curator does it
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from tamis.errors import DataError, PlanError, StorageError, redacted
from tamis.stages.emit import Publish
from tamis.stages.io.card_files import CARD, RUN_FILE, is_card_file, remove_card
from tamis.stages.io.destination import TEMPORARY, Destination
from tamis.stages.io.encoders import ParquetEncoder
from tamis.stages.io.locks import Lock, acquire
from tamis.stages.io.one_schema import SchemaLog, unified
from tamis.stages.io.paths import (
    base_name,
    filesystem,
    is_local,
    join,
    make_directory,
    open_read,
    reading,
    remove_file,
    renames,
    writing,
)
from tamis.stages.io.retries import with_retries
from tamis.stages.io.sink import FileSink

__all__ = ["MARKER", "OutputDirectory", "WriterRun", "remove_ended_lock"]

MARKER = ".tamis.json"
"""The file in an output directory that names the runs whose output it holds."""

LOCK = ".tamis.lock"

_KEPT_RUNS = 1000
"""How many runs the marker of a directory that is appended to names."""


def remove_ended_lock(directory: str, run_dir: str) -> None:
    """Remove the lock that a killed run has left in an output directory on this machine, if no run holds it."""
    path = join(directory, LOCK)
    if is_local(path) and os.path.exists(path):
        with contextlib.suppress(PlanError, OSError):
            acquire(path, run_dir).release()


@dataclass(frozen=True)
class WriterRun:
    """A run that wrote into a directory, as the marker names it.

    Args:
        run: Its id.
        run_dir: Its run directory.
        pipeline: The name of the pipeline.
        fingerprint: Equal for the same pipeline with the same parameters and the same addresses to read.
        started: When it started, as ISO 8601 in UTC.
        input: Equal for the same input: names, sizes and times of all files. Empty if the run did not come to its end,
            or if this is not known.
        finished: Whether it came to its end.
        beside: Whether the directory held files of other origin when it started.
    """

    run: str
    run_dir: str
    pipeline: str
    fingerprint: str
    started: str
    input: str = ""
    finished: bool = False
    beside: bool = False


class OutputDirectory:
    """A directory that one or more writers of a run share. They have the same directory and mode."""

    def __init__(self, sinks: Sequence[FileSink[Any]]) -> None:
        self._sinks = list(sinks)
        self._destination: Destination = sinks[0].destination
        self.path, self.mode = self._destination.path, self._destination.mode
        modes = sorted({s.destination.mode for s in sinks})
        if len(modes) > 1:
            raise PlanError(f"{self.path}: the writers to this directory have different modes: {', '.join(modes)}")
        patterns = [s.destination.own_names() for s in sinks]
        for sink, pattern in zip(sinks, patterns, strict=True):
            if patterns.count(pattern) > 1:
                names = " and ".join(repr(s.name) for s in sinks)
                template = sink.destination.filename + sink.destination.ending
                raise PlanError(
                    f"{redacted(self.path)}: {names} would write files of the same names, {template}, and replace each "
                    "other's. Give them different directories or a different filename each"
                )
        self._own = re.compile("|".join(f"(?:{p})" for p in dict.fromkeys(patterns)))
        self._lock: Lock | None = None
        self._run: WriterRun | None = None
        self._earlier: list[WriterRun] = []
        self._schemas = [SchemaLog() for _ in sinks]
        self._replaces = False
        self.continues = False
        """Whether it holds what earlier starts of this run have written."""

    def lock(self, run: WriterRun) -> None:
        """Take the lock. An error if another run has it."""
        if self.mode == "overwrite":
            self._refuse_home()
        make_directory(self.path, self._destination.storage_options)
        self._lock = acquire(join(self.path, LOCK), run.run_dir, self._destination.storage_options)

    def prepare(self, run: WriterRun, input_id: Callable[[], str], replaced: str = "") -> None:
        """Apply the mode and set the marker. An error if the directory cannot be used.

        Args:
            run: This run.
            input_id: Tells what the run's input is; only called if the directory holds output of the same pipeline.
            replaced: The id of a run that this one takes the place of: its output is replaced.
        """
        self._refuse_directories()
        found = self._read_marker()
        ours = [earlier.run == run.run for earlier in found]
        self.continues = any(ours) if self.mode == "append" else any(ours[-1:])
        if self.continues:
            run = replace(run, beside=found[ours.index(True)].beside)
            found = [earlier for earlier in found if earlier.run != run.run]
        elif self.mode == "error" and replaced and len(found) == 1 and found[0].run == replaced:
            self._replaces = not found[0].beside
        elif self.mode == "error":
            self._refuse_foreign(run, found, input_id)
        elif self.mode == "overwrite":
            self._clear()
        if not self.continues and self.mode in ("error", "overwrite"):
            remove_card(self.path, self._destination.storage_options)  # it describes what this run replaces
        beside = self.mode in ("append", "ignore") and not found and self._first_files() != []
        self._earlier = found[-_KEPT_RUNS:] if self.mode in ("append", "ignore") else []
        self._run = run if self.continues else replace(run, beside=beside)
        self._remove_temporaries("")
        self._write_marker(self._run)
        for sink in self._sinks:
            sink.run_id = run.run

    def check(self, finished: Publish) -> None:
        """Note the schema of a finished file; an error if it does not fit the other files."""
        if finished.schema is None:
            return
        for sink, schemas in zip(self._sinks, self._schemas, strict=True):
            alone = len(self._sinks) == 1
            if alone or re.fullmatch(sink.destination.own_names(), self._relative(finished.final)):
                schemas.add(finished.schema, finished.final)

    def rewrites(self, published: Callable[[], Iterable[str]]) -> Iterator[tuple[Publish, int]]:
        """Files whose schema differs from that of the whole output, written anew under temporary names.

        Each comes with how many bytes larger it is than before. Publishing them gives all files of each writer one
        schema; with ``mode="append"`` also those of earlier runs.
        """
        for sink, schemas in zip(self._sinks, self._schemas, strict=True):
            appends = self.mode == "append" and bool(self._earlier)
            if isinstance(sink.encoder, ParquetEncoder) and (schemas.differ or appends or self.continues):
                own = re.compile(sink.destination.own_names())
                names = self._own_files() if appends else map(self._relative, published())
                yield from self._rewritten(sink, sink.encoder, sorted({n for n in names if own.fullmatch(n)}))

    def _rewritten(
        self, sink: FileSink[Any], encoder: ParquetEncoder, names: list[str]
    ) -> Iterator[tuple[Publish, int]]:
        def schema_of(name: str) -> Any:
            with reading(self._full(name)), open_read(self._full(name), sink.destination.storage_options) as file:
                return encoder.schema_of(file)

        def rewrite(name: str) -> tuple[Publish, int]:
            with open_read(self._full(name), sink.destination.storage_options) as file:
                before = file.seek(0, os.SEEK_END)
                file.seek(0)
                try:
                    written = sink.write(name, 0, lambda out: encoder.join([(file, 0)], out, schema), schema)
                except DataError as e:
                    raise DataError(e.problem, path=self._full(name), hint=e.hint) from e
                return written, written.nbytes - before

        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
            schemas = list(threads.map(schema_of, names))
            schema = unified(zip(schemas, map(self._full, names), strict=True))
            different = [n for n, found in zip(names, schemas, strict=True) if not found.equals(schema)]
            yield from threads.map(rewrite, different)

    def finish(self, input_id: str, published: Callable[[], Iterable[str]]) -> list[str]:
        """Put the directory in order after a run that came to its end; return what to tell the user."""
        assert self._run is not None
        self._check_lock()
        self._remove_temporaries(self._run.run)
        messages = []
        if self._replaces:
            current = {self._relative(path) for path in published()}
            stale = sorted(n for n in self._own_files() if n not in current)
            for name in stale:
                self._remove(name)
            if stale:
                messages.append(
                    f"{redacted(self.path)}: {_count(len(stale), 'file')} of the earlier run that this run did not "
                    f"write again {'was' if len(stale) == 1 else 'were'} removed, {stale[0]} among them"
                )
        self._run = replace(self._run, input=input_id, finished=True)
        self._write_marker(self._run)
        return messages

    def release(self) -> None:
        """Remove what this run left under temporary names, and give up the lock."""
        if self._lock is None:
            return
        try:
            if self._run is not None and not self._lock.is_lost():
                self._remove_temporaries(self._run.run)
        finally:
            self._lock.release()
            self._lock = None

    def _check_lock(self) -> None:
        if self._lock is not None and self._lock.is_lost():
            raise StorageError(
                f"{redacted(self.path)}: another run has taken over this directory, because this one did not renew its "
                "lock in time. Files of both may be there: run again with another directory"
            )

    def _refuse_foreign(self, run: WriterRun, found: list[WriterRun], input_id: Callable[[], str]) -> None:
        """Refuse a directory that holds files, unless they are the output of the same pipeline over the same input."""
        names = self._first_files()
        if not names:
            return
        earlier = found[-1] if found else None
        if earlier is None:
            why = "and nothing says that this pipeline wrote them"
        elif len(found) > 1 or earlier.beside:
            why = f"output of several runs, the last of them {_shown(earlier)}"
        elif earlier.fingerprint != run.fingerprint:
            why = f"output of another pipeline, or of this one with other parameters: {_shown(earlier)}"
        elif earlier.finished and (not earlier.input or earlier.input != input_id()):
            why = f"output of this pipeline over another input, or over this one before it changed: {_shown(earlier)}"
        else:
            self._replaces = True
            return
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise PlanError(
            f"{redacted(self.path)}: the directory already holds files ({shown}), {why}. Choose another directory, or "
            'say what to do with them: mode="overwrite" removes earlier output first, mode="append" adds new files and '
            "replaces none"
        )

    def _refuse_directories(self) -> None:
        """Refuse a directory in which another directory has the name of an output file."""
        if not is_local(self.path):
            return
        for entry in _entries(self.path):
            below = _entries(entry.path) if entry.is_dir() and "=" in entry.name else ()
            for inner in (entry, *below):
                name = os.path.relpath(inner.path, self.path).replace(os.sep, "/")
                if inner.is_dir(follow_symlinks=False) and self._own.fullmatch(name):
                    raise PlanError(f"{inner.path}: this is a directory, but an output file has that name. Remove it")

    def _refuse_home(self) -> None:
        if is_local(self.path):
            here = os.path.realpath(self.path)
            kept = [os.path.realpath(os.path.expanduser("~")), os.getcwd()]
            if any((k + os.sep).startswith(here.rstrip(os.sep) + os.sep) for k in kept):
                raise PlanError(f'{self.path}: mode="overwrite" does not work on a home or working directory')

    def _clear(self) -> None:
        names = list(self._files())
        foreign = [name for name in names if not self._own.fullmatch(name)]
        if foreign:
            shown = ", ".join(sorted(foreign)[:3]) + (", ..." if len(foreign) > 3 else "")
            raise PlanError(
                f'{redacted(self.path)}: mode="overwrite" removes earlier output, but there are files of another kind: '
                f"{shown}. Nothing was removed; choose another directory or clear this one yourself"
            )
        for name in names:
            self._remove(name)

    def _remove_temporaries(self, run: str) -> None:
        """Remove files under temporary names: those of one run, or of all, which have ended since we have the lock."""
        if not renames(self.path):
            return
        for name in self._shallow_files():
            base = base_name(name)
            if TEMPORARY.fullmatch(base):
                final = name[: len(name) - len(base)] + base[1:].rsplit(".", 2)[0]
                if self._own.fullmatch(final) and base[:-12].endswith(run[-8:]):
                    self._remove(name)

    def _remove(self, name: str) -> None:
        remove_file(self._full(name), self._destination.storage_options)

    def _full(self, name: str) -> str:
        return join(self.path, *name.split("/"))

    def _relative(self, path: str) -> str:
        """The name of a file below the directory; empty for a file elsewhere."""
        directory = redacted(self.path).replace(os.sep, "/").rstrip("/") + "/"
        name = redacted(path).replace(os.sep, "/")
        return name.removeprefix(directory) if name.startswith(directory) else ""

    def _own_files(self) -> Iterator[str]:
        """Finished files that have names of these writers."""
        return (n for n in self._shallow_files() if self._own.fullmatch(n) and not TEMPORARY.fullmatch(base_name(n)))

    def _shallow_files(self) -> Iterator[str]:
        """Files in the directory and in its ``column=value`` directories, which is where writers put their files."""
        if not is_local(self.path):
            yield from (n for n in self._files() if n.count("/") <= 1)
            return
        for entry in _entries(self.path):
            if not entry.is_dir():
                yield entry.name
            elif "=" in entry.name:
                yield from (f"{entry.name}/{inner.name}" for inner in _entries(entry.path) if not inner.is_dir())

    def _first_files(self) -> list[str]:
        """A few of the files that are there, temporary ones left out."""
        names = (n for n in self._files() if not TEMPORARY.fullmatch(base_name(n)))
        return sorted(itertools.islice(names, 20))

    def _files(self) -> Iterator[str]:
        """Files in the directory and below it, by their relative names; hidden ones only if they are temporary.

        A directory below with a marker of its own is another output. A ``README.md`` in the directory itself is not
        data, whoever wrote it, and neither is the ``RUN.json`` of a run.
        """
        for name in self._all_files():
            if name != CARD and not (
                name == RUN_FILE and is_card_file(self._full(name), self._destination.storage_options)
            ):
                yield name

    def _all_files(self) -> Iterator[str]:
        if is_local(self.path):
            for directory, below, names in os.walk(self.path):
                relative = os.path.relpath(directory, self.path).replace(os.sep, "/")
                if relative != "." and MARKER in names:
                    below.clear()
                    continue
                below[:] = sorted(b for b in below if b[0] != ".")
                yield from _visible(n if relative == "." else f"{relative}/{n}" for n in sorted(names))
            return
        fs, inner = filesystem(self.path, self._destination.storage_options)
        with reading(self.path):
            fs.invalidate_cache()
            names = with_retries(lambda: fs.find(inner) if fs.exists(inner) else [])
            found = [name[len(inner) :].lstrip("/") for name in names]
        outputs = tuple(n.removesuffix(MARKER) for n in found if base_name(n) == MARKER and n != MARKER)
        yield from _visible(n for n in found if not n.startswith(outputs))

    def _read_marker(self) -> list[WriterRun]:
        path = join(self.path, MARKER)
        try:
            if is_local(path):
                with open(path, "rb") as file:  # noqa: PTH123 - plain open is enough
                    data = file.read()
            else:
                fs, inner = filesystem(path, self._destination.storage_options)
                data = with_retries(lambda: fs.cat_file(inner))
        except FileNotFoundError:
            return []
        try:
            known = WriterRun.__dataclass_fields__
            return [WriterRun(**{k: v for k, v in run.items() if k in known}) for run in json.loads(data)["runs"]]
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise PlanError(
                f"{redacted(path)}: this file says whose output the directory holds, and it is damaged ({e}). Remove "
                "it, or choose another directory"
            ) from e

    def _write_marker(self, run: WriterRun) -> None:
        path = join(self.path, MARKER)
        data = json.dumps({"runs": [asdict(r) for r in (*self._earlier, run)]}, indent=1).encode() + b"\n"
        with writing(path):
            if is_local(path):
                with open(f"{path}.tmp", "wb") as file:  # noqa: PTH123 - plain open is enough
                    file.write(data)
                os.replace(f"{path}.tmp", path)
            else:
                fs, inner = filesystem(path, self._destination.storage_options)
                with_retries(lambda: fs.pipe_file(inner, data))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(FileNotFoundError, PermissionError), os.scandir(directory) as entries:
        return list(entries)
    return []


def _visible(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        base = base_name(name)
        if base[:1] != "." or TEMPORARY.fullmatch(base):
            yield name


def _shown(run: WriterRun) -> str:
    return f"run {run.run} of {run.pipeline!r}, run directory {run.run_dir}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
