"""``tamis run`` and ``tamis plan``."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Final

from tamis.cli.output import complain, print_json, terminal_width, write, write_styled

if TYPE_CHECKING:
    from tamis.backends.base import Executor
    from tamis.pipeline import Pipeline
    from tamis.pipeline.preview import GroupPreview
    from tamis.pipeline.recipe import Recipe
    from tamis.plan import Plan
    from tamis.runs.progress import ProgressKind
    from tamis.runs.result import RunResult

SET_ASIDE: Final = 3
"""Exit status of a run that came to its end, but set rows or tasks aside."""


def run(arguments: argparse.Namespace) -> int:
    """Run a recipe; show its progress on stderr and its result on stdout."""
    from tamis.errors import PlanError
    from tamis.pipeline.recipe import OF_THE_RUN

    recipe = _recipe_from(arguments)
    pipeline, executor = recipe.to_pipeline(), recipe.run.make_executor()
    if getattr(arguments, "estimate", False):
        _estimate(pipeline, executor, recipe, arguments)
        return 0
    if getattr(arguments, "cluster", None) is not None:
        raise PlanError("--cluster is the cluster to estimate for: give --estimate, too")
    if arguments.dry_run:
        _show_plan(pipeline.plan(executor), recipe, arguments)
        return 0
    progress: ProgressKind = "off" if arguments.quiet else arguments.progress
    own = {name: getattr(recipe.run, name) for name in OF_THE_RUN}
    result = pipeline.run(executor, progress=progress, fresh=arguments.fresh, **own)
    if arguments.json:
        print_json({**result.summary.to_dict(), "run_dir": str(result.run_dir)})
    elif not arguments.quiet:
        from tamis.runs.report import summary_table

        write_styled(summary_table(result.summary, width=terminal_width(), color=sys.stdout.isatty()))
        write(f"report: {result.run_dir}/report.html")
    return exit_status(result)


def _show_plan(plan: Plan, recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Show a plan and, if asked, what is left to do of a run."""
    left = None
    if getattr(arguments, "resume", False):
        from tamis.pipeline.preview import preview_run

        left = preview_run(plan, _run_to_go_on_with(plan, recipe))
    if arguments.json:
        print_json({"plan": str(plan), **({} if left is None else {"left": [dataclasses.asdict(one) for one in left]})})
        return
    write(str(plan))
    for one in left or ():
        write(f"\n  {' > '.join(one.stages)}\n    {_left_words(one)}")
    if left is not None and not any(one.to_do or one.again or one.after for one in left):
        write("\nThere is nothing to do.")


def _estimate(pipeline: Pipeline, executor: Executor, recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Show what a run would need."""
    from tamis.cli.estimate import show_estimate

    estimate = pipeline.estimate(executor, cluster=arguments.cluster, drop_ledger=recipe.run.drop_ledger)
    if arguments.json:
        print_json(estimate.to_dict())
    else:
        show_estimate(estimate)


def _left_words(left: GroupPreview) -> str:
    if left.after:
        return "everything, once the stages before have finished"
    again = f", and {left.again} that are needed again" if left.again else ""
    return f"{left.finished} tasks are finished, {left.to_do} are left to do{again}"


def _run_to_go_on_with(plan: Plan, recipe: Recipe) -> str:
    from tamis.errors import PlanError
    from tamis.pipeline.outputs import fingerprint
    from tamis.runs.past_runs import unfinished_run

    found = recipe.run.run_dir or unfinished_run(os.path.join(".tamis", "runs"), plan.name, fingerprint(plan))
    if found is None:
        raise PlanError("there is no run of this recipe to go on with: name its directory with --run-dir")
    return found


def _recipe_from(arguments: argparse.Namespace) -> Recipe:
    """The recipe with the changes of the command line.

    Modules in the current directory can be named in it, as with ``python -m``.
    """
    from tamis.pipeline.recipe import load_recipe

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    recipe = load_recipe(arguments.recipe).with_paths(arguments.input, arguments.output)
    recipe = recipe.with_settings(arguments.settings)
    given = {
        "executor": arguments.executor,
        "address": arguments.address,
        "workers": arguments.workers,
        "run_dir": getattr(arguments, "run_dir", None),
        "scratch": getattr(arguments, "scratch", None),
        "failure_budget": getattr(arguments, "failure_budget", None),
        "metrics_port": getattr(arguments, "metrics_port", None),
        "metrics_host": getattr(arguments, "metrics_host", None),
        "traces": True if getattr(arguments, "traces", False) else None,
        "keep_scores": True if getattr(arguments, "keep_scores", False) else None,
        "data_card": False if getattr(arguments, "no_data_card", False) else None,
        "drop_ledger": False if getattr(arguments, "no_drop_ledger", False) else None,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, **changes))


def exit_status(result: RunResult) -> int:
    """The exit status; the last line says what was set aside."""
    from tamis.runs.report_sections import set_aside_words
    from tamis.runs.stats import DONE

    if result.state == DONE:
        return 0
    sys.stdout.flush()  # the line below is the last one, also where both streams go to the same place
    complain(f"{set_aside_words(result.summary)} set aside, with the causes, in {result.run_dir}/quarantine")
    return SET_ASIDE
