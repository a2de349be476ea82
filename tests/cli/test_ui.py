"""``tamis ui`` as a command."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sample_runs import failed_run

from tamis.cli import main


def test_the_command_prints_its_address_and_serves_until_ctrl_c(tmp_path: Path) -> None:
    failed_run(tmp_path / "runs" / "a", tmp_path)
    before = sorted(path.name for path in (tmp_path / "runs" / "a").iterdir())
    command = [sys.executable, "-m", "tamis", "ui", str(tmp_path / "runs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"Runs in {tmp_path / 'runs'}\n"
        address = urlsplit(process.stdout.readline().strip())
        assert address.hostname == "127.0.0.1"
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
        connection.request("GET", f"/?{address.query}")
        response = connection.getresponse()
        response.read()
        assert response.status == 303
        connection.request("GET", "/", headers={"Cookie": response.headers["Set-Cookie"].partition(";")[0]})
        assert "that fails" in connection.getresponse().read().decode()
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""
    assert sorted(path.name for path in (tmp_path / "runs" / "a").iterdir()) == before


def test_a_file_or_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["ui", str(tmp_path / "file")]) == 2
    assert main(["ui", str(tmp_path / "nothing")]) == 2
    assert main(["ui", str(tmp_path), "--port", "99999"]) == 1
    assert "cannot be used" in capsys.readouterr().err
