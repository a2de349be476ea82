"""Runs in NeMo Curator's environment: every filter (or modifier) over every document, one by one.

    python nemo_filters.py CORPUS.parquet RESULT.parquet BEGIN END [--modifiers] [--hash-order-only]

Writes a row for each of the documents BEGIN..END: per filter ``LABEL|score``, ``LABEL|keep`` and ``LABEL|error`` (what
was raised), per modifier ``LABEL|text`` and ``LABEL|error``. Prints, as JSON, the CPU seconds of each, and the classes
of the peer that peers/operations.py does not know.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import time
import warnings
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from operations import FILTERS, MODIFIERS, NOT_COMPARED, Operation


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("result")
    parser.add_argument("begin", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--modifiers", action="store_true")
    parser.add_argument("--hash-order-only", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # BeautifulSoup warns of texts that look like a path; ast of odd escapes
    package = "nemo_curator.stages.text." + ("modifiers" if arguments.modifiers else "filters")
    operations = MODIFIERS if arguments.modifiers else FILTERS
    if arguments.hash_order_only:
        operations = [operation for operation in operations if operation.follows_hash_seed]
    table = pq.read_table(arguments.corpus, columns=["text"])
    texts = table["text"].slice(arguments.begin, arguments.end - arguments.begin).to_pylist()
    columns: dict[str, pa.Array] = {}
    seconds: dict[str, float] = {}
    missing: dict[str, str] = {}
    for operation in operations:
        try:
            cls = getattr(importlib.import_module(f"{package}.{operation.module}"), operation.name)
            built = cls(**operation.parameters, **own_files(operation))
        except (ImportError, AttributeError, TypeError, ValueError, OSError) as e:
            missing[operation.label] = repr(e)
            continue
        apply = modify if arguments.modifiers else score
        columns |= apply(operation, built, texts, seconds)
    pq.write_table(pa.table(columns), arguments.result)
    known = {operation.name for operation in [*FILTERS, *MODIFIERS]} | set(NOT_COMPARED)
    unknown = sorted(classes_of(importlib.import_module(package)) - known)
    print(json.dumps({"seconds": seconds, "missing": missing, "unknown": unknown}))


def own_files(operation: Operation) -> dict[str, str]:
    """Parameters that name a file of the peer's; its default looks for it in the working directory."""
    if operation.name != "PerExtensionFilter":
        return {}
    (root,) = importlib.import_module("nemo_curator").__path__
    return {"metadata_file": f"{root}/utils/code_meta.csv"}


def score(operation: Operation, built: Any, texts: list[str], seconds: dict[str, float]) -> dict[str, pa.Array]:
    scores: list[float | None] = []
    kept: list[bool | None] = []
    errors: list[str | None] = []
    began = time.process_time()
    for text in texts:
        value = keep = error = None
        try:
            value = built.score_document(text)
            keep = bool(built.keep_document(value))
        except Exception as e:  # noqa: BLE001 - whatever the peer raises is a result
            error = type(e).__name__
        scores.append(None if value is None else float(value))
        kept.append(keep)
        errors.append(error)
    seconds[operation.label] = time.process_time() - began
    return {
        f"{operation.label}|score": pa.array(scores, pa.float64()),
        f"{operation.label}|keep": pa.array(kept, pa.bool_()),
        f"{operation.label}|error": pa.array(errors, pa.string()),
    }


def modify(operation: Operation, built: Any, texts: list[str], seconds: dict[str, float]) -> dict[str, pa.Array]:
    results: list[str | None] = []
    errors: list[str | None] = []
    began = time.process_time()
    for text in texts:
        result = error = None
        try:
            result = built.modify_document(text)
        except Exception as e:  # noqa: BLE001 - whatever the peer raises is a result
            error = type(e).__name__
        results.append(result)
        errors.append(error)
    seconds[operation.label] = time.process_time() - began
    return {
        f"{operation.label}|text": pa.array(results, pa.large_string()),
        f"{operation.label}|error": pa.array(errors, pa.string()),
    }


def classes_of(package: ModuleType) -> set[str]:
    """The names of all filters or modifiers that the peer has, as far as its modules can be imported."""
    base = getattr(package, "DocumentFilter", None) or package.DocumentModifier
    found: set[str] = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            module = importlib.import_module(info.name)
        except ImportError:
            continue
        found |= {n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, base)}
    return found


if __name__ == "__main__":
    main()
