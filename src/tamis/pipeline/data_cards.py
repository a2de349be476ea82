"""Write ``RUN.json`` and a data card into the output directories of a run that has ended."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tamis.errors import redacted
from tamis.pipeline.outputs import Outputs, WrittenFile
from tamis.plan import Plan
from tamis.runs.card_columns import Contents, contents_of
from tamis.runs.data_card import OutputFacts, WrittenFiles, as_earlier, card_text, run_facts
from tamis.runs.directory import RunDirectory
from tamis.runs.manifest import read_manifest
from tamis.runs.stats import RunSummary
from tamis.stages.io.card_files import CARD, RUN_FILE, is_card_file, write_card_file
from tamis.stages.io.destination import Destination
from tamis.stages.io.paths import join, open_read
from tamis.stages.io.sink import FileSink

__all__ = ["has_data_card", "write_data_cards"]

_LOG = logging.getLogger("tamis")


def write_data_cards(plan: Plan, directory: RunDirectory, outputs: Outputs, summary: RunSummary) -> list[str]:
    """Describe the output of a run in each of its directories; return what to tell the user.

    The run has ended well: a description that cannot be written does not change that.
    """
    messages = []
    starts = read_manifest(directory.path).get("starts") or [{}]
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    names = [v.name for v in plan.vertices if ".deduplication." in f"{type(v.stage).__module__}."]
    for sinks, files in outputs.written():
        place = sinks[0].destination
        facts = OutputFacts(directory.run_id, directory.address, summary, starts[-1], ended, names, [])
        try:
            facts.written = [_written(sink, files, alone=len(sinks) == 1) for sink in sinks]
            if place.mode in ("append", "ignore"):
                facts.earlier = _earlier(place.path, directory.run_id, place.storage_options)
            contents = {
                RUN_FILE: json.dumps(run_facts(facts), indent=1, ensure_ascii=False) + "\n",
                CARD: card_text(facts),
            }
            for name, content in contents.items():
                if not write_card_file(join(place.path, name), content, place.storage_options):
                    messages.append(f"{redacted(join(place.path, name))}: tamis did not write this file, so it stays")
        except Exception as error:  # noqa: BLE001 - see above
            _LOG.warning("the data card could not be written", exc_info=True)
            messages.append(redacted(f"{place.path}: the data card could not be written: {error}"))
    return messages


def has_data_card(place: Destination, summary: RunSummary) -> bool:
    """Whether an output directory has both files, those of the user or those of this start of the run."""
    path = join(place.path, RUN_FILE)
    try:
        with open_read(path, place.storage_options) as file:
            written = json.loads(file.read())
        with open_read(join(place.path, CARD), place.storage_options):
            return bool(written.get("started") == summary.started) or not is_card_file(path, place.storage_options)
    except (FileNotFoundError, ValueError):
        return False


def _written(sink: FileSink[Any], files: Mapping[str, WrittenFile], *, alone: bool) -> WrittenFiles:
    """The files of one writer of a directory."""
    place = sink.destination
    own = re.compile(place.own_names())
    names = [name for name in files if alone or own.fullmatch(name)]
    written = WrittenFiles(
        sink.name,
        sink.encoder.extension,
        place.filename + place.ending,
        any("/" in name for name in names),
        len(names),
        sum(files[name].rows for name in names),
        sum(files[name].nbytes for name in names),
    )
    try:
        written.contents = contents_of(sink, names)
    except Exception:  # noqa: BLE001 - the card is complete without them
        _LOG.debug("the output of %s could not be read", sink.name, exc_info=True)
        written.contents = Contents()
    return written


def _earlier(directory: str, run: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The earlier runs whose output a directory holds, as its ``RUN.json`` says."""
    path = join(directory, RUN_FILE)
    if not is_card_file(path, options):
        return []
    try:
        with open_read(path, options) as file:
            values = json.loads(file.read())
    except ValueError:
        return []
    return [entry for entry in as_earlier(values) if isinstance(entry, dict) and entry.get("run") != run]
