"""What people see while a pipeline runs."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from tamis.runs.progress import LiveProgress, NoProgress, Observer, PlainProgress, choose_progress
from tamis.runs.stats import Snapshot, StageStats

GIB = 2**30


def snapshot(elapsed_s: float = 20.0, fraction: float | None = 0.5, state: str = "running") -> Snapshot:
    listing = StageStats("list_files", tasks_out=2, rows_out=2)
    reader = StageStats("read", 2, 2, 2, 1000, 400, 80_000_000, 3.0, quarantined=3)
    words = StageStats("word_count", 2, 2, 1000, 600, 80_000_000, 50_000_000, 1.0, dropped={"word_count < 50": 400})
    return Snapshot(elapsed_s, [listing, reader, words], fraction, GIB // 4, GIB, running=3, workers=4, state=state)


def drawn(*snapshots: Snapshot, width: int = 110, message: str = "") -> str:
    """What a terminal got, without its control codes' effects."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=30, color_system=None)
    display = LiveProgress(console)
    display.start(snapshots[0])
    for shot in snapshots[1:-1]:
        display.update(shot)
    if message:
        display.message(message)
    display.finish(snapshots[-1])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_table_shows_each_stage_and_the_whole() -> None:
    screen = drawn(snapshot(), snapshot(), replace(snapshot(), state="done"))
    assert "50.0%, 20 s left | 20.0 s | memory 256.0 MiB of 1.0 GiB | 3 of 4 workers busy" in screen
    row = next(line for line in screen.splitlines() if "word_count" in line)
    assert row.split()[1:6] == ["2", "1,000", "→", "600", "60.0%"]
    assert "99.7%" in next(line for line in screen.splitlines() if line.startswith("read"))
    assert "done | 20.0 s" in screen.rpartition("50.0%")[2]


def test_speeds_are_those_of_the_last_seconds() -> None:
    slow, fast = snapshot(100.0), snapshot(101.0)
    fast.stages[2].rows_in += 5000
    fast.stages[2].rows_out += 5000
    screen = drawn(slow, fast, replace(fast, elapsed_s=101.0))
    assert "5,000 " in [line for line in screen.splitlines() if "word_count" in line][1]


def test_the_live_table_fits_a_narrow_terminal() -> None:
    screen = drawn(snapshot(), snapshot(), width=60)
    assert max(len(line) for line in screen.splitlines() if "\x1b" not in line) <= 60


def test_stages_have_names_on_a_very_narrow_terminal() -> None:
    screen = drawn(snapshot(), snapshot(), width=40)
    row = next(line for line in screen.splitlines() if "word_count" in line)
    assert row.split() == ["word_count", "1,000", "→", "600", "60.0%"]
    assert max(len(line) for line in screen.splitlines() if "\x1b" not in line) <= 40


def test_large_numbers_do_not_push_the_names_out() -> None:
    large = snapshot()
    large.stages[2].rows_in = large.stages[2].rows_out = 10**9
    assert "word_count  1,000,000,000" in drawn(large, large, width=40)


def test_messages_appear_above_the_live_table() -> None:
    text = "finishing what is in flight; press again to stop at once"
    assert text in drawn(snapshot(), snapshot(), message=text)


def test_an_unknown_amount_of_input_has_no_percentage() -> None:
    screen = drawn(snapshot(fraction=None), snapshot(fraction=None))
    assert "running | 20.0 s" in screen
    assert "left" not in screen


def test_plain_progress_writes_a_line_now_and_then() -> None:
    out = io.StringIO()
    display = PlainProgress(interval_s=10, file=out)
    display.start(snapshot(0.0))
    for second in range(1, 26):
        display.update(snapshot(float(second)))
    display.finish(snapshot(25.5, 1.0, "done"))
    display.finish(snapshot(25.5, 1.0, "done"))
    lines = out.getvalue().splitlines()
    assert [line.partition("]")[0] for line in lines] == ["[10.0 s", "[20.0 s", "[25.5 s"]
    assert lines[1] == (
        "[20.0 s] 50.0%, 20 s left | 1,003 rows read, 50.1/s | 400 dropped | 3 quarantined "
        "| memory 256.0 MiB of 1.0 GiB | 3 of 4 workers busy"
    )
    assert lines[2] == "[25.5 s] done | 1,003 rows read, 39.3/s | 400 dropped | 3 quarantined"


@pytest.mark.parametrize(
    ("state", "words"), [("draining", "finishing what is in flight, 50.0%"), ("failed", "failed |")]
)
def test_plain_progress_says_how_it_ends(state: str, words: str) -> None:
    out = io.StringIO()
    PlainProgress(0, out).update(snapshot(state=state))
    assert f"[20.0 s] {words}" in out.getvalue()


def test_no_progress_still_passes_messages_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tamis"):
        NoProgress().message("stopping")
    assert caplog.messages == ["stopping"]


def test_auto_is_plain_where_stderr_is_no_terminal() -> None:
    code = "from tamis.runs.progress import choose_progress; print(type(choose_progress()).__name__)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "PlainProgress\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_auto_is_live_on_a_terminal() -> None:
    code = "from tamis.runs.progress import choose_progress; print(type(choose_progress()).__name__)"
    driver, terminal = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    shown = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, text=True, check=True, env=environment
    )
    os.close(terminal)
    os.close(driver)
    assert shown.stdout == "LiveProgress\n"


def test_every_display_is_an_observer() -> None:
    assert all(isinstance(choose_progress(kind), Observer) for kind in ("auto", "live", "plain", "off"))


def test_an_unknown_display_is_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'live'"):
        choose_progress("life")  # type: ignore[arg-type]  # the error is the point


def test_rich_is_loaded_by_the_live_display_only() -> None:
    code = "import sys, tamis.runs.progress as p; p.choose_progress('plain'); print('rich' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
