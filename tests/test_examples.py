"""Every example runs, in an empty directory, without a network."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

PRINTS = {
    "batch_mode.py": "the same rows in the same order: True",
    "branches.py": "dropped: 1 rows",
    "custom_stage.py": "'sentences': 2",
    "first_pipeline.py": "word_count outside",
    "language_to_unique.py": "documents in English: 2286",
    "resources.py": "0.25 gpu",
    "shuffle.py": "the longest text of each site",
    "tinystories.py": "the same with a modifier and a filter of one's own: True",
    "tokens_for_training.py": "tokens of books: 20",
}
"""A part of what each example prints."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PRINTS[example.name] in done.stdout


def test_stories_come_over_the_web_as_well(tmp_path: Path) -> None:
    (example,) = [e for e in EXAMPLES if e.name == "tinystories.py"]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(example.parent / "data"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [sys.executable, str(example), "--source", f"http://127.0.0.1:{server.server_address[1]}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "30 stories" in done.stdout
