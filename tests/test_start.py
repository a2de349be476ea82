"""What a small run does not wait for: packages that it has no use for are not imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

UNUSED = ("numba", "opentelemetry", "pandas", "polars", "prometheus_client", "ray", "torch")
WITH_KERNELS = {**os.environ, "TAMIS_KERNELS": "wait"}
"""Without kernels Polars does some of their work."""

RUN = """
import sys
from tamis import LocalExecutor, Pipeline
from tamis.stages.io import {reader}, {writer}
from tamis.stages.text.filters import NonAlphaNumericFilter, ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify, NewlineNormalizer, QuotationUnifier, UrlRemover

if __name__ == "__main__":
    pipeline = Pipeline("small", stages=[
        {reader}(sys.argv[1]),
        ScoreFilter([WordCountFilter(min_words=3), NonAlphaNumericFilter()], score_field=["words", "marks"]),
        Modify([QuotationUnifier(), NewlineNormalizer(), UrlRemover()]),
        {writer}(sys.argv[2], fields=["id", "text", "words"]),
    ])
    result = pipeline.run(LocalExecutor({workers}), run_dir=sys.argv[3], progress="off", drop_ledger=True)
    assert result.summary.output_rows == 2, result.summary
    print(*[module for module in {unused} if module in sys.modules])
"""

ROWS = [
    {"id": "a", "text": "Said the first of them “two” and went on."},
    {"id": "b", "text": "short"},
    {"id": "c", "text": "four\r\n\r\n\r\nfive six http://example.org seven"},
    {"id": "d", "text": "--- %%% --- %%% ---"},
]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with a small file in JSON lines."""
    folder = tmp_path / "given"
    folder.mkdir()
    folder.joinpath("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return folder


def run(tmp_path: Path, given: Path, reader: str, writer: str, workers: int) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(RUN.format(reader=reader, writer=writer, workers=workers, unused=UNUSED), encoding="utf-8")
    folders = [str(given), str(tmp_path / "made"), str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, str(script), *folders], capture_output=True, text=True, check=False, env=WITH_KERNELS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("writer", ["JsonlWriter", "ParquetWriter", "CsvWriter"])
def test_a_run_imports_no_package_it_has_no_use_for(tmp_path: Path, given: Path, writer: str, workers: int) -> None:
    assert run(tmp_path, given, "JsonlReader", writer, workers) == []
    assert len(list((tmp_path / "run" / "drops").iterdir())) == 1


def test_nor_does_the_command(tmp_path: Path, given: Path) -> None:
    code = f"""import sys; from tamis.cli import main; status = main(sys.argv[1:])
print("imported", *[module for module in {UNUSED} if module in sys.modules]); sys.exit(status)"""
    command = ["run", "english", "--input", str(given), "--output", str(tmp_path / "made"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        env=WITH_KERNELS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported"
