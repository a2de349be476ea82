"""Every error tamis raises on purpose.

TamisError
├── PlanError               the pipeline cannot run as it is built (found before anything runs)
│   ├── ColumnError         a stage needs a column that nothing upstream provides
│   ├── TypeMismatchError   a stage receives a kind of task that it does not take
│   └── ResourceError       a stage asks for more than the machine has
├── RecipeError             a recipe is malformed, or names something unknown
├── DataError               an input cannot be read: says file and position
│   └── MediumError         the image, sound or video of a row cannot be read: the row is set aside
├── StorageError            output or the run directory cannot be written: disk full, read-only, not permitted
│   └── PublishError        finished work cannot be recorded, or a file cannot get its final name (also an OSError)
├── StageError              a stage raised: says stage, task and cause
│   ├── AllSetAsideError    every row of a run was set aside, none was processed
│   ├── FailureBudgetError  more rows were set aside than the run allows
│   └── WorkerDiedError     workers died repeatedly, and no task was finished
├── ModelError              a model is not there, cannot be fetched, or is damaged
├── ClusterError            a Ray cluster cannot be started, reached or used from here
├── RunInterrupted          the user stopped the run (also a KeyboardInterrupt)
├── MissingExtraError       an optional package is needed (also an ImportError)
└── NotInTamisError         a name of NeMo Curator that tamis does not have (also an ImportError)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from tamis.printable import MESSAGE_CHARACTERS, printable

__all__ = [
    "AllSetAsideError",
    "ClusterError",
    "ColumnError",
    "DataError",
    "FailureBudgetError",
    "MediumError",
    "MissingExtraError",
    "ModelError",
    "NotInTamisError",
    "PlanError",
    "PublishError",
    "RecipeError",
    "ResourceError",
    "RunInterrupted",
    "StageError",
    "StorageError",
    "TamisError",
    "TypeMismatchError",
    "WorkerDiedError",
    "did_you_mean",
    "install",
    "redacted",
]


class TamisError(Exception):
    r"""The root of every error that tamis raises on purpose.

    Messages may quote data, file names and other people's exceptions, so control characters are spelled out and a
    very long message loses its middle.

    >>> print(TamisError("no such file: \x1b[2J.jsonl"))
    no such file: \x1b[2J.jsonl
    """

    transient: bool = False
    """Whether the same may succeed in a while: then the task is tried again."""

    of_rows: bool = False
    """Whether single rows are at fault: then these are set aside, and the others go on."""

    def __str__(self) -> str:
        return printable(super().__str__(), MESSAGE_CHARACTERS)

    def add_note(self, note: str) -> None:
        super().add_note(printable(note, MESSAGE_CHARACTERS))


class PlanError(TamisError, ValueError):
    """The pipeline cannot run as it is built."""


class ColumnError(PlanError):
    """A stage needs a column that nothing upstream provides."""


class TypeMismatchError(PlanError, TypeError):
    """A stage receives a kind of task that it does not take."""


class ResourceError(PlanError):
    """A stage asks for more than the machine has."""


class RecipeError(TamisError, ValueError):
    """A recipe is malformed, or names something unknown."""


class DataError(TamisError, ValueError):
    """An input cannot be read. Reading the same bytes again fails again, so only a store that is busy is tried again.

    Args:
        problem: What is wrong, in words.
        path: The file; passwords and signatures in an address are replaced by ``***``.
        line: Line number, counted from 1.
        byte: Byte offset in the (decompressed) file, counted from 0.
        hint: What the user can do about it.
    """

    def __init__(
        self, problem: str, *, path: str = "", line: int | None = None, byte: int | None = None, hint: str = ""
    ) -> None:
        path = redacted(path)
        self.problem, self.path, self.line, self.byte, self.hint = problem, path, line, byte, hint
        position = []
        if line is not None:
            position.append(f"line {line}")
        if byte is not None:
            position.append(f"byte {byte}")
        where = f"{path}, {', '.join(position)}" if position else path
        message = f"{where}: {problem}" if where else problem
        super().__init__(f"{message}\n  {hint}" if hint else message)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_data_error, (type(self), self.problem, self.path, self.line, self.byte, self.hint)


def _rebuild_data_error(
    kind: type[DataError], problem: str, path: str, line: int | None, byte: int | None, hint: str
) -> DataError:
    return kind(problem, path=path, line=line, byte=byte, hint=hint)


class MediumError(DataError):
    """The image, sound or video of a row cannot be read or decoded: the row is set aside, and the others go on."""

    of_rows = True


class StorageError(TamisError):
    """A file of the output or of the run directory cannot be written: the disk is full, read-only, not permitted."""


class StageError(TamisError, RuntimeError):
    """A stage raised. The message ends with the user's own frames of the traceback."""


class AllSetAsideError(StageError):
    """Every row of a run was set aside, none was processed."""


class FailureBudgetError(StageError):
    """More rows were set aside than the run allows (``failure_budget``)."""


class WorkerDiedError(StageError):
    """Workers died repeatedly (out of memory, a crash in native code, ...), and no task was finished."""


class PublishError(StorageError, OSError):
    """Finished work cannot be recorded, or a finished file cannot get its final name: says which file."""


class ModelError(TamisError, RuntimeError):
    """A model is not there, cannot be fetched, or is damaged."""


class ClusterError(TamisError, RuntimeError):
    """A Ray cluster cannot be started, reached or used from here."""


class RunInterrupted(TamisError, KeyboardInterrupt):
    """The user stopped the run; what was finished by then is published."""


class MissingExtraError(TamisError, ImportError):
    """An optional package is needed.

    >>> print(MissingExtraError("JSON from S3", package="s3fs", extra="s3"))
    JSON from S3 needs the package 's3fs', which is not installed. In a clone of tamis: pip install -e '.[s3]'

    Args:
        what: What needs it.
        package: The package.
        extra: The extra of tamis that installs it; empty if there is none.
    """

    def __init__(self, what: str, *, package: str, extra: str = "") -> None:
        how = f"In a clone of tamis: {install(extra)}" if extra else f"pip install {package}"
        super().__init__(f"{what} needs the package {package!r}, which is not installed. {how}")


class NotInTamisError(TamisError, ImportError):
    """A script asks for a module or a name of NeMo Curator that tamis does not have."""


def install(extra: str = "") -> str:
    """The command that installs tamis, with an extra if one is named. It is run in a clone of the repository.

    >>> install(), install("ray")
    ('pip install -e .', "pip install -e '.[ray]'")
    """
    return f"pip install -e '.[{extra}]'" if extra else "pip install -e ."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known name, or an empty string.

    >>> did_you_mean("txet", ["text", "url"])
    " Did you mean 'text'?"
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


_USER_INFO = re.compile(r"(\b[a-zA-Z][\w+.-]*://)([^\s/?#'\"]*)@")
_SECRET_PARAMETER = re.compile(
    r"([?&](?:[\w.-]*(?:signature|token|secret|passw|pwd|credential|api[-_]?key|access[-_]?key|auth)[\w.-]*"
    r"|sig|key|sas|code)=)[^&\s'\"#]+",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """A text without the passwords, tokens and signatures of the addresses in it.

    Use it wherever an address is shown or recorded.

    >>> redacted("sftp://ann:pw@host/a"), redacted("https://token@host/a")
    ('sftp://ann:***@host/a', 'https://***@host/a')
    >>> redacted("https://host/a.jsonl?part=3&X-Amz-Signature=0f3a")
    'https://host/a.jsonl?part=3&X-Amz-Signature=***'
    """
    if "://" not in text:
        return text
    return _SECRET_PARAMETER.sub(r"\1***", _USER_INFO.sub(_without_password, text))


def _without_password(found: re.Match[str]) -> str:
    scheme, user_info = found.groups()
    user, colon, _ = user_info.partition(":")
    if scheme.startswith("http"):
        return f"{scheme}***@"
    return f"{scheme}{user}:***@" if colon else found[0]
