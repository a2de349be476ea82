"""What a notebook shows. IPython is stood in for by the two functions that are used of it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pages import Page
from sample_runs import ANSI, EVIL, branched_run

from tamis.runs.notebook import NotebookProgress, in_notebook
from tamis.runs.progress import choose_progress
from tamis.runs.stats import Snapshot, StageStats


class Handle:
    def __init__(self, shown: list[Any]) -> None:
        self._shown = shown

    def update(self, value: Any) -> None:
        self._shown.append(value)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a kernel is told to show, in order."""
    values: list[Any] = []

    def display(value: Any, display_id: bool) -> Handle:
        assert display_id
        values.append(value)
        return Handle(values)

    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]  # of a made-up module
    module.display = display  # type: ignore[attr-defined]  # of a made-up module
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return values


def snapshot(seconds: float, fraction: float | None, state: str = "running") -> Snapshot:
    read = StageStats(f"read {EVIL}", tasks_in=1, rows_in=1, rows_out=500, bytes_out=10**6)
    return Snapshot(seconds, [read], fraction, 2**20, 2**30, running=2, workers=2, state=state)


def test_a_run_is_a_bar_that_is_drawn_again_in_its_place(shown: list[Any]) -> None:
    progress = choose_progress("auto")
    assert isinstance(progress, NotebookProgress)
    progress.start(snapshot(0.0, None))
    for tenth in range(1, 31):
        progress.update(snapshot(tenth / 10, tenth / 30))
    progress.message(f"{EVIL} {ANSI}")
    progress.finish(snapshot(3.1, 1.0, "done"))
    assert len(shown) == 8
    first, last = shown[0]._repr_html_(), shown[-1]._repr_html_()
    assert 'value="' not in first
    assert 'value="1.0000"' in last
    assert "500 rows read" in repr(shown[-1])
    page = Page(last)
    assert not {"script", "img"} & set(page.tags)
    assert EVIL in page.text
    assert "\x1b" not in last


def test_a_terminal_with_ipython_is_not_a_notebook(shown: list[Any]) -> None:
    sys.modules["IPython"].get_ipython = lambda: types.SimpleNamespace()  # type: ignore[attr-defined]  # likewise
    assert not in_notebook()
    assert not isinstance(choose_progress("auto"), NotebookProgress)


def test_a_result_shows_itself(tmp_path: Path) -> None:
    result = branched_run(tmp_path, tmp_path / "run", evil=True)
    page = Page(result._repr_html_())
    assert not {"script", "img", "style", "link"} & set(page.tags)
    assert "word_count outside 10..100000: " in page.text
    assert f"{tmp_path}/run/report.html" in page.text
    assert EVIL in page.text


def test_a_run_in_a_notebook(shown: list[Any], tmp_path: Path) -> None:
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.io import JsonlReader

    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    Pipeline("p", stages=[JsonlReader(str(tmp_path / "a.jsonl"))]).run(
        LocalExecutor(workers=0), run_dir=tmp_path / "run"
    )
    assert len(shown) >= 2
    assert repr(shown[-1]).startswith("done")
