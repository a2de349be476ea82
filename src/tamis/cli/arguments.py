"""The arguments of the ``tamis`` command, and how errors are shown.

Each command is in a module of its own, imported when it is called: ``tamis --version`` must not wait for Arrow.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import tamis
from tamis.cli.dedup_arguments import add_dedup
from tamis.cli.embedding_arguments import add_map, add_search
from tamis.cli.output import complain
from tamis.cli.past_run import fetch_runs
from tamis.cli.shared_arguments import add_executor, add_run_options, add_workers, count, share
from tamis.cli.training_arguments import add_train_classifier, add_train_lm
from tamis.errors import RunInterrupted, TamisError

FAILED: Final = 1
"""Exit status after an error; the same as Python's after an exception."""

MISUSED: Final = 2
"""Exit status when the command line itself is wrong, or names something that does not exist."""

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C."""

_RUNS: Final = os.path.join(".tamis", "runs")

OUTPUT_CLOSED: Final = 141
"""Exit status when the reader of the output has closed it: what shells show for a command that SIGPIPE ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``tamis`` command.

    Args:
        argv: The arguments; those of the process by default.

    Returns:
        The exit status: 0 if all went well, 1 after an error, 2 for wrong usage, 3 if a run came to its end but rows
        or tasks were set aside, 130 after Ctrl-C, 141 when the reader of the output (``head``, ``less``) closed it.

    >>> main(["plan", "no-such-file.yaml"])
    1
    """
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:  # it is None where the shell has closed it
                sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):  # flushing their buffers at the exit must not fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return OUTPUT_CLOSED


def _run(argv: Sequence[str] | None) -> int:
    everything = parser()
    arguments = everything.parse_args(argv)
    if arguments.module is None:
        everything.print_help(sys.stderr)
        return MISUSED
    command = importlib.import_module(f"tamis.cli.{arguments.module}")
    try:
        if arguments.module != "run":
            fetch_runs(arguments)
        status: int = command.run(arguments)
    except (TamisError, KeyboardInterrupt) as error:
        if "debug" in arguments:
            raise
        complain(str(error) or "interrupted", getattr(error, "__notes__", ()))
        return INTERRUPTED if isinstance(error, RunInterrupted | KeyboardInterrupt) else FAILED
    return status


class _Parser(argparse.ArgumentParser):
    """Names the help option when the arguments are wrong."""

    def error(self, message: str) -> NoReturn:
        complain(message, [f"  See {self.prog} --help"])
        self.exit(MISUSED)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    shared = _Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks of errors")
    top = _Parser(prog="tamis", description="A fine sieve for training data.", parents=[shared])
    top.add_argument("--version", action="version", version=f"tamis {tamis.__version__}")
    top.set_defaults(module=None)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, module: str, summary: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary, parents=[shared])
        made.set_defaults(module=module)
        return made

    _add_run(command("run", "run", "Run a recipe."))
    plan = command("plan", "run", "Check a recipe and show what would run; nothing is run.")
    _add_recipe(plan)
    plan.add_argument("--resume", action="store_true", help="also show what is left to do of a run")
    plan.add_argument("--run-dir", metavar="DIR", help="the directory of that run; by default one that did not end")
    plan.add_argument(
        "--estimate", action="store_true", help="run a sample, and predict time, memory, disk and output of the whole"
    )
    plan.add_argument(
        "--cluster", metavar="SHAPE", help="with --estimate: predict for a cluster, such as 8x16cpu,2gpu (8 machines)"
    )
    plan.add_argument("--json", action="store_true", help="print JSON, for programs")
    plan.set_defaults(dry_run=True)
    _add_quickstart(command("quickstart", "quickstart", "Curate a small sample and show what was kept, and why."))
    add_dedup(
        command("dedup", "dedup", "Remove duplicates: of documents, of similar ones, of lines, of passages."), shared
    )
    _add_analyze(command("analyze", "analyze", "Show what is in a data set, and which thresholds fit it."))
    add_search(command("search", "search", "Find the rows whose embeddings are nearest to that of a text."))
    add_map(command("map", "map", "Show how diverse embeddings are, their clusters, and a map of them."))
    add_train_classifier(
        command("train-classifier", "train_classifier", "Train a text classifier on labelled texts, and evaluate it.")
    )
    add_train_lm(command("train-lm", "train_lm", "Train an n-gram language model, for filters by perplexity."))
    _add_stages(command("stages", "stages", "List the stages that recipes and pipelines can use."))
    _add_recipes(command("recipes", "recipes", "List the recipes that come with tamis, or print one."))
    _add_models(command("models", "models", "List the models that stages use, fetch them, or check and bundle them."))
    _add_doctor(command("doctor", "doctor", "Show what this machine and this installation have."))
    _add_report(command("report", "report", "Show what a run kept and dropped, and write its report again."))
    _add_monitor(command("monitor", "monitor", "Write files that start Prometheus and Grafana against runs."))
    _add_why(command("why", "why", "Show what became of a row: kept or dropped where, by what, with which score."))
    _add_drops(command("drops", "drops", "Show how many rows were dropped where and why, and some of them."))
    _add_quarantine(
        command("quarantine", "quarantine", "List the rows and tasks that a run set aside, or run them again.")
    )
    _add_diff(command("diff", "diff", "Compare two runs: settings, counts, and the rows that only one of them kept."))
    _add_rethreshold(command("rethreshold", "rethreshold", "Write the output of a run with other thresholds."))
    _add_replay(
        command("replay", "replay", "Run a stage again on one batch of a run, in this process, to see what it does.")
    )
    _add_runs(command("runs", "runs", "List runs, or free the space that past runs take."))
    _add_top(command("top", "top", "Show a run in the terminal while it goes on."))
    _add_ui(command("ui", "ui", "Show runs in a browser on this machine: live, with the rows they dropped."))
    _add_completion(command("completion", "completion", "Print a script that completes tamis commands in a shell."))
    return top


def _add_recipe(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="a recipe: a YAML file, or one that `tamis recipes` lists")
    command.add_argument("--input", metavar="PATH", help="what to read: file_paths of the first stage")
    command.add_argument("--output", metavar="PATH", help="where to write: path of the last stage")
    command.add_argument(
        "--set",
        dest="settings",
        metavar="STAGE.PARAM=VALUE",
        action="append",
        default=[],
        help="replace a value of the recipe: the stage by name, class or number from 1; may be given several times",
    )
    add_executor(command)


def _add_run(command: argparse.ArgumentParser) -> None:
    _add_recipe(command)
    add_run_options(command)
    command.add_argument("--no-drop-ledger", action="store_true", help="do not record which rows were dropped, and why")
    command.add_argument(
        "--no-data-card", action="store_true", help="write no RUN.json and no README.md into the output directories"
    )
    command.add_argument(
        "--metrics-port", metavar="N", type=count, help="port for Prometheus; 0 picks a free one, which is printed"
    )
    command.add_argument("--metrics-host", metavar="HOST", help="address to listen on (127.0.0.1)")
    command.add_argument("--traces", action="store_true", help="send OpenTelemetry traces")
    command.add_argument(
        "--keep-scores",
        action="store_true",
        help="record the scores of all rows, so that thresholds can be changed later",
    )
    command.add_argument("--dry-run", action="store_true", help="show the plan and stop")


def _add_quickstart(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", metavar="DIR", default="tamis-quickstart", help="where to write (%(default)s)")
    add_executor(command)
    command.add_argument("--quiet", "-q", action="store_true", help="show nothing but errors")


def _add_analyze(command: argparse.ArgumentParser) -> None:
    command.add_argument("input", metavar="INPUT", nargs="+", help="a file, a directory or a pattern (in quotes)")
    amount = command.add_mutually_exclusive_group()
    amount.add_argument(
        "--sample", metavar="N", type=count, help="analyze about N documents (100000), or images (20000)"
    )
    amount.add_argument("--fraction", metavar="F", type=share, help="analyze this share of the documents, 0 to 1")
    amount.add_argument("--all", action="store_true", help="analyze all documents")
    command.add_argument("--text-field", metavar="NAME", default="text", help="the column with the text (%(default)s)")
    command.add_argument(
        "--format",
        metavar="NAME",
        help="jsonl, parquet, csv, tsv or text; of images tar, folder or parquet; else by the files' names",
    )
    command.add_argument("--images", action="store_true", help="analyze images: folders and tars are recognized")
    command.add_argument("--output", metavar="DIR", default="tamis-analysis", help="where to write (%(default)s)")
    command.add_argument(
        "--keep-rate", metavar="F", type=share, default=0.9, help="the share of documents to keep (%(default)s)"
    )
    command.add_argument(
        "--filters",
        metavar="NAME,...",
        action="append",
        default=[],
        help="propose thresholds for these filters together; for all when not given",
    )
    command.add_argument(
        "--no-languages", action="store_true", help="do not identify languages, which takes the longest"
    )
    add_workers(command)
    command.add_argument("--quiet", "-q", action="store_true", help="show nothing but errors")
    command.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_stages(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", nargs="?", help="show one: its parameters, types and defaults")
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_recipes(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", nargs="?", help="print one, to change it: tamis recipes c4 > my.yaml")
    command.add_argument("--json", action="store_true", help="print the list as JSON, for programs")


def _add_models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "action",
        metavar="list|fetch|bundle|check",
        nargs="?",
        choices=("list", "fetch", "bundle", "check"),
        default="list",
        help="list the models (the default), fetch one to this machine, copy one to a folder for a machine without a "
        "network, or check that the files of one are what they should be",
    )
    command.add_argument("name", metavar="NAME", nargs="?", help="a name on the Hugging Face hub, or a folder")
    command.add_argument("folder", metavar="FOLDER", nargs="?", help="with bundle: where TAMIS_MODELS_DIR will be")
    command.add_argument("--revision", metavar="COMMIT", help="the commit, branch or tag on the hub")
    command.add_argument("--cache-dir", metavar="DIR", help="where the hub's files are kept")
    command.add_argument("--allow-pickle", action="store_true", help="also take weights that could run code")
    command.add_argument("--trust-remote-code", action="store_true", help="also take Python code of the model")
    command.add_argument("--json", action="store_true", help="print the list as JSON, for programs")


def _add_doctor(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_monitor(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "targets",
        metavar="RUN_DIR|PORT|HOST:PORT",
        nargs="*",
        help="the runs to watch, each started with --metrics-port: the run directory, or where the run listens",
    )
    command.add_argument(
        "--ray",
        metavar="PATH",
        nargs="?",
        const="",
        help="watch a Ray cluster, too: the file, or directory of files, that lists its endpoints; Ray's by default",
    )
    command.add_argument("--output", metavar="DIR", default="tamis-monitor", help="where to write (%(default)s)")


def _add_runs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "action",
        metavar="list|clean|compare",
        nargs="?",
        choices=("list", "clean", "compare"),
        default="list",
        help="list the runs (the default), remove the scratch data of those that failed or were killed, or compare two",
    )
    command.add_argument("runs", metavar="RUN", nargs="*", help="with compare: the directories of two runs")
    command.add_argument("--dir", metavar="DIR", default=os.path.join(".tamis", "runs"), help="where (%(default)s)")
    command.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        help="with clean: remove whole runs whose last change is longer ago: 12h, 30d, 8w",
    )
    command.add_argument("--yes", "-y", action="store_true", help="with clean: do not ask")
    command.add_argument("--json", action="store_true", help="print the list as JSON, for programs")


def _add_top(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dir", metavar="RUN", nargs="?", help="the run's directory; the newest run when not given")
    command.add_argument("--dir", metavar="DIR", default=_RUNS, help="where runs are (%(default)s)")
    command.add_argument("--once", action="store_true", help="print the state once and stop")


def _add_ui(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "target", metavar="RUN_OR_FOLDER", nargs="?", default=_RUNS, help="a run, or a folder of runs (%(default)s)"
    )
    command.add_argument("--port", metavar="N", type=count, default=0, help="the port; one that is free when not given")
    command.add_argument("--open", action="store_true", help="open the pages in a browser")


def _add_completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", metavar="bash|zsh|fish", choices=("bash", "zsh", "fish"), help="the shell")


def _add_past_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dir", metavar="RUN", help="the run's directory, or its address")
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_why(command: argparse.ArgumentParser) -> None:
    _add_past_run(command)
    command.add_argument(
        "row",
        metavar="ROW",
        nargs="?",
        default="",
        help="the row, FILE:POSITION as reports show it; with --line FILE:LINE",
    )
    command.add_argument("--line", action="store_true", help="the number is that of a line of the file, from 1")
    command.add_argument(
        "--id",
        metavar="COLUMN=VALUE",
        dest="where",
        type=_column_value,
        help="find the row by a value; reads the input",
    )


def _column_value(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not column or not equals:
        raise argparse.ArgumentTypeError(f"expected COLUMN=VALUE, not {text!r}")
    return column, value


def _add_drops(command: argparse.ArgumentParser) -> None:
    _add_past_run(command)
    command.add_argument("--stage", metavar="NAME", default="", help="only rows that this stage dropped")
    command.add_argument("--reason", metavar="TEXT", default="", help="only reasons that contain this text")
    command.add_argument("--sample", metavar="N", type=count, default=0, help="show N of the rows, chosen by chance")
    command.add_argument("--seed", metavar="N", type=count, default=0, help="choose other rows (%(default)s)")


def _add_diff(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_a", metavar="RUN_A", help="the directory of one run")
    command.add_argument("run_b", metavar="RUN_B", help="the directory of the other run")
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_rethreshold(command: argparse.ArgumentParser) -> None:
    _add_past_run(command)
    command.add_argument("--output", metavar="DIR", required=True, help="where to write: a new or empty directory")
    command.add_argument(
        "--set",
        dest="settings",
        metavar="STAGE.PARAM=VALUE",
        action="append",
        required=True,
        help="a threshold: the stage by name, class or number from 1; may be given several times",
    )


def _add_replay(command: argparse.ArgumentParser) -> None:
    _add_past_run(command)
    command.add_argument("--stage", metavar="NAME", required=True, help="the stage")
    command.add_argument(
        "--task", metavar="ID", default="", help="the batch, by id or place; lists them when not given"
    )
    command.add_argument(
        "--pdb",
        choices=("error", "start"),
        help="open Python's debugger where the stage raises, or before its first line; --debug is --pdb error",
    )


def _add_quarantine(command: argparse.ArgumentParser) -> None:
    _add_past_run(command)
    command.add_argument("--stage", metavar="NAME", default="", help="only what this stage failed on")
    command.add_argument(
        "--retry", action="store_true", help="run it again from the stage that failed on, after the cause is mended"
    )
    command.add_argument(
        "--limit", metavar="N", type=count, default=100, help="list at most N; 0 lists all (%(default)s)"
    )


def _age(text: str) -> float:
    """Seconds, from a number of hours, days or weeks."""
    units = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
    if not text[:-1].isdecimal() or text[-1] not in units:
        raise argparse.ArgumentTypeError(
            f"expected a number of hours, days or weeks such as 12h, 30d or 8w, not {text!r}"
        )
    return float(text[:-1]) * units[text[-1]]


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_dir", metavar="RUN_DIR", help="the run's directory, or its address")
    command.add_argument("--open", action="store_true", help="open the report in a browser")
