"""The report of a run: one HTML file that needs nothing else, and the same as a table for terminals."""

from __future__ import annotations

import json
from pathlib import Path

from tamis.errors import DataError
from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.html import Page, escaped, render_page
from tamis.runs.pages.drop_section import find_examples, losses
from tamis.runs.pages.links import Links, files_beside
from tamis.runs.pages.run_view import RunView, view_of
from tamis.runs.pages.set_aside_rows import set_aside_rows
from tamis.runs.report_sections import SHOWN_EXAMPLES, closing_line, findings_list, sections, tiles
from tamis.runs.stats import RunSummary
from tamis.runs.terminal import rendered
from tamis.tasks.storage import write_whole


def render_report(summary: RunSummary, run_dir: str | Path | None = None, page: str | Path | None = None) -> str:
    """The report as one HTML page: no requests, no need for JavaScript, light and dark.

    Args:
        summary: What was counted.
        run_dir: The run's directory, for what is not in the summary: the plan, drops, scores, the run over time.
        page: Where the page will be, for links to the files of the run; in the run's directory when not given.

    >>> shown = render_report(RunSummary("<my run>", seconds=2.0))
    >>> "&lt;my run&gt;" in shown, "<my run>" in shown
    (True, False)
    """
    if run_dir is None:
        view, links = RunView("", summary), Links()
    else:
        view = view_of(str(run_dir), summary)
        links = files_beside(str(run_dir), str(page or Path(run_dir, "report.html")))
    examples = find_examples(view, figures.steps(summary.stages)) if run_dir is not None else {}
    head = page_head(view)
    return render_page(
        Page("Run report", summary.pipeline, head, sections(view, links, examples), summary.tamis, summary.state)
    )


def page_head(view: RunView) -> str:
    """What is above the sections: description, error, figures, and what limits the run."""
    summary = view.summary
    description = f'<p class="soft">{escaped(summary.description)}</p>' if summary.description else ""
    error = (
        f'<div class="error"><b>Why it stopped</b><pre>{escaped(summary.error)}</pre></div>' if summary.error else ""
    )
    return "\n".join([description, error, tiles(summary), findings_list(view)])


def load_summary(run_dir: str | Path) -> RunSummary:
    """Read ``run.json`` of a run directory.

    Raises:
        DataError: There is none, or it is damaged.

    >>> load_summary("no-such-run")
    Traceback (most recent call last):
    tamis.errors.DataError: no-such-run: this is not a run directory: it has no run.json
      'tamis run' prints the path of its run directory; 'tamis runs' lists them.
    """
    path = Path(run_dir) / "run.json"
    try:
        return RunSummary.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError) as e:
        problem = "it is a file" if path.parent.is_file() else "it has no run.json"
        hint = "'tamis run' prints the path of its run directory; 'tamis runs' lists them."
        raise DataError(f"this is not a run directory: {problem}", path=str(run_dir), hint=hint) from e
    except OSError as e:
        raise DataError(f"cannot be read: {e.strerror}", path=str(path)) from e
    except ValueError as e:
        raise DataError(f"this file is damaged: it is not JSON ({e})", path=str(path)) from e
    except (TypeError, AttributeError, KeyError) as e:
        raise DataError("this file is damaged: it does not have the content of a run.json", path=str(path)) from e


def write_report(run_dir: str | Path, page: str | Path | None = None) -> Path:
    """Write the report of a run from what is in its directory. Returns its path.

    Args:
        run_dir: The run's directory.
        page: The file to write; ``report.html`` in the run's directory when not given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "run.json").write_text(json.dumps(RunSummary("p").to_dict()))
    ...     write_report(folder).name
    'report.html'
    """
    summary = load_summary(run_dir)
    if not summary.quarantine:
        summary.quarantine = set_aside_rows(str(run_dir), SHOWN_EXAMPLES)
    path = Path(run_dir, "report.html") if page is None else Path(page)
    write_whole(str(path), render_report(summary, run_dir, path).encode())
    return path


def summary_table(summary: RunSummary, *, width: int = 100, color: bool = False) -> str:
    """What was kept and dropped at each stage and why, as a table for terminals.

    >>> from tamis.runs.stats import StageStats
    >>> words = StageStats("words", tasks_in=1, rows_in=90, rows_out=60, seconds=2, dropped={"words < 50": 30})
    >>> print(summary_table(RunSummary("p", stages=[words], seconds=2)), end="")  # doctest: +NORMALIZE_WHITESPACE
    stage              rows in    out   kept    time
    words                   90     60   66.7%   2.00 s
      words < 50                  -30   33.3%
    <BLANKLINE>
    p done in 2.00 s: 90 rows in, 60 kept (66.7%)
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("stage", overflow="fold", min_width=12)
    for name in ("rows in", "out", "kept", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in figures.steps(summary.stages):
        stage = step.stage
        table.add_row(
            Text(printable(stage.name), style="bold"),
            step.shown_before,
            step.shown_after,
            figures.percent(step.kept_share),
            figures.duration(step.seconds),
        )
        for reason, count in losses(step):
            share = figures.percent(count / step.before if step.before else None)
            table.add_row(Text(f"  {printable(reason)}", style="yellow"), "", f"-{figures.number(count)}", share, "")
    return rendered(table, Text(), Text(closing_line(summary)), width=width, color=color)
