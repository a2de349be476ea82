"""The ``tamis`` command as its users meet it: what it prints, where, and its exit status."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tamis
from tamis.cli import main

RECIPE = """
name: tiny
stages:
  - JsonlReader: {file_paths: data}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 3}}, score_field: words}
  - JsonlWriter: {path: out}
run: {workers: 1}
"""

OWN_STAGES = """
import time
from tamis.stages.function_decorators import processing_stage
from tamis.tasks import DocumentBatch

@processing_stage(name="fail")
def fail(task: DocumentBatch) -> DocumentBatch:
    raise RuntimeError("too tired")

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    open("slow-has-begun", "w").close()
    time.sleep(1)
    return task
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with data, a recipe and stages of the user's."""
    (tmp_path / "data").mkdir()
    for name, texts in {"a": ["one two three", "one"], "b": ["one two", "one two three four"]}.items():
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / "data" / f"{name}.jsonl").write_text(lines)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "ownstages.py").write_text(OWN_STAGES)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tamis", *arguments]


def call_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as its users have it."""
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which is faster: what it prints, and its exit status."""
    out, errors, modules = io.StringIO(), io.StringIO(), set(sys.modules)
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder),
    ):
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "path", list(sys.path))
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            for name in {"ownstages", "mine"} & set(sys.modules) - modules:  # another test has others of these names
                del sys.modules[name]
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


def written_texts(folder: Path) -> list[str]:
    lines = [line for path in sorted((folder / "out").glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["text"] for line in lines)


# --- run and plan ---------------------------------------------------------------------------------------------------


def test_run_writes_output_and_shows_what_was_kept(folder: Path) -> None:
    done = call_process(folder, "run", "recipe.yaml", "--run-dir", "run")
    assert (done.returncode, written_texts(folder)) == (0, ["one two three", "one two three four"])
    assert "tiny done in" in done.stdout
    assert "4 rows in, 2 kept (50.0%); wrote 2 rows" in done.stdout
    assert f"report: {folder / 'run' / 'report.html'}" in done.stdout
    assert "done | 4 rows read" in done.stderr
    assert (folder / "run" / "report.html").exists()


def test_run_quiet_says_nothing(folder: Path) -> None:
    done = call_process(folder, "run", "recipe.yaml", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(written_texts(folder)) == 2


def test_run_json_is_for_programs(folder: Path) -> None:
    done = call(folder, "run", "recipe.yaml", "--json", "--progress", "off", "--run-dir", "run")
    summary = json.loads(done.stdout)
    assert (summary["state"], summary["output_rows"], summary["run_dir"]) == ("done", 2, str(folder / "run"))
    assert done.stderr == ""


def test_set_changes_the_recipe(folder: Path) -> None:
    done = call(folder, "run", "recipe.yaml", "-q", "--set", "2.filter_obj.min_words=4", "--set", "name=strict")
    assert (done.returncode, written_texts(folder)) == (0, ["one two three four"])
    assert [path.name.startswith("strict") for path in (folder / ".tamis" / "runs").iterdir()] == [True]


def test_workers_of_the_command_line_win(folder: Path) -> None:
    done = call(folder, "run", "recipe.yaml", "--json", "--workers", "0", "--progress", "off")
    assert json.loads(done.stdout)["executor"] == "local, inline"


@pytest.mark.parametrize("arguments", [("plan", "recipe.yaml"), ("run", "recipe.yaml", "--dry-run")])
def test_a_plan_runs_nothing(folder: Path, arguments: tuple[str, ...]) -> None:
    done = call(folder, *arguments)
    assert done.returncode == 0
    assert "word_count" in done.stdout
    assert not (folder / "out").exists()
    assert not (folder / ".tamis").exists()


def test_stages_of_the_current_directory_can_be_named(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE.replace("  - JsonlWriter", "  - ownstages:slow\n  - JsonlWriter"))
    assert "slow" in call_process(folder, "plan", "recipe.yaml").stdout


def test_a_failing_stage_gives_one_message(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE.replace("  - JsonlWriter", "  - ownstages:fail\n  - JsonlWriter"))
    done = call(folder, "run", "recipe.yaml", "--quiet", "--run-dir", "run")
    assert done.returncode == 1
    assert done.stderr.startswith("tamis: ")
    assert "fail" in done.stderr
    assert "too tired" in done.stderr
    assert json.loads((folder / "run" / "run.json").read_text())["state"] == "failed"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_finishes_what_is_in_flight(folder: Path) -> None:
    recipe = RECIPE.replace("  - JsonlWriter", "  - ownstages:slow\n  - JsonlWriter")
    (folder / "recipe.yaml").write_text(recipe.replace("file_paths: data", "file_paths: data, files_per_partition: 1"))
    process = subprocess.Popen(
        command("run", "recipe.yaml", "--run-dir", "run"), cwd=folder, text=True, stderr=subprocess.PIPE
    )
    while not (folder / "slow-has-begun").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "in flight" in errors
    assert "Traceback" not in errors
    assert json.loads((folder / "run" / "run.json").read_text())["state"] == "interrupted"


def test_rows_set_aside_change_the_exit_status_and_the_last_line(folder: Path) -> None:
    with (folder / "data" / "a.jsonl").open("a") as file:
        file.write("broken\nbroken, too\n")
    arguments = ("run", "recipe.yaml", "--set", "1.on_error=quarantine", "--set", "3.mode=overwrite")
    last = f"tamis: 2 rows set aside, with the causes, in {folder}/{{}}/quarantine\n"
    done = call(folder, *arguments, "--run-dir", "run")
    assert (done.returncode, done.stderr.splitlines(True)[-1]) == (3, last.format("run"))
    assert "tiny done with failures in" in done.stdout
    quiet = call(folder, *arguments, "--run-dir", "again", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (3, "", last.format("again"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file names")
def test_nothing_that_is_read_controls_the_terminal(folder: Path) -> None:
    hostile = "\x1b[2J\x9b31m\u202e"
    (folder / "data" / f"{hostile}.jsonl").write_text("broken " + hostile + "\n")
    (folder / "recipe.yaml").write_text(
        RECIPE.replace("name: tiny", f'name: "{hostile}"'.replace("\x1b", "\\x1b").replace("\x9b", "\\x9b"))
    )
    failed = call(folder, "run", "recipe.yaml", "--run-dir", "run")
    assert (failed.returncode, r"\x1b[2J\x9b31m\u202e.jsonl" in failed.stderr) == (1, True)
    shown = [failed, call(folder, "report", "run"), call(folder, "plan", "recipe.yaml")]
    shown.append(call(folder, "run", "recipe.yaml", "--set", "1.on_error=quarantine", "--json"))
    assert json.loads(shown[-1].stdout)["pipeline"] == hostile
    for done in shown:
        assert not set(hostile[0] + hostile[4] + hostile[-1]) & set(done.stdout + done.stderr)


# --- runs -----------------------------------------------------------------------------------------------------------


def made_run(folder: Path, name: str, state: str | None, pid: int | None = None) -> Path:
    """A run directory with scratch data, as a run of that state leaves it."""
    path = folder / ".tamis" / "runs" / name
    (path / "scratch").mkdir(parents=True)
    (path / "scratch" / "spilled").write_bytes(b"x" * 2000)
    if state is not None:
        (path / "run.json").write_text(json.dumps({"pipeline": name, "state": state, "output_rows": 7}))
    if pid is not None:
        mark = {"pid": pid, "host": socket.gethostname(), "since": "2026-01-02T03:04:05+00:00"}
        (path / "run.lock").write_text(json.dumps(mark))
    return path


def test_runs_are_listed_and_scratch_of_ended_ones_is_removed(folder: Path) -> None:
    assert call(folder, "runs").stdout.startswith("There are no runs in .tamis/runs")
    failed, killed = made_run(folder, "broken", "failed"), made_run(folder, "gone", None, pid=2**22 + 1)
    running = made_run(folder, "busy", None, pid=os.getpid())
    (folder / ".tamis" / "runs" / "notes").mkdir()
    assert call(folder, "run", "recipe.yaml", "--quiet").returncode == 0
    states = {
        run["path"].rpartition("/")[2].partition("-")[0]: run
        for run in json.loads(call(folder, "runs", "--json").stdout)
    }
    assert {name: run["state"] for name, run in states.items()} == {
        "broken": "failed", "gone": "killed", "busy": "running", "tiny": "done",
    }  # fmt: skip
    assert (states["tiny"]["rows"], states["tiny"]["scratch_bytes"], states["gone"]["scratch_bytes"]) == (2, 0, 2000)
    assert "2026-01-02 03:04:05" in call(folder, "runs").stdout
    refused = call(folder, "runs", "clean")
    assert (refused.returncode, "add --yes" in refused.stderr, (failed / "scratch").exists()) == (1, True, True)
    assert "Removed 3.9 KiB." in call(folder, "runs", "clean", "--yes").stdout
    assert [(path / "scratch").exists() for path in (failed, killed, running)] == [False, False, True]
    assert "nothing to remove" in call(folder, "runs", "clean", "--yes").stdout


def test_scratch_that_is_kept_elsewhere_is_removed_with_its_run(folder: Path) -> None:
    stages = "  - GlobalShuffle\n  - ownstages:fail\n"
    (folder / "recipe.yaml").write_text(RECIPE.replace("  - JsonlWriter", f"{stages}  - JsonlWriter"))
    done = call(folder, "run", "recipe.yaml", "--quiet", "--scratch", "between")
    assert (done.returncode, "too tired" in done.stderr) == (1, True)
    assert [path for path in (folder / "between").rglob("*") if path.is_file()] != []
    (run,) = json.loads(call(folder, "runs", "--json").stdout)
    assert run["scratch_bytes"] > 0
    assert call(folder, "runs", "clean", "--yes").returncode == 0
    assert list((folder / "between").iterdir()) == []
    assert json.loads(call(folder, "runs", "--json").stdout)[0]["scratch_bytes"] == 0


def test_old_runs_are_removed_as_a_whole_if_asked(folder: Path) -> None:
    old, new = made_run(folder, "old", "done"), made_run(folder, "new", "failed")
    running = made_run(folder, "busy", None, pid=os.getpid())
    for path in (*old.rglob("*"), *running.rglob("*"), running, old):
        os.utime(path, (1.7e9, 1.7e9))
    done = call(folder, "runs", "clean", "--older-than", "30d", "--yes")
    assert (done.returncode, old.exists(), new.exists(), running.exists()) == (0, False, True, True)
    assert call(folder, "runs", "--older-than", "30d").returncode == 2
    assert "such as 12h, 30d or 8w" in call(folder, "runs", "clean", "--older-than", "soon").stderr


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_error_of_ours_is_one_message(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE.replace("ScoreFilter", "ScorFilter"))
    done = call(folder, "plan", "recipe.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tamis: recipe.yaml, line 5: unknown stage 'ScorFilter'. Did you mean 'ScoreFilter'?")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("plan", "missing.yaml", "--debug"), ("--debug", "plan", "missing.yaml")])
def test_debug_shows_the_traceback(folder: Path, arguments: tuple[str, ...]) -> None:
    done = call_process(folder, *arguments)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "missing.yaml: cannot read the recipe" in done.stderr


def test_an_error_in_a_users_module_keeps_its_traceback(folder: Path) -> None:
    (folder / "ownstages.py").write_text("import a_package_that_is_not_there")
    (folder / "recipe.yaml").write_text("stages:\n  - ownstages:slow\n")
    done = call_process(folder, "plan", "recipe.yaml")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "a_package_that_is_not_there" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rnu",), "invalid choice: 'rnu'"),
        (("run",), "the following arguments are required: RECIPE"),
        (("run", "r.yaml", "--workers", "two"), "expected a whole number from 0 up, not 'two'"),
        (("run", "r.yaml", "--workers", "-1"), "expected a whole number from 0 up, not '-1'"),
        (("plan", "r.yaml", "--workers", "-1"), "expected a whole number from 0 up, not '-1'"),
        (("quickstart", "--workers", "-1"), "expected a whole number from 0 up, not '-1'"),
        (("stages", "WordCoutFilter"), "Did you mean 'WordCountFilter'?"),
    ],
)
def test_wrong_usage(folder: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = call(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_without_a_command_there_is_help(folder: Path) -> None:
    done = call_process(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "quickstart" in done.stderr


def test_a_reader_that_stops_early_is_no_error(folder: Path) -> None:
    with subprocess.Popen(
        command("stages", "--json"), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141  # as a command that SIGPIPE ends


def test_a_name_that_is_not_an_executor(folder: Path) -> None:
    done = call(folder, "plan", "recipe.yaml", "--executor", "ownstages:slow")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ownstages:slow is not an executor" in done.stderr
    assert "standard library" in call(folder, "plan", "recipe.yaml", "--executor", "sqlite3:Cursor").stderr


def test_a_plan_for_programs(folder: Path) -> None:
    done = call(folder, "run", "recipe.yaml", "--dry-run", "--json")
    assert "word_count" in json.loads(done.stdout)["plan"]


# --- stages, doctor, report, quickstart, --version ------------------------------------------------------------------


def test_stages_are_listed_by_area(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Reading and writing") < shown.index("JsonlReader") < shown.index("Text: filters")
    assert "WordCountFilter" in shown
    assert re.findall(r"\b(?:ReaderStage|WriterStage|MergeShards)\b", shown) == []
    assert "Drop text with too few or too many words." in " ".join(shown.split())


def test_every_stage_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--json"]) == 0
    listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed if not entry["description"]] == []
    words = next(entry for entry in listed if entry["name"] == "WordCountFilter")
    assert words["kind"] == "filter"
    assert words["parameters"][0] == {
        "name": "min_words",
        "type": "int",
        "required": False,
        "default": 50,
        "description": "The fewest words that are kept.",
    }


def test_one_stage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "Route"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Route stage, tamis.stages.flow Send each row to one of several branches")
    assert "otherwise Stages [] The stages for rows whose value names no branch." in shown
    assert ">>>" not in shown


def test_a_part_of_a_reader_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "JsonlReaderStage"]) == 0
    assert "JsonlReaderStage" in capsys.readouterr().out


def test_a_stage_of_ones_own_is_explained(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from tamis.stages.base import ProcessingStage\n"
        "class Cut(ProcessingStage):\n"
        '    "Cuts texts."\n'
        "    def __init__(self, length: int = 5): self.length = length\n"
    )
    assert "length" in call(folder, "stages", "mine:Cut").stdout


def test_doctor_shows_the_machine_and_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # long lines are broken
    for word in ("cores", "kernels", "memory", "disk", "GPU", "pyarrow", "Ray", "pandas frames in your own stages"):
        assert word in shown
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tamis"] == tamis.__version__
    assert found["machine"]["memory"]["total_bytes"] > 0
    assert found["kernels"]
    assert {"pandas", "s3"} <= set(found["extras"])
    assert all(found["packages"].values())


def test_doctor_says_that_kernels_are_off(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_KERNELS", "off")
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"].startswith("off")


def test_report_shows_a_run_and_writes_its_page_anew(folder: Path) -> None:
    call(folder, "run", "recipe.yaml", "--quiet", "--run-dir", "run")
    page = folder / "run" / "report.html"
    page.unlink()
    done = call(folder, "report", "run")
    assert done.returncode == 0
    assert page.exists()
    assert "word_count" in done.stdout
    assert f"report: {page}" in done.stdout


def test_report_opens_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text(json.dumps({"pipeline": "p"}))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(folder / "run"), "--open"]) == 0
    assert opened == [(folder / "run" / "report.html").as_uri()]


def test_report_of_no_run(folder: Path) -> None:
    done = call(folder, "report", "data")
    assert (done.returncode, done.stdout) == (1, "")
    assert "data: this is not a run directory: it has no run.json" in done.stderr


def test_report_of_a_file(folder: Path) -> None:
    done = call(folder, "report", "recipe.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "recipe.yaml: this is not a run directory: it is a file" in done.stderr


@pytest.mark.parametrize("content", ['{"pipeline"', "[]", '{"stages": 3}', "3"])
def test_report_of_a_damaged_run(folder: Path, content: str) -> None:
    (folder / "run.json").write_text(content)
    done = call(folder, "report", ".")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tamis: run.json: this file is damaged")


@pytest.mark.parametrize("output", ["recipe.yaml", "recipe.yaml/inside"])
def test_quickstart_into_a_file(folder: Path, output: str) -> None:
    done = call(folder, "quickstart", "--output", output)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"tamis: {output}")


def test_quickstart_shows_what_was_kept_and_why(folder: Path) -> None:
    done = call(folder, "quickstart", "--output", "first", "--workers", "1")
    assert done.returncode == 0
    assert "quickstart done with failures in" in done.stdout
    assert "near duplicate" in done.stdout
    assert "report   first/report.html" in done.stdout
    report = (folder / "first" / "report.html").read_text(encoding="utf-8")
    assert "near duplicate" in report
    assert "Duplicates: FuzzyDeduplication" in report
    assert report.count('<mark class="kept">') > 3  # where the pairs differ


def test_quickstart_can_be_run_again_and_gives_the_same(folder: Path) -> None:
    def curated() -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in (folder / "again" / "curated").glob("part-*")}

    assert call(folder, "quickstart", "--output", "again", "--workers", "1").returncode == 0
    first = curated()
    quiet = call(folder, "quickstart", "--output", "again", "--workers", "3", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert curated() == first


def test_version_loads_next_to_nothing(folder: Path) -> None:
    assert call_process(folder, "--version").stdout == f"tamis {tamis.__version__}\n"
    code = (
        "import sys\nfrom tamis.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "heavy = {'pyarrow', 'rich', 'yaml', 'polars', 'numpy', 'fsspec', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[1] == "[]"


def test_an_address_is_enough_to_run_on_a_cluster(folder: Path) -> None:
    done = call(folder, "quickstart", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no Ray cluster can be reached at 127.0.0.1:1" in done.stderr


def test_a_setting_that_the_executor_does_not_have(folder: Path) -> None:
    done = call(folder, "plan", "recipe.yaml", "--executor", "local", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert "the executor local has no setting address" in done.stderr
