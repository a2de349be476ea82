"""Every example runs, in an empty directory, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

PRINTS = {
    "batch_mode.py": "the same rows in the same order: True",
    "branches.py": "dropped: 1 rows",
    "custom_stage.py": "'sentences': 2",
    "first_pipeline.py": "word_count outside",
    "resources.py": "0.25 gpu",
    "shuffle.py": "the longest text of each site",
}
"""A part of what each example prints."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PRINTS[example.name] in done.stdout
