"""``tamis top``."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Final

from tamis.cli.output import complain, show, terminal_width

_EVERY_S: Final = 1.0
_KEYS: Final = "q quits, up and down scroll"
_UP, _DOWN = ("k", "\x1b[A", "\x1bOA"), ("j", "\x1b[B", "\x1bOB")


def run(arguments: argparse.Namespace) -> int:
    """Show a run until q or Ctrl-C."""
    from tamis.runs.pages.run_view import load_view

    path = arguments.run_dir or _newest(arguments.dir)
    if path is None:
        complain(f"there are no runs in {arguments.dir}", ["  Give the directory of a run: tamis top RUN"])
        return 2
    view = load_view(path)  # raises for what is not a run
    if arguments.once or not sys.stdout.isatty():
        from tamis.runs.run_screen import RunScreen

        show(RunScreen().draw(view, terminal_width(), 10_000))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        _watch(path)
    return 0


def _newest(folder: str) -> str | None:
    """The newest run that is going on, or else the newest one."""
    from tamis.runs.pages.known_runs import KnownRuns
    from tamis.runs.past_runs import RUNNING

    entries = KnownRuns(folder).entries()
    running = [entry for entry in entries if entry.state == RUNNING]
    return (running or entries)[0].path if entries else None


def _watch(path: str) -> None:
    from rich.console import Console
    from rich.live import Live

    from tamis.runs import figures
    from tamis.runs.pages.run_view import load_view
    from tamis.runs.run_screen import RunScreen

    console, screen = Console(highlight=False, markup=False, emoji=False), RunScreen()
    with _keyboard() as has_keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view = load_view(path)
            keys = _KEYS if has_keys else "Ctrl-C quits"
            live.update(screen.draw(view, console.width, console.height, keys), refresh=True)
            until = time.monotonic() + _EVERY_S
            while (left := until - time.monotonic()) > 0:
                if not has_keys:
                    time.sleep(left)
                    continue
                key = _key(left)
                if key is None:
                    continue
                if key.lower().startswith("q"):
                    return
                lines = -1 if key in _UP else 1 if key in _DOWN else 0
                if lines:
                    screen.scroll(lines, len(figures.steps(view.summary.stages)), console.height)
                    live.update(screen.draw(view, console.width, console.height, keys), refresh=True)


@contextlib.contextmanager
def _keyboard() -> Iterator[bool]:
    """Keys arrive one at a time, without being shown; gives whether there is a keyboard."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield False
        return
    if sys.stdin is None or not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(timeout_s: float) -> str | None:
    """The key that is pressed within some time."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return os.read(sys.stdin.fileno(), 8).decode("utf-8", "replace") if ready else None
