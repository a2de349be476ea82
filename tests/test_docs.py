"""The pages in README.md and docs/: their code runs, their links lead somewhere.

The Python blocks of a page are one script, run from top to bottom in an empty directory. A block that is not to be run
has the line ``<!-- not run: reason -->`` before it. What stands in a block behind ``<!-- output -->`` must be printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--\s*(?P<text>(?:(?!-->).)*?)\s*-->\s*\Z", re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)|\bsrc=\"(?P<source>[^\"]+)\"")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def said_before(text: str, block: re.Match[str]) -> str:
    """The comment right before a block."""
    comment = COMMENT.search(text[: block.start()])
    return comment["text"] if comment else ""


def script_of(text: str) -> str:
    """The Python blocks that are to be run, each on the lines it has in the page."""
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        if block["language"] == "python" and not said_before(text, block).startswith("not run:"):
            first = text[: block.start("code")].count("\n")
            code = block["code"].splitlines()
            lines[first : first + len(code)] = code
    return "\n".join(lines).rstrip() + "\n"


def outputs_of(text: str) -> list[str]:
    return [b["code"] for b in BLOCK.finditer(text) if said_before(text, b) == "output"]


ON_A_CLUSTER = [f"docs/executor-{name}.md" for name in ("ray-actor-pool", "ray-data", "streaming", "xenna")]
"""Pages whose script finds a running cluster, as most users have one. The other ones start theirs."""


def with_marks(page: Path) -> Any:
    script = script_of(page.read_text(encoding="utf-8"))
    starts_ray = re.search("RayClient|(Streaming|RayData|Xenna|RayActorPool)Executor", script)
    return pytest.param(page, marks=[pytest.mark.slow, *([pytest.mark.ray] if starts_ray else [])], id=name_of(page))


WITH_CODE = [page for page in PAGES if script_of(page.read_text(encoding="utf-8")).strip()]


@pytest.mark.parametrize("page", [with_marks(page) for page in WITH_CODE if name_of(page) not in ON_A_CLUSTER])
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_the_code_of_a_page_runs_on_a_cluster(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    run_page(ROOT / name, tmp_path)


def run_page(page: Path, tmp_path: Path) -> None:
    """Run the code of a page in an empty directory, and look for the output that the page shows."""
    text = page.read_text(encoding="utf-8")
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"
    script.write_text(script_of(text), encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for output in outputs_of(text):
        assert output in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_that_is_not_run_says_why(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    comments = [said_before(text, block) for block in BLOCK.finditer(text)]
    assert [c for c in comments if c.startswith("not run") and not re.match(r"not run: \w", c)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = [(m["target"] or m["source"]).partition("#")[0] for m in LINK.finditer(text)]
    inside = [t for t in targets if t and not re.match(r"[a-z]+:", t)]
    assert [t for t in inside if not (page.parent / t).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {m["target"] for m in LINK.finditer(index.read_text(encoding="utf-8"))}
    assert {p.name for p in (ROOT / "docs").glob("*.md")} - linked - {index.name} == set()


def test_the_table_of_benchmarks_has_all_of_them() -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "benchmarks").glob("*.py") if path.name not in table] == []
