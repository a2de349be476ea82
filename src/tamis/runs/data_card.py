"""What a run says about its output, in the output directory: ``RUN.json`` for programs, ``README.md`` for people.

The card has the form that the Hugging Face hub reads: facts in YAML first, then Markdown. Passwords and the options of
file systems are in neither file: parameters and the recipe are taken from the manifest, which has none.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tamis.errors import redacted
from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.card_columns import ColumnCounts, Contents
from tamis.runs.card_text import (
    block,
    code,
    features_of,
    front_matter,
    language_codes,
    licence_ids,
    plain,
    size_category,
    table,
)
from tamis.runs.stats import RunSummary, StageStats
from tamis.stages.io.card_files import CARD_MARK, RUN_MARK

__all__ = ["OutputFacts", "WrittenFiles", "card_text", "run_facts"]

_SHOWN_VALUES: Final = 50
_SHOWN_PARAMETER: Final = 200
_NOT_SHOWN: Final = ("folder",)
"""Parameters that the plan sets, not the user."""

_UNSET: Final = ("None", "{}", "[]", "''")
_HUB_FORMATS: Final = ("jsonl", "parquet", "csv", "txt")
_MAX_EARLIER: Final = 100


@dataclass
class WrittenFiles:
    """The files of one writer in the directory.

    Args:
        name: The writer.
        extension: The format, as the ending of its files without compression.
        template: The template of its file names, with the ending.
        partitioned: Whether the files are in directories ``column=value``.
        files, rows, nbytes: Totals of this run.
        contents: What the files hold.
    """

    name: str
    extension: str
    template: str
    partitioned: bool = False
    files: int = 0
    rows: int = 0
    nbytes: int = 0
    contents: Contents = field(default_factory=Contents)

    @property
    def pattern(self) -> str:
        """A pattern that matches the files, below the directory.

        >>> WrittenFiles("w", "jsonl", "part-{order}.jsonl.gz", True).pattern
        '*/part-*.jsonl.gz'
        """
        parts = string.Formatter().parse(self.template)
        name = "".join(re.sub(r"[*?\[\]{}]", "?", literal) + ("*" if key else "") for literal, key, _, _ in parts)
        return f"*/{name}" if self.partitioned else name


@dataclass
class OutputFacts:
    """Everything that the two files say.

    Args:
        run: The id of the run.
        run_dir: Its run directory.
        summary: Its counts.
        start: What the manifest says about its last start.
        ended: When it ended, as ISO 8601 in UTC.
        deduplicating: The names of the stages that drop duplicates.
        written: The files of each writer.
        earlier: Runs whose output is in the directory as well: run, pipeline, started, files, rows, bytes.
    """

    run: str
    run_dir: str
    summary: RunSummary
    start: dict[str, Any]
    ended: str
    deduplicating: Sequence[str]
    written: list[WrittenFiles]
    earlier: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows in the directory, those of earlier runs included."""
        return sum(w.rows for w in self.written) + sum(int(e.get("rows", 0)) for e in self.earlier)

    def counts(self, attribute: str) -> ColumnCounts | None:
        """The languages, or the licences, over all writers."""
        found = [c for w in self.written if (c := getattr(w.contents, attribute)) is not None]
        if not found:
            return None
        total = ColumnCounts(found[0].column)
        for counts in found:
            total.rows += counts.rows
            total.values.update(counts.values)
        return total

    def deduplication(self) -> list[StageStats]:
        """The stages that drop duplicates, with their counts."""
        return [s for s in self.summary.stages if s.name in self.deduplicating and not s.internal]


def run_facts(facts: OutputFacts) -> dict[str, Any]:
    """What ``RUN.json`` holds."""
    summary, start = facts.summary, facts.start
    about = {str(stage.get("name")): stage for stage in start.get("stages", ())}
    values: dict[str, Any] = {
        RUN_MARK: 1,
        "run": facts.run,
        "run_dir": redacted(facts.run_dir),
        "pipeline": summary.pipeline,
        "description": redacted(summary.description),
        "state": summary.state,
        "started": summary.started,
        "ended": facts.ended,
        "seconds": round(summary.seconds, 3),
        "executor": redacted(summary.executor),
        "versions": {"tamis": summary.tamis, "python": start.get("python", ""), **start.get("packages", {})},
        "recipe": start.get("recipe", ""),
        "rows_read": figures.rows_read(summary.stages),
        "output": {
            "files": sum(w.files for w in facts.written),
            "rows": sum(w.rows for w in facts.written),
            "bytes": sum(w.nbytes for w in facts.written),
            "writers": [
                {"name": w.name, "pattern": w.pattern, "files": w.files, "rows": w.rows, "bytes": w.nbytes}
                for w in facts.written
            ],
        },
        "stages": [_stage_facts(stage, about.get(stage.name, {})) for stage in summary.stages],
        "deduplication": [_deduplication_facts(step) for step in figures.steps(facts.deduplication())],
    }
    for name in ("languages", "licences"):
        counts = facts.counts(name)
        if counts is not None:
            values[name] = counts.to_dict()
    if facts.earlier:
        values["earlier_runs"] = facts.earlier
    return values


def as_earlier(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``RUN.json`` of a later run says about the runs that an older ``RUN.json`` describes."""
    output = values.get("output") if isinstance(values.get("output"), dict) else {}
    assert isinstance(output, dict)
    one = {name: values.get(name) for name in ("run", "pipeline", "started")}
    one |= {name: int(output.get(name) or 0) for name in ("files", "rows", "bytes")}
    before = values.get("earlier_runs")
    return [*(before if isinstance(before, list) else []), one][-_MAX_EARLIER:]


def _stage_facts(stage: StageStats, about: dict[str, Any]) -> dict[str, Any]:
    numbers = {k: v for k, v in stage.numbers().items() if k != "custom"}
    parameters = {k: str(v) for k, v in about.get("parameters", {}).items()}
    return {"name": stage.name, "class": about.get("class", ""), "parameters": parameters, **numbers}


def _deduplication_facts(step: figures.Step) -> dict[str, Any]:
    share = step.lost / step.before if step.before else 0.0
    return {"stage": step.stage.name, "rows": step.before, "duplicates": step.lost, "share": round(share, 6)}


def card_text(facts: OutputFacts) -> str:
    """The data card."""
    sections = [
        f"# {plain(facts.summary.pipeline) or 'Data'}",
        _about(facts),
        "## Counts",
        _counts(facts),
        "## Stages",
        _stages(facts),
        *_values_section("Languages", facts.counts("languages"), facts),
        *_values_section("Licences", facts.counts("licences"), facts),
        *_deduplication_section(facts),
        "## How to reproduce it",
        _recipe(facts),
    ]
    return front_matter(_front(facts), CARD_MARK) + "\n" + "\n\n".join(sections) + "\n"


def _front(facts: OutputFacts) -> dict[str, Any]:
    values: dict[str, Any] = {"pretty_name": printable(facts.summary.pipeline)[:200].replace("\n", " ") or "Data"}
    languages, licences = facts.counts("languages"), facts.counts("licences")
    codes = language_codes(v for v, _ in languages.values.most_common()) if languages is not None else []
    ids = licence_ids(v for v, _ in licences.values.most_common()) if licences is not None else []
    values |= {"language": codes} if codes else {}
    values |= {"license": ids} if ids else {}
    values |= {"size_categories": [size_category(facts.rows)], "tags": ["tamis"]}
    on_hub = [w for w in facts.written if w.extension in _HUB_FORMATS and w.files]
    if on_hub:
        names = _config_names(on_hub)
        values["configs"] = [
            {"config_name": name, "data_files": [{"split": "train", "path": w.pattern}]}
            for name, w in zip(names, on_hub, strict=True)
        ]
        known = [(name, features_of(w.contents.schema)) for name, w in zip(names, on_hub, strict=True)]
        infos = [{"config_name": name, "features": columns} for name, columns in known if columns]
        if infos:
            values["dataset_info"] = infos[0] if len(infos) == 1 else infos
    return values


def _config_names(written: Sequence[WrittenFiles]) -> list[str]:
    if len(written) == 1:
        return ["default"]
    return [f"{number}-{re.sub(r'[^A-Za-z0-9]+', '-', w.name).strip('-')}" for number, w in enumerate(written, 1)]


def _about(facts: OutputFacts) -> str:
    summary = facts.summary
    description = f"{plain(redacted(summary.description))}\n\n" if summary.description else ""
    files, rows = sum(w.files for w in facts.written), sum(w.rows for w in facts.written)
    text = (
        f"{description}{figures.number(rows)} rows in {figures.number(files)} {'file' if files == 1 else 'files'} "
        f"({figures.size(sum(w.nbytes for w in facts.written))}), made by a pipeline for tamis {plain(summary.tamis)}. "
        "`RUN.json` says which run made it, when, and has the same facts for programs."
    )
    if facts.earlier:
        text += (
            f"\n\nThe directory also holds the output of {figures.number(len(facts.earlier))} earlier runs; it has "
            f"{figures.number(facts.rows)} rows in all. The counts below are those of the last run."
        )
    return text


def _counts(facts: OutputFacts) -> str:
    summary = facts.summary
    written = sum(w.rows for w in facts.written)
    rows = [["read", figures.number(figures.rows_read(summary.stages))]]
    rows.append(["written to this directory", figures.number(written)])
    dropped = sum(stage.rows_dropped for stage in summary.stages)
    rows.append(["dropped", figures.number(dropped)])
    rows.append(["set aside because they could not be processed", figures.number(summary.rows_set_aside)])
    reasons = [
        [code(stage.name), code(reason), figures.number(count)]
        for stage in summary.stages
        for reason, count in sorted(stage.dropped.items(), key=lambda item: -item[1])
    ]
    shown = [table(["rows", "number"], rows, 1)]
    if reasons:
        shown.append(table(["dropped by", "reason", "rows"], reasons[:200], 1))
    return "\n\n".join(shown)


def _stages(facts: OutputFacts) -> str:
    about = {str(stage.get("name")): stage for stage in facts.start.get("stages", ())}
    rows = []
    for step in figures.steps(facts.summary.stages):
        parameters = about.get(step.stage.name, {}).get("parameters", {})
        shown = ", ".join(
            code(f"{k}={_value(v)}") for k, v in parameters.items() if k not in _NOT_SHOWN and str(v) not in _UNSET
        )
        rows.append([code(step.stage.name), shown, step.shown_before, step.shown_after])
    return table(["stage", "parameters", "rows in", "rows out"], rows, 2)


def _value(described: Any) -> str:
    """A parameter as the manifest has it, with classes by their short names."""
    return re.sub(r"(?:\w+\.)+(\w+)#", r"\1", str(described))[:_SHOWN_PARAMETER]


def _values_section(title: str, counts: ColumnCounts | None, facts: OutputFacts) -> list[str]:
    if counts is None or not counts.values:
        return []
    whole = sum(w.rows for w in facts.written)
    scope = "all rows" if counts.rows >= whole else f"{figures.number(counts.rows)} of {figures.number(whole)} rows"
    most = counts.values.most_common(_SHOWN_VALUES)
    rest = len(counts.values) - len(most)
    rows = [[code(value), figures.number(n), figures.percent(n / max(1, counts.rows))] for value, n in most]
    more = f" The {figures.number(rest)} less frequent values are not shown." if rest else ""
    return [
        f"## {title}",
        f"From the column {code(counts.column)}, counted in {scope}.{more}",
        table([title.lower(), "rows", "share"], rows, 2),
    ]


def _deduplication_section(facts: OutputFacts) -> list[str]:
    steps = figures.steps(facts.deduplication())
    if not steps:
        return []
    rows = [
        [
            code(step.stage.name),
            step.shown_before,
            figures.number(step.lost),
            figures.percent(step.lost / step.before if step.before else None),
        ]
        for step in steps
    ]
    return ["## Deduplication", table(["stage", "rows", "duplicates removed", "rate"], rows, 3)]


def _recipe(facts: OutputFacts) -> str:
    recipe = str(facts.start.get("recipe") or "")
    versions = [f"tamis {facts.summary.tamis}", f"Python {facts.start.get('python', '')}"]
    versions += [f"{name} {version}" for name, version in facts.start.get("packages", {}).items()]
    made = f"Made with {', '.join(plain(v) for v in versions)}."
    if not recipe:
        return f"The pipeline cannot be written as a recipe, since it has stages of its own code. {made}"
    return f"{made} Save this recipe as `recipe.yaml` and run `tamis run recipe.yaml`.\n\n{block(recipe, 'yaml')}"
