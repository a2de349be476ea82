"""Every text filter and modifier against NeMo Curator's own, document by document.

    python benchmarks/compare_decisions.py --input CORPUS.parquet [--rows N] [--modifiers] [--keep DIR]
    python benchmarks/compare_decisions.py --quick

The peer runs in an environment of its own (``--nemo-python``, see peers/environments.py), split over processes, under
PYTHONHASHSEED=0. Odd documents (empty, only white space, NUL, one huge word, code, ...) are put behind the corpus. For
each filter: documents, decisions that differ, scores that differ by more than 1e-12, documents on which the peer
raises, MB/s of CPU time of both and the ratio. Differences are listed with their row and whether they are explained;
all of them go to ``differences.jsonl``. ``--keep`` remembers the peer's results for the next comparison.

The exit status is 1 if a difference has no explanation.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from peers.corpus import read_texts
from peers.environments import nemo_python, worker
from peers.odd_documents import ODD_DOCUMENTS
from peers.operations import FILTERS, MODIFIERS, Operation

TOLERANCE = 1e-12
BATCH_ROWS = 4096


# -- why results may differ --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """Why the peer's result is another, or is none, and how to tell that a difference is of this kind.

    Args:
        text: In a sentence.
        holds: Whether it explains a row: ``(operation, text, peer's row, our score)``.
    """

    text: str
    holds: Callable[[Operation, str, dict[str, Any], Any], bool]


def is_tie(operation: Operation, text: str, peer: dict[str, Any], ours: Any) -> bool:
    """Whether both scores are those of an n-gram that no other is more frequent than."""
    if operation.name != "RepeatingTopNGramsFilter":
        return False
    scores = tied_scores(text, operation.parameters["n"])
    return len(scores) > 1 and all(any(abs(s - x) <= TOLERANCE for s in scores) for x in (peer["score"], ours))


def tied_scores(text: str, n: int) -> set[float]:
    """The scores of all n-grams that are as frequent as the most frequent one."""
    words = text.strip().split()
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    most = max(counts.values(), default=0)
    tops = {" ".join(gram) for gram, count in counts.items() if count == most}
    return {(len(text) - len(text.replace(top, ""))) / len(text) for top in tops}


EXPLANATIONS = [
    Explanation(
        "several n-grams are equally frequent: the peer takes one by the order of a Python set, which follows "
        "PYTHONHASHSEED (it differs from itself under another seed); tamis takes the first in the text",
        is_tie,
    ),
]

WHY_THE_PEER_RAISES = {
    "ZeroDivisionError": "it divides by the number of words, lines or characters, of which there are none",
    "ValueError": "it asks for the longest of no words",
    "TypeError": "its score is None (the parser failed), which it then compares with a number",
}


# -- the peer ----------------------------------------------------------------------------------------------------------


@dataclass
class PeerRun:
    """What the peer gave: columns ``LABEL|score`` and so on, CPU seconds, what it could not build."""

    table: pa.Table
    seconds: dict[str, float]
    missing: dict[str, str]
    unknown: list[str]


def run_peer(python: str, corpus: Path, rows: int, processes: int, seed: int, flags: list[str], keep: Path) -> PeerRun:
    """Run the peer over the corpus, or read what an earlier run with the same corpus and operations kept."""
    script = worker("nemo_filters.py")
    parts = processes * max(1, rows // 5000)  # small enough that all processes end at about the same time
    asked = repr((rows, parts, seed, flags, MODIFIERS if "--modifiers" in flags else FILTERS)).encode()
    files = [Path(script), corpus]
    key = hashlib.sha256(asked + b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[
        :16
    ]
    edges = [rows * i // parts for i in range(parts + 1)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONWARNINGS": "ignore"}

    def run_part(number: int) -> dict[str, Any]:
        result = keep / f"{key}-{number}.parquet"
        answer = result.with_suffix(".json")
        if not answer.exists():
            span = [str(edges[number]), str(edges[number + 1])]
            command = [python, script, str(corpus), str(result), *span, *flags]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"the peer failed on rows {span}:\n{done.stderr[-3000:]}")
            answer.write_text(done.stdout.strip().splitlines()[-1], encoding="utf-8")
        return dict(json.loads(answer.read_text(encoding="utf-8")))

    with ThreadPoolExecutor(processes) as pool:
        answers = list(pool.map(run_part, range(parts)))
    table = pa.concat_tables(pq.read_table(keep / f"{key}-{number}.parquet") for number in range(parts))
    seconds: Counter[str] = Counter()
    for answer in answers:
        seconds.update(answer["seconds"])
    return PeerRun(table, dict(seconds), answers[0]["missing"], answers[0]["unknown"])


# -- tamis -------------------------------------------------------------------------------------------------------------


def build(operation: Operation, kind: str) -> Any:
    """The filter or modifier of tamis with the same name; None if there is none."""
    for module in (f"tamis.stages.text.{kind}.{operation.module}", f"tamis.stages.text.{kind}"):
        try:
            cls = getattr(importlib.import_module(module), operation.name)
        except (ImportError, AttributeError):
            continue
        return cls(**operation.parameters)
    return None


def batches(table: pa.Table) -> list[Any]:
    from tamis.tasks import DocumentBatch

    return [DocumentBatch(table.slice(at, BATCH_ROWS)) for at in range(0, table.num_rows, BATCH_ROWS)]


def tamis_scores(made: Any, table: pa.Table) -> tuple[NDArray[Any], NDArray[np.bool_], float]:
    """Scores and decisions for all rows through the stage a user would use, and its CPU seconds."""
    from tamis.stages.text.filters import ScoreFilter

    stage = ScoreFilter(made, score_field="score")
    given = batches(table)
    warm_up(stage, batches(table.slice(0, 100))[0])  # of its own: a batch may carry what a stage found out
    scores: NDArray[Any] = np.full(table.num_rows, np.nan)
    kept = np.zeros(table.num_rows, np.bool_)
    began = time.process_time()
    results = [stage.process(batch) for batch in given]
    for result in results:
        _ = result.data  # the rows that stay are copied together when they are asked for
    seconds = time.process_time() - began
    for batch, result in zip(given, results, strict=True):
        rows = result.data["row"].to_numpy()
        kept[rows], scores[rows] = True, np.asarray(result.data["score"]).astype(np.float64)
        for drop in result.dropped:
            if drop.scores is not None:
                scores[batch.data["row"].to_numpy()[drop.rows]] = np.asarray(drop.scores).astype(np.float64)
    return scores, kept, seconds


def tamis_texts(made: Any, table: pa.Table) -> tuple[list[str], float]:
    from tamis.stages.text.modifiers import Modify

    stage = Modify(made)
    given = batches(table)
    warm_up(stage, batches(table.slice(0, 100))[0])  # of its own: a batch may carry what a stage found out
    began = time.process_time()
    results = [stage.process(batch) for batch in given]
    seconds = time.process_time() - began
    return [text for result in results for text in result.data["text"].to_pylist()], seconds


def warm_up(stage: Any, batch: Any) -> None:
    """Have whatever is compiled or loaded at first use compiled and loaded."""
    stage.setup()
    result = stage.process(batch)
    if isinstance(result, Iterator):
        list(result)


# -- the comparison ----------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """One line of the result."""

    label: str
    decisions: int = 0
    scores: int = 0
    unexplained: int = 0
    raised: int = 0
    peer_seconds: float = 0.0
    seconds: float = 0.0
    note: str = ""

    def show(self, megabytes: float) -> None:
        if self.note:
            print(f"{self.label:<58.58} {self.note}", flush=True)
            return
        peer, ours = megabytes / max(self.peer_seconds, 1e-9), megabytes / max(self.seconds, 1e-9)
        print(
            f"{self.label:<58.58}{self.decisions:>10,}{self.scores:>9,}{self.unexplained:>12,}{self.raised:>8,}"
            f"{peer:>10.1f}{ours:>10.0f}{ours / peer:>9.0f}",
            flush=True,
        )


def compare_filter(operation: Operation, peer: PeerRun, table: pa.Table, differences: list[dict[str, Any]]) -> Line:
    made = build(operation, "filters")
    if made is None or operation.label in peer.missing:
        note = "tamis has no such filter" if made is None else f"not built by the peer: {peer.missing[operation.label]}"
        return Line(operation.label, note=note, unexplained=1)
    scores, kept, seconds = tamis_scores(made, table)
    columns = {k: peer.table[f"{operation.label}|{k}"] for k in ("score", "keep", "error")}
    raised = np.asarray(columns["error"].is_valid())
    theirs, their_kept = np.asarray(columns["score"]).astype(np.float64), np.asarray(columns["keep"].fill_null(False))
    other_score = ~raised & ~(np.abs(theirs - scores) <= TOLERANCE) & ~(np.isnan(theirs) & np.isnan(scores))
    other_decision = ~raised & (their_kept != kept)
    unexplained = 0
    for row in np.flatnonzero(other_score | other_decision):
        text = table["text"][int(row)].as_py()
        found = {"score": float(theirs[row]), "keep": bool(their_kept[row])}
        why = next((e.text for e in EXPLANATIONS if e.holds(operation, text, found, scores[row])), None)
        unexplained += why is None
        ours = {"score": float(scores[row]), "keep": bool(kept[row])}
        differences.append(
            {"of": operation.label, "row": int(row), "peer": found, "tamis": ours, "because": why, "text": text[:200]}
        )
    return Line(
        operation.label,
        int(other_decision.sum()),
        int(other_score.sum()),
        unexplained,
        int(raised.sum()),
        peer.seconds[operation.label],
        seconds,
    )


def compare_modifier(operation: Operation, peer: PeerRun, table: pa.Table, differences: list[dict[str, Any]]) -> Line:
    made = build(operation, "modifiers")
    if made is None or operation.label in peer.missing:
        note = (
            "tamis has no such modifier" if made is None else f"not built by the peer: {peer.missing[operation.label]}"
        )
        return Line(operation.label, note=note, unexplained=1)
    texts, seconds = tamis_texts(made, table)
    theirs = peer.table[f"{operation.label}|text"].to_pylist()
    errors = peer.table[f"{operation.label}|error"].to_pylist()
    line = Line(operation.label, peer_seconds=peer.seconds[operation.label], seconds=seconds)
    for row, (text, ours, expected, error) in enumerate(
        zip(table["text"].to_pylist(), texts, theirs, errors, strict=True)
    ):
        line.raised += error is not None
        if error is None and ours != expected:
            line.decisions += 1
            line.unexplained += 1
            at = next((i for i, (a, b) in enumerate(zip(ours, expected, strict=False)) if a != b), 0)
            near = slice(max(0, at - 40), at + 40)
            differences.append(
                {
                    "of": operation.label,
                    "row": row,
                    "at": at,
                    "peer": expected[near],
                    "tamis": ours[near],
                    "text": text[near],
                }
            )
    return line


def show_seeds(python: str, first: PeerRun, corpus: Path, rows: int, processes: int, keep: Path) -> None:
    """How often the peer differs from itself, when Python's hash seed is another."""
    second = run_peer(python, corpus, rows, processes, 1, ["--hash-order-only"], keep)
    print("\nThe peer against itself, PYTHONHASHSEED=0 and =1:")
    for operation in (x for x in FILTERS if x.follows_hash_seed and x.label in second.seconds):
        scores, kept = (
            [np.asarray(run.table[f"{operation.label}|{kind}"].fill_null(nothing)) for run in (first, second)]
            for kind, nothing in (("score", 0.0), ("keep", False))
        )
        other = np.flatnonzero(np.abs(scores[0] - scores[1]) > TOLERANCE)
        decisions = int((kept[0] != kept[1]).sum())
        examples = ", ".join(map(str, other[:5]))
        print(
            f"  {operation.label:<50}{len(other):>8,} scores ({len(other) / rows:.0%}), {decisions} decisions differ "
            f"(rows {examples}, ...)"
        )


def show_errors(peer: PeerRun) -> None:
    """On which documents the peer raises, and why."""
    kinds: Counter[tuple[str, str]] = Counter()
    for name in peer.table.column_names:
        if name.endswith("|error"):
            kinds.update((name.removesuffix("|error"), e) for e in peer.table[name].to_pylist() if e is not None)
    if kinds:
        print("\nWhere the peer raises (which ends its task; tamis gives a score):")
    for (label, kind), count in sorted(kinds.items()):
        print(f"  {label:<50}{count:>6,} x {kind}: {WHY_THE_PEER_RAISES.get(kind, 'not explained')}")


# -- the corpus --------------------------------------------------------------------------------------------------------


def read_corpus(path: str | None, rows: int | None, column: str) -> pa.Table:
    texts = read_texts(path, column, rows) + ODD_DOCUMENTS
    return pa.table({"text": pa.array(texts, pa.large_string()), "row": np.arange(len(texts))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="a Parquet or JSON lines file")
    parser.add_argument("--column", default="text")
    parser.add_argument("--rows", type=int, help="only the first N documents")
    parser.add_argument("--quick", action="store_true", help="on the sample that ships with tamis")
    parser.add_argument("--modifiers", action="store_true", help="the modifiers instead of the filters")
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--nemo-python", help="an interpreter that has NeMo Curator 1.4")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", help="directory for the peer's results, used again when nothing has changed")
    parser.add_argument("--differences", default="differences.jsonl", help="where all differences are written")
    arguments = parser.parse_args()
    if not arguments.input and not arguments.quick:
        parser.error("give --input FILE, or --quick")
    os.environ["TAMIS_KERNELS"] = "wait"  # the kernels are compared, not the definitions that stand in for them
    python = nemo_python(arguments.nemo_python)
    table = read_corpus(None if arguments.quick else arguments.input, arguments.rows, arguments.column)
    megabytes = sum(len(t.encode()) for t in table["text"].to_pylist()) / 1e6
    keep = Path(arguments.keep or tempfile.mkdtemp(prefix="tamis-compare-"))
    keep.mkdir(parents=True, exist_ok=True)
    try:
        corpus = keep / f"corpus-{table.num_rows}.parquet"
        pq.write_table(table.select(["text"]), corpus, compression="zstd")
        flags = ["--modifiers"] if arguments.modifiers else []
        print(f"{table.num_rows:,} documents, {megabytes:.0f} MB, {len(ODD_DOCUMENTS)} of them odd ones", flush=True)
        peer = run_peer(python, corpus, table.num_rows, arguments.processes, 0, flags, keep)
        differences, lines = compare(arguments, peer, table, megabytes)
        show_errors(peer)
        if peer.unknown:
            print(f"\nNot compared, as peers/operations.py does not know them: {', '.join(peer.unknown)}")
        if not arguments.modifiers:
            show_seeds(python, peer, corpus, table.num_rows, arguments.processes, keep)
    finally:
        if not arguments.keep:
            shutil.rmtree(keep)
    show_differences(differences, arguments.differences)
    return int(any(line.unexplained for line in lines) or bool(peer.unknown))


def compare(
    arguments: argparse.Namespace, peer: PeerRun, table: pa.Table, megabytes: float
) -> tuple[list[dict[str, Any]], list[Line]]:
    if arguments.modifiers:
        operations, compare_one, what = MODIFIERS, compare_modifier, ("outputs", "")
    else:
        operations, compare_one, what = FILTERS, compare_filter, ("decisions", "scores")
    print(f"{'':<58}{'--- differing ---':>19}{'without an':>12}{'peer':>8}{'--- MB/s of CPU ---':>20}")
    print(f"{'':<58}{what[0]:>10}{what[1]:>9}{'explanation':>12}{'raises':>8}{'NeMo':>10}{'tamis':>10}{'ratio':>9}")
    differences: list[dict[str, Any]] = []
    lines: list[Line] = []
    for operation in operations:
        if arguments.only in operation.label:
            lines.append(compare_one(operation, peer, table, differences))
            lines[-1].show(megabytes)
    total = Line("all")
    for line in lines:
        for name in ("decisions", "scores", "unexplained", "raised", "peer_seconds", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(line, name))
    total.show(megabytes)
    return differences, lines


def show_differences(differences: list[dict[str, Any]], path: str) -> None:
    with Path(path).open("w", encoding="utf-8") as file:
        for difference in differences:
            file.write(json.dumps(difference, ensure_ascii=False) + "\n")
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for difference in differences:
        key = (difference["of"], difference.get("because") or "NOT EXPLAINED")
        by_kind.setdefault(key, []).append(difference)
    if differences:
        print(f"\nThe differences (all in {path}):")
    for (label, why), found in by_kind.items():
        rows = ", ".join(str(d["row"]) for d in found[:8])
        print(f"  {label}: {len(found):,} documents, rows {rows}{', ...' if len(found) > 8 else ''}\n    {why}")
        if why == "NOT EXPLAINED":
            for d in found[:3]:
                print(f"    row {d['row']}: peer {d['peer']!r}, tamis {d['tamis']!r}, text {d['text'][:80]!r}")


if __name__ == "__main__":
    sys.exit(main())
