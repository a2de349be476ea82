"""Tokenizers of the kinds that the kernels know, with vocabularies learned from the sample that comes with tamis."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import tamis.quickstart

__all__ = ["BERT_SETTINGS", "GPT4_PATTERN", "KINDS", "bert", "byte_level", "sample_texts", "tokenizer_of"]

SAMPLE = Path(tamis.quickstart.__file__).parent / "sample"
GPT4_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BERT_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"lowercase": False},
    {"strip_accents": False},
    {"lowercase": False, "strip_accents": True, "clean_text": False},
    {"clean_text": False, "handle_chinese_chars": False},
)


@functools.cache
def sample_texts() -> tuple[str, ...]:
    """Documents in many languages, and some English ones."""
    lines = (SAMPLE / "docs-world-1.jsonl").read_bytes().splitlines()
    with gzip.open(SAMPLE / "docs-en.jsonl.gz") as file:
        lines += [next(file) for _ in range(150)]
    texts: list[str] = []
    for line in lines:
        with contextlib.suppress(ValueError):  # some lines are damaged on purpose
            texts.append(json.loads(line)["text"])
    return tuple(texts)


@functools.cache
def _trained_bert(settings: str) -> str:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**json.loads(settings))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        sample_texts(), trainers.WordPieceTrainer(vocab_size=5000, special_tokens=special, show_progress=False)
    )
    return made.to_str()


def bert(longest_word: int = 100, **settings: Any) -> Tokenizer:
    """WordPiece with these settings of the ``BertNormalizer``."""
    config = json.loads(_trained_bert(json.dumps(settings)))
    config["model"]["max_input_chars_per_word"] = longest_word
    made = Tokenizer.from_str(json.dumps(config))
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return made


@functools.cache
def _trained_byte_level(pattern: str | None) -> str:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = _splitter(pattern)
    trainer = trainers.BpeTrainer(
        vocab_size=5000,
        special_tokens=["<s>", "</s>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(sample_texts(), trainer)
    return made.to_str()


def _splitter(pattern: str | None) -> Any:
    if pattern is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(pattern: str | None = None, **model: Any) -> Tokenizer:
    """Byte-level byte pair encoding: that of GPT-2, or with another regular expression; with settings of the model."""
    config = json.loads(_trained_byte_level(pattern))
    config["model"].update(model)
    return Tokenizer.from_str(json.dumps(config))


def _roberta() -> Tokenizer:
    made = byte_level()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return made


def _llama() -> Tokenizer:
    made = byte_level(GPT4_PATTERN.replace("NUMBER", r"\p{N}{1,3}"), ignore_merges=True)
    template = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def _qwen() -> Tokenizer:
    made = byte_level(GPT4_PATTERN.replace("NUMBER", r"\p{N}"))
    made.normalizer = normalizers.NFC()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def _whole_texts() -> Tokenizer:
    made = byte_level()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    **{f"bert {settings}": functools.partial(bert, **settings) for settings in BERT_SETTINGS},
    "bert, short words": functools.partial(bert, longest_word=4),
    "gpt2": byte_level,
    "roberta": _roberta,
    "llama3": _llama,
    "qwen2": _qwen,
    "numbers": lambda: byte_level(GPT4_PATTERN.replace("NUMBER", r"\p{N}+")),
    "whole texts": _whole_texts,
}
"""How each kind of tokenizer is made."""


@functools.cache
def tokenizer_of(kind: str) -> Tokenizer:
    """A tokenizer of one of :data:`KINDS`; not to be changed."""
    return KINDS[kind]()
