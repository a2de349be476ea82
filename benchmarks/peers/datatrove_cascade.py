"""Runs in datatrove's environment: Gopher repetition and quality, C4 quality, FineWeb quality.

    python datatrove_cascade.py step FILE.parquet TOKENIZER         the filters alone, on documents in memory
    python datatrove_cascade.py run FOLDER OUTPUT TOKENIZER WORKERS JSON lines to JSON lines

TOKENIZER is ``default`` (spaCy's for English, what datatrove takes) or ``split`` (words between white space, which is
what the other two toolkits do). Prints its result as JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from typing import Any

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.word_tokenizers import WordTokenizer

SENTENCE_END = re.compile(r"[.!?](?:\s+|$)")


class SplitTokenizer(WordTokenizer):
    """Words between white space, sentences by their end marks."""

    def word_tokenize(self, text: str) -> list[str]:
        return text.split()

    def sent_tokenize(self, text: str) -> list[str]:
        return [text[begin:end] for begin, end in self.span_tokenize(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        ends = [match.end() for match in SENTENCE_END.finditer(text)]
        if not ends or ends[-1] < len(text):
            ends.append(len(text))
        return list(zip([0, *ends], ends, strict=False))


def filters(tokenizer: str) -> list[Any]:
    language: Any = SplitTokenizer() if tokenizer == "split" else "eng"
    classes = (GopherRepetitionFilter, GopherQualityFilter, C4QualityFilter, FineWebQualityFilter)
    return [cls(language=language) for cls in classes]


def step(path: str, tokenizer: str) -> dict[str, Any]:
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=["id", "text"]).to_pylist()
    chain = filters(tokenizer)
    first = [Document(text="A sentence. " * 60, id="0")]
    list(through(chain, first))  # the tokenizer is loaded at first use
    documents = [Document(text=row["text"], id=str(row["id"])) for row in rows]
    began = time.process_time()
    kept = [int(document.id) for document in through(chain, documents)]
    return {"seconds": time.process_time() - began, "kept": kept}


def through(chain: list[Any], documents: Any) -> Any:
    for part in chain:
        documents = part.run(documents)
    return documents


def run(folder: str, output: str, tokenizer: str, workers: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as logs:
        LocalPipelineExecutor(
            [JsonlReader(folder), *filters(tokenizer), JsonlWriter(output, compression=None)],
            tasks=len(os.listdir(folder)),
            workers=int(workers),
            logging_dir=logs,
        ).run()
    return {}


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    print(json.dumps({"step": step, "run": run}[command](*rest)))
