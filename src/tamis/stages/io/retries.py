"""Try again what a store did not do: a server that is busy or restarts answers again in a while."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

__all__ = ["PATIENCE_S", "causes", "may_pass", "with_retries"]

T = TypeVar("T")

PATIENCE_S: Final = 120.0
"""For how many seconds the driver tries again what a store does not do."""

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 15.0

_BUSY: Final = {errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EBUSY)}
"""What s3fs makes of the answers 503 and 500."""

_OF_THE_NETWORK: Final = {"HTTPClientError", "ConnectionError", "ClientConnectionError", "FSTimeoutError"}
"""Exceptions of botocore, aiohttp and fsspec, which are not Python's own."""


def may_pass(error: BaseException) -> bool:
    """Whether an error of a store may be gone in a while: the server is busy, restarts, or cannot be reached.

    >>> may_pass(ConnectionResetError()), may_pass(PermissionError())
    (True, False)
    """
    return any(_is_busy(cause) or _is_unreachable(cause) for cause in causes(error))


def _is_busy(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _BUSY:
        return True
    response = getattr(error, "response", None)  # of botocore
    metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    status = error.status if hasattr(error, "status") else getattr(error, "code", None)
    statuses = (status, metadata.get("HTTPStatusCode"))
    return any(isinstance(status, int) and (status >= 500 or status == 429) for status in statuses)


def _is_unreachable(error: BaseException) -> bool:
    own = isinstance(error, ConnectionError | TimeoutError)
    return own or any(kind.__name__ in _OF_THE_NETWORK for kind in type(error).__mro__)


def with_retries(action: Callable[[], T], patience_s: float | None = None, *, known: bool = False) -> T:
    """Do something, and again after longer and longer pauses as long as the server is busy.

    Args:
        action: What to do. Doing it again must change nothing.
        patience_s: For how many seconds; :data:`PATIENCE_S` by default. Then the error is raised.
        known: Whether the server has answered before. Then it is also tried again if it cannot be reached; else the
            address may be wrong, which should be said at once.

    >>> answers = iter([TimeoutError(), "content"])
    >>> def read():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception): raise answer
    ...     return answer
    >>> with_retries(read, known=True)
    'content'
    """
    until = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return action()
        except Exception as error:
            passing = may_pass(error) if known else any(map(_is_busy, causes(error)))
            if not passing or time.monotonic() + pause_s > until:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those it was raised from, at most ten."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
