"""Tokenising: WordPiece and byte-level byte pair encoding by native kernels, against the package ``tokenizers``.

    python benchmarks/bench_tokenize.py [--input FILE.parquet] [--megabytes 3] [--repeats 3]

Trains vocabularies on part of the documents (30,000 tokens for WordPiece, 50,000 for byte pairs), and tokenises others
with them: English ones, Chinese and Japanese ones, and those of all languages. Each figure is the CPU time of one core,
the shortest of some alternating runs, in which nothing is kept from the run before; the ids must be the same. Without
an input, the sample data set is used, so that the vocabularies are smaller.
"""

from __future__ import annotations

import argparse
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core for the package, too
os.environ["TAMIS_KERNELS"] = "wait"

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tamis.models.native_tokenizers import SPLITS
from tamis.models.tokenizers import _FastTokenizer, loaded_tokenizer
from tamis.quickstart import sample_files


def documents(path: str | None) -> list[tuple[str, str]]:
    """Texts and their languages, in a random order that is always the same."""
    if path is not None:
        table = pq.read_table(path, columns=["text", "lang"])
        found = list(zip(table["text"].to_pylist(), table["lang"].to_pylist(), strict=True))
    else:
        found = []
        for file in sample_files():
            if file.endswith(".jsonl"):
                with Path(file).open("rb") as lines:
                    for line in lines:
                        try:
                            row = json.loads(line)
                            found.append((str(row["text"]), str(row["lang"])))
                        except (ValueError, KeyError, TypeError):
                            continue  # the sample has broken lines on purpose
    random.Random(1).shuffle(found)
    return found


def word_pieces(texts: list[str]) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=30_000, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return made


def byte_pairs(texts: list[str], like_llama: bool) -> Tokenizer:
    made = Tokenizer(models.BPE(ignore_merges=like_llama))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if like_llama:
        pattern = next(pattern for pattern, (_, digits) in SPLITS.items() if digits == 3)
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    trainer = trainers.BpeTrainer(
        vocab_size=50_000,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


def some(found: list[tuple[str, str]], megabytes: float, languages: tuple[str, ...] = ()) -> list[str]:
    """Texts of some languages, or of all."""
    texts: list[str] = []
    left = megabytes * 1e6
    for text, language in found:
        if left > 0 and (not languages or language.startswith(languages)):
            texts.append(text)
            left -= len(text.encode())
    return texts


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def compare(name: str, part: str, tokenizer: _FastTokenizer, inner: Tokenizer, texts: list[str], repeats: int) -> None:
    column = pa.array(texts, pa.large_string())
    native = tokenizer._native
    assert native is not None
    assert native.is_ready()
    times: dict[str, list[float]] = {"encode": [], "count": [], "package": []}
    for _ in range(repeats):
        native.kernel.forget()
        took, ids = cpu_seconds(lambda: tokenizer.encode_column(column, add_special_tokens=True))
        times["encode"].append(took)
        native.kernel.forget()
        took, counts = cpu_seconds(lambda: tokenizer.count_tokens(column, add_special_tokens=True))
        times["count"].append(took)
        took, encoded = cpu_seconds(lambda: inner.encode_batch_fast(texts))
        times["package"].append(took)
        assert ids.to_pylist() == [one.ids for one in encoded], "the ids differ"
        assert counts.tolist() == [len(one) for one in encoded]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    encode, count, package = (min(times[each]) for each in ("encode", "count", "package"))
    print(
        f"{name:<14}{part:<14}{megabytes:>6.1f} MB{megabytes / package:>9.1f}{megabytes / encode:>9.0f}"
        f"{megabytes / count:>9.0f}{package / encode:>9.1f} x{package / count:>9.1f} x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="Parquet file with the columns text and lang")
    parser.add_argument("--megabytes", type=float, default=3, help="of each group of texts")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    found = documents(arguments.input)
    trained, held_out = found[: len(found) // 8], found[len(found) // 8 :]
    training = [text for text, _ in trained]
    made = {
        "WordPiece": word_pieces(training),
        "GPT-2": byte_pairs(training, like_llama=False),
        "Llama 3": byte_pairs(training, like_llama=True),
    }
    parts = {
        "English": some(held_out, arguments.megabytes, ("en",)),
        "all languages": some(held_out, arguments.megabytes),
        "zh, ja": some(held_out, arguments.megabytes, ("zh", "ja")),
    }
    print(f"{'':<37}{'package':>9}{'encode':>9}{'count':>9}{'ratios':>11}")
    print(f"{'':<37}{'MB/s':>9}{'MB/s':>9}{'MB/s':>9}{'encode':>11}{'count':>11}")
    for name, inner in made.items():
        tokenizer = loaded_tokenizer(inner)
        assert isinstance(tokenizer, _FastTokenizer)
        for part, texts in parts.items():
            if texts:
                compare(name, part, tokenizer, inner, texts, arguments.repeats)


if __name__ == "__main__":
    main()
