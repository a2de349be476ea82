"""The 28-filter English cascade from JSON lines to JSON lines, side by side with NeMo Curator and datatrove.

    python benchmarks/text_filters.py --input CORPUS.parquet [--peer-megabytes 640] [--sections abcdefg]
    python benchmarks/text_filters.py --quick

The corpus needs a column ``text``. The sections:

    a  the filter step alone: one core, CPU time, data in memory
    b  the whole run, JSON lines in and out, all cores, wall clock, start-up included; start-up apart
    c  Polars reading and writing the same files, with no filter
    d  two threads against one
    e  score columns and the list of what was dropped: what they cost
    f  first output after a start with an empty and with a filled kernel cache
    g  modifiers against NeMo Curator's, and on clean ASCII text

NeMo Curator and datatrove run in environments of their own (``--nemo-python``, ``--datatrove-python``; see
peers/environments.py). Wherever a ratio is taken all are given the same; ``--peer-megabytes`` says how much, a smaller
corpus is repeated, since start-up is a small part of a real run. Figures on the corpus as it is are shown beside.
Repetitions alternate between the peers, ratios are medians.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peers.corpus import read_texts
from peers.environments import datatrove_python, nemo_python, worker
from peers.operations import CASCADE, MODIFIERS_TIMED
from peers.running import CORES, Ran, run_worker

NEMO_EXECUTORS = ("ray_data", "actor_pool", "xenna")


# -- what the sections share -------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """What all sections work with."""

    folder: Path
    tables: dict[str, pa.Table]
    nemo: str | None
    datatrove: str | None
    repeat: int

    def parquet(self, name: str) -> Path:
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            pq.write_table(self.tables[name], path, compression="none", use_dictionary=False)
        return path

    def jsonl(self, name: str) -> Path:
        """A folder of JSON lines files: twice as many as cores, so that all can work to the end."""
        import polars as pl

        path = self.folder / f"{name}-jsonl"
        if not path.exists():
            path.mkdir()
            table, count = self.tables[name], 1 if name == "tiny" else 2 * len(CORES)
            for number in range(count):
                begin, end = (table.num_rows * i // count for i in (number, number + 1))
                frame = pl.from_arrow(table.slice(begin, end - begin))
                assert isinstance(frame, pl.DataFrame)
                frame.write_ndjson(path / f"{number:03d}.jsonl")
        return path

    def megabytes(self, name: str) -> float:
        return float(pc.sum(pc.binary_length(self.tables[name]["text"])).as_py()) / 1e6

    def jsonl_megabytes(self, name: str) -> float:
        return sum(p.stat().st_size for p in self.jsonl(name).iterdir()) / 1e6

    def fresh(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder)) / "out"

    def tamis(self, name: str, workers: int = len(CORES), form: str = "default") -> Ran:
        return self._run(sys.executable, "tamis_cascade.py", name, workers, form)

    def nemo_run(self, name: str, executor: str) -> Ran:
        return self._run(str(self.nemo), "nemo_cascade.py", name, executor)

    def datatrove_run(self, name: str, tokenizer: str) -> Ran:
        return self._run(str(self.datatrove), "datatrove_cascade.py", name, tokenizer, len(CORES))

    def copy(self, name: str) -> Ran:
        return self._run(sys.executable, "tamis_cascade.py", name, command="copy")

    def _run(self, python: str, script: str, name: str, *arguments: object, command: str = "run") -> Ran:
        """Run a worker from JSON lines to JSON lines; what it wrote is counted and removed."""
        output = self.fresh()
        ran = run_worker(python, script, command, self.jsonl(name), output, *arguments)
        rows = sum(
            path.read_bytes().count(b"\n") for path in output.rglob("*.jsonl") if path.parent.name in ("kept", "out")
        )
        shutil.rmtree(output.parent)
        return Ran({**ran.answer, "rows": rows}, ran.wall, ran.cpu)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def row(label: str, *cells: str) -> None:
    print(f"  {label:<44}{''.join(f'{cell:>20}' for cell in cells)}", flush=True)


# -- the sections ------------------------------------------------------------------------------------------------------


def filter_step(bench: Bench) -> None:
    title("a. The filter step alone: one core, CPU time, data in memory")
    kept = compare_steps(bench, "step", "documents from all over the corpus")
    # What is dropped early costs the peers little: the more is kept, the longer they take.
    bench.tables["kept"] = bench.tables["step"].filter(pc.is_in(bench.tables["step"]["id"], pa.array(kept)))
    compare_steps(bench, "kept", "only the documents that are kept")


def compare_steps(bench: Bench, name: str, what: str) -> list[int]:
    """Time the filters of all toolkits on a slice; gives the ids that tamis keeps."""
    path, megabytes, core = bench.parquet(name), bench.megabytes(name), [CORES[0]]
    ways: dict[str, Callable[[], Ran]] = {
        "tamis": lambda: run_worker(sys.executable, "tamis_cascade.py", "step", path, 15, cores=core),
        "tamis, with 28 score columns": lambda: run_worker(
            sys.executable, "tamis_cascade.py", "scored", path, 15, cores=core
        ),
    }
    if bench.nemo:
        python = bench.nemo
        ways["NeMo Curator"] = lambda: run_worker(python, "nemo_cascade.py", "step", path, cores=core)
    if bench.datatrove:
        other, script = bench.datatrove, "datatrove_cascade.py"
        ways["tamis, Gopher + C4 + FineWeb"] = lambda: run_worker(
            sys.executable, "tamis_cascade.py", "sets", path, 5, cores=core
        )
        ways["datatrove, its tokenizer"] = lambda: run_worker(other, script, "step", path, "default", cores=core)
        ways["datatrove, str.split"] = lambda: run_worker(other, script, "step", path, "split", cores=core)
    rounds = [{way: run().answer for way, run in ways.items()} for _ in range(bench.repeat)]
    row(f"{megabytes:.1f} MB, {what}")
    for way in ways:
        rate = median(megabytes / r[way]["seconds"] for r in rounds)
        ratio = median(r[way]["seconds"] / r["tamis"]["seconds"] for r in rounds)
        row(f"  {way}", f"{rate:.2f} MB/s", f"{len(rounds[0][way]['kept']):,} kept", f"tamis is {ratio:.2f} x")
    sets = "tamis, Gopher + C4 + FineWeb"
    for way in (way for way in ways if way.startswith("datatrove")):
        ratio = median(r[way]["seconds"] / r[sets]["seconds"] for r in rounds)
        row(f"  {sets}, against {way}", "", "", f"tamis is {ratio:.2f} x")
    ours = set(rounds[0]["tamis"]["kept"])
    if bench.nemo:
        row(
            "  kept by only one, tamis or NeMo Curator",
            f"{len(ours ^ set(rounds[0]['NeMo Curator']['kept']))} documents",
        )
    return sorted(ours)


def whole_run(bench: Bench) -> None:
    megabytes, cores = bench.jsonl_megabytes("peer"), len(CORES)
    title(f"b. The whole run: {megabytes:.1f} MB of JSON lines, {cores} cores, wall clock with start-up")
    ways: dict[str, Callable[[str], Ran]] = {"tamis": bench.tamis}
    if bench.datatrove:
        ways["datatrove"] = lambda name: bench.datatrove_run(name, "split")
    if bench.nemo:
        executor = fastest_executor(bench)
        if executor:
            ways["NeMo Curator"] = lambda name: bench.nemo_run(name, executor)
    rounds = [{name: way("peer") for name, way in ways.items()} for _ in range(max(1, bench.repeat - 1))]
    starts = {name: median(way("tiny").wall for _ in range(2)) for name, way in ways.items()}
    row("", "wall clock", "of it start-up", "MB/s per core", "without start-up", "tamis is", "documents kept")
    for name in ways:
        wall = median(r[name].wall for r in rounds)
        ratio = median(r[name].wall / r["tamis"].wall for r in rounds)
        rate, steady = (megabytes / cores / max(seconds, 1e-3) for seconds in (wall, wall - starts[name]))
        shown = f"{steady:.1f}" if wall > starts[name] else "-"  # a noisy machine: start-up alone took longer
        cells = (f"{wall:.2f} s", f"{starts[name]:.2f} s", f"{rate:.2f}", shown, f"{ratio:.1f} x")
        row(name, *cells, f"{rounds[0][name].answer['rows']:,}")
    everything = [bench.tamis("all") for _ in range(bench.repeat)]
    all_megabytes = bench.jsonl_megabytes("all")
    wall = median(ran.wall for ran in everything)
    row(f"tamis, all {all_megabytes:.0f} MB", f"{wall:.2f} s", "", f"{all_megabytes / wall / cores:.1f}")


def fastest_executor(bench: Bench) -> str | None:
    """Which of the peer's executors is the fastest here; those that cannot run are told."""
    walls: dict[str, float] = {}
    for executor in NEMO_EXECUTORS:
        try:
            walls[executor] = bench.nemo_run("trial", executor).wall
        except RuntimeError as error:
            row(f"NeMo Curator, {executor}", "fails", str(error).splitlines()[-1][:100])
            continue
        row(f"NeMo Curator, {executor}, {bench.jsonl_megabytes('trial'):.0f} MB", f"{walls[executor]:.1f} s")
    return min(walls, key=lambda name: walls[name]) if walls else None


def against_a_copy(bench: Bench) -> None:
    title(f"c. Against Polars that only reads and writes the {bench.jsonl_megabytes('all'):.0f} MB of JSON lines")
    rounds = [(bench.copy("all"), bench.tamis("all")) for _ in range(bench.repeat)]
    for name, number in (("Polars", 0), ("tamis with the cascade", 1)):
        row(
            name,
            f"{median(r[number].wall for r in rounds):.2f} s wall",
            f"{median(r[number].cpu for r in rounds):.2f} s CPU",
        )
    wall, cpu = (median(getattr(r[1], kind) / getattr(r[0], kind) for r in rounds) for kind in ("wall", "cpu"))
    row("tamis / Polars", f"{wall:.2f} x the wall clock", f"{cpu:.2f} x the CPU time")


def two_threads(bench: Bench) -> None:
    title("d. Two threads against one")
    path = bench.parquet("all")

    def threads(count: int) -> float:
        ran = run_worker(sys.executable, "tamis_cascade.py", "threads", path, count, 3)
        return float(ran.answer["seconds"])

    steps = [(threads(1), threads(2)) for _ in range(bench.repeat)]
    row("filter step", f"{median(one / two for one, two in steps):.2f} x", f"best {max(a / b for a, b in steps):.2f} x")
    runs = [(bench.tamis("all", 1), bench.tamis("all", 2)) for _ in range(bench.repeat)]
    ratio = median(one.wall / two.wall for one, two in runs)
    inner = median(one.answer["wall"] / two.answer["wall"] for one, two in runs)
    row("whole run", f"{ratio:.2f} x", f"inside {inner:.2f} x")


def cost_of_scores(bench: Bench) -> None:
    title("e. What 28 score columns and the drop ledger cost; 'written': with the scores in the output")
    forms = ("plain", "scores", "ledger", "both", "written")
    rounds = [{form: bench.tamis("all", 1, form) for form in forms} for _ in range(bench.repeat)]
    for form in forms:
        wall, cpu = (
            median(getattr(r[form], kind) / getattr(r["plain"], kind) - 1 for r in rounds) for kind in ("wall", "cpu")
        )
        row(form, f"{wall:+.1%} wall clock", f"{cpu:+.1%} CPU time")


def first_output(bench: Bench) -> None:
    title(f"f. Time to the first output, {bench.jsonl_megabytes('tiny') * 1000:.0f} KB of JSON lines")
    cache = bench.folder / "cache"
    for label in ("as installed, empty cache", "again"):
        row(label, f"{watch(bench, {'TAMIS_CACHE_DIR': str(cache), 'TAMIS_KERNELS': ''}):.2f} s")
    warm = [watch(bench, {"TAMIS_CACHE_DIR": str(cache), "TAMIS_KERNELS": ""}) for _ in range(5)]
    row("median of five more", f"{median(warm):.2f} s")


def watch(bench: Bench, environment: dict[str, str]) -> float:
    """Seconds from the start of the process until a file of output is there."""
    output = bench.fresh()
    command = [sys.executable, worker("tamis_cascade.py"), "run", str(bench.jsonl("tiny")), str(output)]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, str(len(CORES)), "default"], env={**os.environ, **environment}, stdout=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not list((output / "kept").glob("*.jsonl")):
            time.sleep(0.005)
        seconds = time.perf_counter() - began
    assert process.returncode == 0, "the run failed"
    return seconds


def modifiers(bench: Bench) -> None:
    slices = {"step": "the corpus", "ascii": "clean ASCII text"}
    sizes = ", ".join(f"{bench.megabytes(name):.0f} MB of {what}" for name, what in slices.items())
    title(f"g. Modifiers: one core, CPU time, {sizes}")
    core = [CORES[0]]
    row("", "NeMo Curator", "tamis", "ratio", "clean ASCII")
    rounds = []
    for _ in range(bench.repeat):
        ours, clean = (
            run_worker(sys.executable, "tamis_cascade.py", "modifiers", bench.parquet(name), 5, cores=core).answer[
                "seconds"
            ]
            for name in slices
        )
        theirs = {}
        if bench.nemo:
            theirs = run_worker(bench.nemo, "nemo_cascade.py", "modifiers", bench.parquet("step"), cores=core).answer[
                "seconds"
            ]
        rounds.append((theirs, ours, clean))
    for name in (operation.label for operation in MODIFIERS_TIMED):
        megabytes = bench.megabytes("step")
        cells = ["", f"{median(megabytes / ours[name] for _, ours, _ in rounds):.0f} MB/s", ""]
        if bench.nemo:
            cells[0] = f"{median(megabytes / theirs[name] for theirs, _, _ in rounds):.1f} MB/s"
            cells[2] = f"{median(theirs[name] / ours[name] for theirs, ours, _ in rounds):.0f} x"
        row(name, *cells, f"{median(bench.megabytes('ascii') / 1000 / clean[name] for *_, clean in rounds):.2f} GB/s")


SECTIONS = {
    "a": filter_step,
    "b": whole_run,
    "c": against_a_copy,
    "d": two_threads,
    "e": cost_of_scores,
    "f": first_output,
    "g": modifiers,
}


# -- the data ----------------------------------------------------------------------------------------------------------


def read_corpus(path: str | None) -> pa.Table:
    # NeMo Curator's filters raise on documents without words, which would end its run.
    texts = [text for text in read_texts(path) if text.strip()]
    return pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.large_string())})


def take(table: pa.Table, megabytes: float) -> pa.Table:
    """Documents from all over the table, of this size together."""
    share = megabytes * 1e6 / float(pc.sum(pc.binary_length(table["text"])).as_py())
    if share >= 1:
        return table
    rows = [int(i / share) for i in range(max(1, int(table.num_rows * share)))]
    return table.take(rows).combine_chunks()


def repeated(table: pa.Table, megabytes: float) -> pa.Table:
    """The table as often as it takes to have this size."""
    size = float(pc.sum(pc.binary_length(table["text"])).as_py())
    return pa.concat_tables([table] * max(1, math.ceil(megabytes * 1e6 / size)))


def clean_ascii(table: pa.Table, megabytes: float) -> pa.Table:
    """ASCII documents in which no modifier has anything to change, again and again until there are enough."""
    plain = pc.match_substring_regex(table["text"], r"^[\n -~]*$")
    touched = pc.match_substring_regex(table["text"], r"(?i)[*_\[\]&<]|http|www|\n\n\n|lorem|cookie|privacy|terms of")
    texts = table["text"].filter(pc.and_(plain, pc.invert(touched))).to_pylist() or ["Plain text. " * 100]
    size = sum(map(len, texts))
    texts = texts * max(1, int(megabytes * 1e6 / size))
    return pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.large_string())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="a Parquet or JSON lines file with a column 'text'")
    parser.add_argument("--quick", action="store_true", help="on the sample that ships with tamis")
    parser.add_argument("--sections", default="abcdefg")
    parser.add_argument("--step-megabytes", type=float, default=8, help="for a and g")
    parser.add_argument("--peer-megabytes", type=float, help="for b; 640, or 8 with --quick")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--nemo-python", help="an interpreter that has NeMo Curator 1.4; 'none' leaves it out")
    parser.add_argument("--datatrove-python", help="an interpreter that has datatrove; 'none' leaves it out")
    arguments = parser.parse_args()
    if not arguments.input and not arguments.quick:
        parser.error("give --input FILE, or --quick")
    peers = set(arguments.sections) & set("abg")
    nemo = nemo_python(arguments.nemo_python) if peers and arguments.nemo_python != "none" else None
    datatrove = datatrove_python(arguments.datatrove_python) if peers and arguments.datatrove_python != "none" else None
    table = read_corpus(None if arguments.quick else arguments.input)
    peer_megabytes = arguments.peer_megabytes or (8 if arguments.quick else 640)
    tables = {
        "all": table,
        "peer": take(repeated(table, peer_megabytes), peer_megabytes),
        "trial": take(table, 32),
        "step": take(table, arguments.step_megabytes),
        "tiny": take(table, 0.05),
        "ascii": clean_ascii(table, 64),
    }
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-"))
    bench = Bench(folder, tables, nemo, datatrove, arguments.repeat)
    size = f"{table.num_rows:,} documents, {bench.megabytes('all'):.0f} MB of text"
    print(f"{len(CASCADE)} filters; {size}; {len(CORES)} cores")
    try:
        for section in arguments.sections:
            SECTIONS[section](bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # kernels may still be compiled there


if __name__ == "__main__":
    main()
