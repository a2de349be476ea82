"""``tamis top`` in a real terminal of 80 columns and 24 lines."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_runs import ANSI, EVIL, failed_run, running_run, write_metrics

from tamis.cli import main

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

STAGES = ["list", "read", f"evil {ANSI}{EVIL}", *(f"stage {number}" for number in range(30)), "write"]


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        import fcntl
        import struct
        import termios

        self._side, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        command = [sys.executable, "-m", "tamis", *arguments]
        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment)
        os.close(inner)
        self.output = b""

    def wait_for(self, text: str) -> str:
        began = time.monotonic()
        while text.encode() not in self.output:
            assert time.monotonic() - began < 30, self.output.decode(errors="replace")
            self._read(0.2)
        return self.output.decode(errors="replace")

    def press(self, key: str) -> None:
        self.output = b""
        os.write(self._side, key.encode())

    def end(self) -> int:
        began = time.monotonic()
        while self.process.poll() is None and time.monotonic() - began < 20:
            self._read(0.1)
        self._read(0.1)
        os.close(self._side)
        return self.process.wait(timeout=1)

    def _read(self, timeout_s: float) -> None:
        ready, _, _ = select.select([self._side], [], [], timeout_s)
        if ready:
            try:
                self.output += os.read(self._side, 65536)
            except OSError:  # the command has ended
                return


@pytest.fixture
def run(tmp_path: Path) -> Path:
    running_run(tmp_path / "run", STAGES)
    return tmp_path / "run"


def test_a_run_is_shown_until_q(run: Path) -> None:
    terminal = Terminal("top", str(run))
    shown = terminal.wait_for("q quits")
    assert "\x1b[?1049h" in shown  # the alternate screen
    assert "going on" in shown
    assert "stages 1 to 17 of 34" in shown
    terminal.press("j")
    terminal.wait_for("stages 2 to 18 of 34")
    terminal.press("\x1b[A")
    terminal.wait_for("stages 1 to 17 of 34")
    write_metrics(run, STAGES, 100, ended=False)
    terminal.wait_for("1 min 40 s")
    terminal.press("q")
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.output  # and back


def test_ctrl_c_leaves_quietly(run: Path) -> None:
    terminal = Terminal("top", str(run))
    terminal.wait_for("q quits")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert b"Traceback" not in terminal.output


def test_hostile_names_do_nothing_to_the_terminal(run: Path) -> None:
    terminal = Terminal("top", str(run))
    shown = terminal.wait_for("q quits")
    terminal.press("q")
    assert terminal.end() == 0
    assert "\\x1b[2J" in shown
    assert "\x1b[2J\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_without_a_terminal_the_state_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed_run(tmp_path / "runs" / "a", tmp_path)
    assert main(["top", "--dir", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "that fails  failed" in shown


def test_what_is_not_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(tmp_path)]) == 1
    assert "not a run directory" in capsys.readouterr().err
    assert main(["top", "--dir", str(tmp_path)]) == 2
    assert "there are no runs" in capsys.readouterr().err
