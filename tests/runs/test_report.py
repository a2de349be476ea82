"""The report as a browser shows it and as a terminal does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import CHROMIUM, Page, in_browser

from tamis.errors import DataError
from tamis.runs.report import load_summary, render_report, summary_table, write_report
from tamis.runs.stats import RunSummary, StageStats

EVIL = '<script>document.title="broken"</script><img src=x onerror=\'document.title="broken"\'>"&'


def summary(**changes: Any) -> RunSummary:
    values: dict[str, Any] = {
        "pipeline": "web",
        "description": "Cleans a crawl.",
        "executor": "local, 4 workers",
        "started": "2026-03-01T09:14:07+00:00",
        "seconds": 10.0,
        "stages": [
            StageStats("list_files", tasks_out=2, rows_out=2),
            StageStats("read", 2, 2, 2, 1000, 400, 80_000_000, 3.0, quarantined=24),
            StageStats("word_count", 2, 2, 1000, 600, 8, 5, 1.0, {"word_count < 50": 300, "word_count > 9": 100}),
            StageStats("write", 2, 2, 600, 2, 5, 400, 1.0, files=2),
        ],
        "plan": "1 list_files\n2 read",
        "outputs": [{"path": f"out/part-{i}.jsonl", "rows": 300, "bytes": 2048} for i in range(2)],
        "output_files": 2,
        "output_rows": 600,
        "output_bytes": 4096,
        "quarantine": [
            {
                "stage": "read",
                "task": "t",
                "source": "a.jsonl",
                "position": 99,
                "line": 7,
                "problem": "not JSON",
                "raw": "{",
            }
        ],
        "tamis": "0.1.0",
    }
    return RunSummary(**{**values, **changes})


def test_the_page_shows_the_run() -> None:
    text = Page(render_report(summary())).text
    for shown in ("web", "1,024", "600", "58.6% of the input", "400", "and 24 rows set aside", "10.0 s", "102"):
        assert f"\n{shown}\n" in text
    for shown in (
        "Cleans a crawl.",
        "2026-03-01 09:14:07 UTC",
        "600 rows in 2 files",
        "4.0 KiB",
        "word_count < 50",
        "not JSON",
        "out/part-1.jsonl",
        "24 rows, 1 shown",
        "read · a.jsonl:99, line 7",
        "1 list_files\n2 read",
    ):
        assert shown in text


def test_the_page_is_complete_in_itself() -> None:
    page = Page(render_report(summary()))
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert [value for name, value in page.attributes if name in ("src", "href", "srcset", "action")] == ["#main"]
    assert not [name for name, _ in page.attributes if name == "style"]  # the security policy refuses them
    assert "http:" not in render_report(summary())
    assert "https:" not in render_report(summary())
    assert not re.search(r"@import|url\(", render_report(summary()))


def test_hostile_data_is_shown_and_does_nothing() -> None:
    hostile = summary(
        pipeline=EVIL,
        description=EVIL,
        executor=EVIL,
        state=EVIL,
        plan=EVIL,
        error=EVIL,
        stages=[StageStats(EVIL, 1, 1, 10, 5, dropped={EVIL: 5}, quarantined=0)],
        outputs=[{"path": EVIL, "rows": 1, "bytes": 1}],
        quarantine=[{"stage": EVIL, "source": EVIL, "line": EVIL, "position": EVIL, "problem": EVIL, "raw": EVIL}],
    )
    page = Page(render_report(hostile))
    assert page.tags.count("script") == 1  # ours
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(EVIL) >= 9


def test_bytes_that_are_no_text_can_be_shown(tmp_path: Path) -> None:
    raw = "\x00\x1b[31m \ud800 \u202eabc"
    hostile = summary(quarantine=[{"stage": "read", "problem": raw, "raw": raw}])
    hostile.stages[2].dropped = {raw: 5}
    page = render_report(hostile)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    assert page.count(r"\x00\x1b[31m \ud800 \u202eabc") == 3
    assert "\x1b" not in summary_table(hostile)


def test_runs_without_rows_or_stages_have_a_report() -> None:
    assert "Run report" in render_report(RunSummary("empty"))
    assert "Run report" in render_report(RunSummary("early", state="failed", stages=[StageStats("read")]))
    assert "0 rows in" in summary_table(RunSummary("empty"))


def test_a_failed_run_says_why() -> None:
    text = Page(render_report(summary(state="failed", error="StageError: no"))).text
    assert "Why it stopped\nStageError: no" in text


def test_many_outputs_are_folded() -> None:
    outputs = [{"path": f"out/{i}", "rows": 1, "bytes": 1} for i in range(1000)]
    page = render_report(summary(outputs=outputs, output_files=5000))
    assert "5,000 files" in page
    assert "the first 200 are listed" in page
    assert len(page) < 200_000


def test_the_report_is_written_from_the_run_directory(tmp_path: Path) -> None:
    run = summary(quarantine=[])
    (tmp_path / "run.json").write_text(json.dumps({**run.to_dict(), "added_later": 1}))
    (tmp_path / "quarantine").mkdir()
    (tmp_path / "quarantine" / "read.jsonl").write_text(json.dumps({"stage": "read", "problem": "cut off"}) + "\n")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert "cut off" in path.read_text()
    assert load_summary(tmp_path).stages[1].quarantined == 24
    assert sorted(p.name for p in tmp_path.iterdir()) == ["quarantine", "report.html", "run.json"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"this is not a run directory: it has no run\.json"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("[1")
    with pytest.raises(DataError, match="this file is damaged"):
        write_report(tmp_path)


def test_the_table_says_what_was_dropped_and_why() -> None:
    lines = [line.split() for line in summary_table(summary()).splitlines()]
    assert ["word_count", "1,000", "600", "60.0%", "1.00", "s"] in lines
    assert ["word_count", "<", "50", "-300", "30.0%"] in lines
    assert ["quarantined", "-24", "2.3%"] in lines
    assert summary_table(summary()).rstrip().endswith("wrote 600 rows to 2 files (4.0 KiB)")


def test_the_table_has_colours_only_when_asked() -> None:
    assert "\x1b" not in summary_table(summary())
    assert "\x1b" in summary_table(summary(), color=True)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
def test_in_a_browser(tmp_path: Path) -> None:
    """Nothing hostile runs, the funnel is drawn, and our own script passes the page's security policy."""
    hostile = summary(pipeline=EVIL, quarantine=[{"stage": "read", "problem": EVIL, "raw": EVIL}])
    hostile.stages[2].dropped = {EVIL: 400}
    page = tmp_path / "report.html"
    page.write_text(render_report(hostile), encoding="utf-8")
    dom = in_browser(page, tmp_path / "profile")
    assert "<title>broken" not in dom
    shown = Page(dom)
    assert shown.attributes.count(("class", "dot")) == 4  # list_files, read, word_count, write
    assert ("type", "button") in shown.attributes  # made by our script
    assert EVIL in shown.text
