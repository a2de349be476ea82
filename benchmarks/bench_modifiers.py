"""Each text modifier on Arrow columns, against its plain definition: one Python call for each document.

    python benchmarks/bench_modifiers.py [--input CORPUS] [--megabytes 8]

The input is a Parquet or JSON lines file with a column ``text``; without one, the sample that ships with tamis is used,
again and again. Prints, of one core and in processor time: MB/s of the plain definition, where each text is made a
Python string, changed, and the results are made a column again; MB/s of the ``Modify`` stage; their ratio; the share of
documents that change; and GB/s of the stage on clean ASCII text, in which there is nothing to change. The results of
both ways must be equal.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from peers.corpus import read_texts

os.environ.setdefault("TAMIS_KERNELS", "wait")

from tamis.stages.text import modifiers
from tamis.stages.text.modifiers import DocumentModifier, Modify
from tamis.tasks import DocumentBatch

BATCH_ROWS = 4096
REPEATS = 5
CLEAN_MEGABYTES = 64
SENTENCES = (
    "The rain had stopped before the train came in. Nobody on the platform seemed to have noticed it.\n"
    "She counted the windows of the house across the street; there were eleven, and all but one of them were dark.\n"
    "In the end it was a question of patience, as most things are, and of having a good pair of shoes.\n\n"
)
MODIFIERS: list[DocumentModifier] = [
    modifiers.QuotationUnifier(),
    modifiers.QuotationRemover(),
    modifiers.NewlineNormalizer(),
    modifiers.UrlRemover(),
    modifiers.MarkdownRemover(),
    modifiers.LineRemover(["Share", "Print"]),
    modifiers.LineRemover(["", "NAME"]),
    modifiers.BoilerPlateStringModifier(),
    modifiers.Slicer(),
    modifiers.Slicer(10, 200),
    modifiers.Slicer("the", ".", include_left=False),
    modifiers.FastTextLabelModifier("__label__hq"),
    modifiers.ControlCharacterRemover(),
    modifiers.WhitespaceCollapser(),
    modifiers.HtmlEntityUnescaper(),
    modifiers.UnicodeNormalizer(),
    modifiers.UnicodeReformatter(),
    modifiers.PiiRedactor(),
]


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The shortest of some runs: processor time, which other programs on the machine do not lengthen much."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def batches_of(column: pa.ChunkedArray) -> list[DocumentBatch]:
    table = pa.table({"text": column})
    return [DocumentBatch(table.slice(at, BATCH_ROWS)) for at in range(0, table.num_rows, BATCH_ROWS)]


def repeated(texts: list[str], megabytes: float) -> pa.ChunkedArray:
    """Texts from all over the list, or the list again and again, of this size together."""
    size = sum(len(text.encode()) for text in texts)
    wanted = megabytes * 1e6 / size
    chosen = texts * int(wanted) if wanted >= 1 else texts[:: max(1, round(1 / wanted))]
    return pa.chunked_array([pa.array(chosen, pa.large_string())])


def plainly(column: pa.ChunkedArray, modifier: DocumentModifier) -> pa.ChunkedArray:
    values = [modifier.modify_document(text) for text in column.to_pylist()]
    return pa.chunked_array([pa.array(values, pa.large_string())])


def megabytes_of(column: pa.ChunkedArray) -> float:
    return float(pc.sum(pc.binary_length(column)).as_py()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="a Parquet or JSON lines file with a column 'text'")
    parser.add_argument("--megabytes", type=float, default=8, help="how much of it")
    arguments = parser.parse_args()
    column = repeated(read_texts(arguments.input), arguments.megabytes)
    clean = repeated([SENTENCES * n for n in range(1, 20)], CLEAN_MEGABYTES)
    mixed_batches, clean_batches = batches_of(column), batches_of(clean)
    size, clean_size = megabytes_of(column), megabytes_of(clean)
    print(
        f"{size:.0f} MB in {len(column)} documents; {clean_size:.0f} MB of clean ASCII text; processor time, one core\n"
    )
    print(f"{'':46}{'plain':>12}{'tamis':>14}{'ratio':>8}{'changed':>9}{'clean ASCII':>13}")
    for modifier in MODIFIERS:
        stage = Modify(modifier)
        expected = plainly(column, modifier)
        results = [stage.process(batch).data["text"] for batch in mixed_batches]  # and kernels are loaded
        assert pa.chunked_array([c for result in results for c in result.chunks]).equals(expected), modifier
        plain = seconds(lambda m=modifier: plainly(column, m), 2)  # type: ignore[misc]  # a default binds it
        ours = seconds(lambda s=stage: [s.process(batch) for batch in mixed_batches])  # type: ignore[misc]  # a default binds it
        untouched = seconds(lambda s=stage: [s.process(batch) for batch in clean_batches])  # type: ignore[misc]  # a default binds it
        changed = pc.mean(pc.not_equal(expected, column)).as_py()
        name = repr(modifier) if len(repr(modifier)) < 46 else f"{modifier.name}(...)"
        print(
            f"{name:46}{size / plain:>7.1f} MB/s{size / ours:>9.0f} MB/s{plain / ours:>6.0f} x{changed:>9.1%}"
            f"{clean_size / untouched / 1000:>8.1f} GB/s"
        )


if __name__ == "__main__":
    main()
