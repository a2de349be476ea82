"""Which tokenizers of the package ``tokenizers`` the kernels of :mod:`tamis.kernels.tokens` can do the work of.

A tokenizer is taken only if every setting in its JSON is known here. Anything else stays with the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.needles import Needles, rows_with
from tamis.kernels.token_styles import GPT2, GPT4, ISOLATED, SEPARATOR, WHOLE, WORD
from tamis.kernels.token_tables import MOST_IDS, MOST_PAIRS, Crossings, Trie, pair_table
from tamis.kernels.tokens import NO_IDS, NO_LIMIT, BytePairs, PairRules, TokenIds, TokenKernel, WordPieces, WordRules
from tamis.models.tokenizer_characters import bert_characters, byte_characters

__all__ = ["SPLITS", "NativeTokenizer", "native_tokenizer"]

_NO_RANK: Final = 0xFFFFFFFF
_MOST_NEEDLES: Final = 16
_LONGEST_NEEDLE: Final = 64
_LONGEST_WORD: Final = 1 << 16

_BERT_SETTINGS: Final = {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}
_GPT4_BEGIN: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_GPT4_END: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLITS: Final[dict[str, tuple[int, int]]] = {
    _GPT2_PATTERN: (GPT2, 0),
    _GPT4_BEGIN + r"\p{N}{1,3}" + _GPT4_END: (GPT4, 3),  # GPT-4, Llama 3
    _GPT4_BEGIN + r"\p{N}" + _GPT4_END: (GPT4, 1),  # Qwen 2
    _GPT4_BEGIN + r"\p{N}+" + _GPT4_END: (GPT4, 0),
}
"""How texts are split and the most characters of a number, by regular expression."""


@dataclass(frozen=True)
class NativeTokenizer:
    """A tokenizer for a kernel.

    Args:
        kernel: It.
        needles: What the texts contain that a kernel must not tokenise: tokens that are written out.
        before: The ids that are put before a text, if special tokens are added.
        after: The ids that are put after it.
        begins_with_space: Whether a text that does not begin with a space gets one.
    """

    kernel: TokenKernel
    needles: Needles | None
    before: NDArray[np.int32]
    after: NDArray[np.int32]
    begins_with_space: bool = False

    def is_ready(self) -> bool:
        """Whether all kernels that it needs are compiled."""
        return self.kernel.is_ready() and (self.needles is None or native.load("needles") is not None)

    def tokenise(self, texts: pa.Array, add_special_tokens: bool, most_content: int | None, is_kept: bool) -> TokenIds:
        """The ids of each text, but for those that the package must do.

        Args:
            texts: An array of a type of strings.
            add_special_tokens: Whether to put the tokens around each text.
            most_content: The most tokens of each text, besides these.
            is_kept: Whether to keep the ids, or only to count them.
        """
        left_out = np.zeros(len(texts), np.bool_)
        if self.needles is not None:
            rows = rows_with(texts, self.needles)
            left_out[rows] = True
        if self.begins_with_space:
            texts = _with_space(texts)
        return self.kernel.tokenise(
            texts,
            left_out,
            before=self.before if add_special_tokens else NO_IDS,
            after=self.after if add_special_tokens else NO_IDS,
            limit=NO_LIMIT if most_content is None else most_content,
            is_kept=is_kept,
        )


def _with_space(texts: pa.Array) -> pa.Array:
    """Texts with a space at their begin, unless they begin with one or are empty."""
    texts = texts.cast(pa.large_string())
    has_space = pc.or_(pc.starts_with(texts, " "), pc.equal(texts, ""))
    space, nothing = (pa.scalar(text, pa.large_string()) for text in (" ", ""))
    return pc.if_else(has_space, texts, pc.binary_join_element_wise(space, texts, nothing))


class _UnsupportedError(Exception):
    """A setting that the kernels do not know."""


def native_tokenizer(inner: Any) -> NativeTokenizer | None:
    """The same tokenizer for a kernel; ``None`` if there is none.

    Args:
        inner: A ``tokenizers.Tokenizer``.
    """
    config: dict[str, Any] = json.loads(inner.to_str())
    try:
        before, after = _added_around(config["post_processor"])
        needles = _needles(config, inner)
        model = config["model"]
        if model["type"] == "WordPiece":
            return NativeTokenizer(_word_pieces(config, model), needles, before, after)
        if model["type"] == "BPE":
            kernel, begins_with_space = _byte_pairs(config, model)
            return NativeTokenizer(kernel, needles, before, after, begins_with_space)
    except (_UnsupportedError, KeyError):
        pass
    return None


def _require(*conditions: bool) -> None:
    if not all(conditions):
        raise _UnsupportedError


def _only(settings: Mapping[str, Any], *known: str) -> None:
    """Refuse settings of other names."""
    _require(set(settings) <= {"type", *known})


def _added_around(processor: Mapping[str, Any] | None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ids that are put before and after a text."""
    steps: Sequence[Mapping[str, Any]] = [] if processor is None else [processor]
    if processor is not None and processor["type"] == "Sequence":
        _only(processor, "processors")
        steps = processor["processors"]
    adding = [step for step in steps if step["type"] != "ByteLevel"]  # which changes places, not ids
    _require(len(adding) <= 1)
    if not adding:
        return NO_IDS, NO_IDS
    step = adding[0]
    if step["type"] in ("BertProcessing", "RobertaProcessing"):
        _only(step, "cls", "sep", "trim_offsets", "add_prefix_space")
        return np.array([step["cls"][1]], np.int32), np.array([step["sep"][1]], np.int32)
    _require(step["type"] == "TemplateProcessing")
    _only(step, "single", "pair", "special_tokens")
    around: list[list[int]] = [[]]
    for part in step["single"]:
        ((kind, what),) = part.items()
        if kind == "Sequence":
            _require(what["id"] == "A", len(around) == 1)
            around.append([])
        else:
            around[-1] += step["special_tokens"][what["id"]]["ids"]
    _require(len(around) == 2)
    return np.array(around[0], np.int32), np.array(around[1], np.int32)


def _needles(config: Mapping[str, Any], inner: Any) -> Needles | None:
    """What finds texts that may contain a token that was added to the vocabulary."""
    normalizer = config["normalizer"]
    contents: list[bytes] = []
    for token in config["added_tokens"]:
        content = token["content"]
        _require(bool(content))
        if token["normalized"] and normalizer is not None:
            _require(normalizer["type"] == "NFC", inner.normalizer.normalize_str(content) == content)
        contents.append(content.encode())
    if not contents:
        return None
    for size in range(_LONGEST_NEEDLE, 0, -1):
        begins = sorted({content[:size] for content in contents})
        if len(begins) <= _MOST_NEEDLES:
            return Needles.of(*([(0, byte, byte) for byte in begin] for begin in begins))
    raise _UnsupportedError


def _ids(vocabulary: Mapping[str, int]) -> Mapping[str, int]:
    numbers = vocabulary.values()
    _require(bool(vocabulary), len(set(numbers)) == len(vocabulary), min(numbers) >= 0, max(numbers) < MOST_IDS)
    return vocabulary


def _word_pieces(config: Mapping[str, Any], model: Mapping[str, Any]) -> WordPieces:
    _only(model, "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab")
    _require(config["pre_tokenizer"] == {"type": "BertPreTokenizer"}, config["normalizer"] is not None)
    settings = dict(config["normalizer"])
    _require(settings.pop("type") == "BertNormalizer", settings.keys() == _BERT_SETTINGS)
    vocabulary, prefix = _ids(model["vocab"]), model["continuing_subword_prefix"]
    unknown = vocabulary[model["unk_token"]]
    most = model["max_input_chars_per_word"]
    _require(most <= _LONGEST_WORD)
    characters = bert_characters(json.dumps(settings, sort_keys=True))
    kinds = characters.kinds
    for character in map(chr, range(33, 127)):
        _require(kinds[ord(character)] == (WORD if character.isalnum() else ISOLATED))
    _require(kinds[32] == SEPARATOR)
    whole = [(token.encode(), number, 0) for token, number in vocabulary.items() if token]
    inside = [
        (token.removeprefix(prefix).encode(), number, 1)
        for token, number in vocabulary.items()
        if token.startswith(prefix) and len(token) > len(prefix)
    ]
    mark_ids = np.full(len(kinds), unknown, np.int32)
    for code_point, mark in characters.marks.items():
        mark_ids[code_point] = vocabulary.get(mark, unknown) if most > 0 else unknown
    rules = WordRules(characters.forms, characters.pool, mark_ids, unknown, most)
    return WordPieces(_trie([*whole, *inside]), kinds, rules)


def _byte_pairs(config: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[BytePairs, bool]:
    _only(
        *(model, "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk"),
        *("byte_fallback", "ignore_merges", "vocab", "merges"),
    )
    _require(not model["dropout"], not model["continuing_subword_prefix"], not model["end_of_word_suffix"])
    _require(config["normalizer"] in (None, {"type": "NFC"}))
    _require(config["pre_tokenizer"] is not None)
    style, digits, begins_with_space = _splits(config["pre_tokenizer"])
    vocabulary = _ids(model["vocab"])
    alphabet = _byte_alphabet()
    _require(alphabet.keys() <= vocabulary.keys())  # then no text has an unknown character
    byte_ids = np.zeros(256, np.int32)
    for character, byte in alphabet.items():
        byte_ids[byte] = vocabulary[character]
    pairs, merged = _merges(model["merges"], vocabulary)
    byte_of = np.full(MOST_IDS, -1, np.int32)
    byte_of[byte_ids] = np.arange(256)
    of_bytes = np.flatnonzero((byte_of[pairs] >= 0).all(axis=1))
    left, right = byte_of[pairs[of_bytes]].T
    byte_ranks, two_byte_ids = np.full((256, 256), _NO_RANK, np.uint32), np.full((256, 256), -1, np.int32)
    byte_ranks[left, right], two_byte_ids[left, right] = of_bytes, merged[of_bytes]
    takes_whole = bool(model.get("ignore_merges"))
    tokens = [
        (bytes(alphabet[character] for character in token), number)
        for token, number in vocabulary.items()
        if token and alphabet.keys() >= set(token)
    ]
    whole = [(token, number, 0) for token, number in tokens if takes_whole]
    for token, number, _ in whole:
        if len(token) == 2:
            two_byte_ids[token[0], token[1]] = number
    characters = byte_characters(is_composed=config["normalizer"] is not None)
    rules = PairRules(
        *(
            Crossings.of(token for token, _ in tokens),
            characters.orders,
            style,
            digits,
            takes_whole,
            byte_ids,
            two_byte_ids.reshape(-1),
            byte_ranks.reshape(-1),
        ),
        *(pair_table(pairs), merged),
    )
    return BytePairs(_trie(whole), characters.kinds, rules), begins_with_space


def _merges(merges: Sequence[Any], vocabulary: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The pairs of ids by rank, and what each becomes."""
    _require(len(merges) < MOST_PAIRS)
    parts = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    pairs = np.array([(vocabulary[left], vocabulary[right]) for left, right in parts], np.int64).reshape(-1, 2)
    _require(len(np.unique(pairs[:, 0] << 32 | pairs[:, 1])) == len(pairs))
    return pairs, np.array([vocabulary[left + right] for left, right in parts], np.int32)


def _splits(settings: Mapping[str, Any]) -> tuple[int, int, bool]:
    """How texts are split, the most characters of a number, and whether a space is put before a text."""
    steps: Sequence[Mapping[str, Any]] = [settings]
    if settings["type"] == "Sequence":
        _only(settings, "pretokenizers")
        steps = settings["pretokenizers"]
    _require(len(steps) in (1, 2))
    last = steps[-1]
    _only(last, "add_prefix_space", "trim_offsets", "use_regex")
    _require(last["type"] == "ByteLevel")
    uses_regex = last.get("use_regex", True)
    if len(steps) == 1:
        return GPT2 if uses_regex else WHOLE, 0, last["add_prefix_space"]
    first = steps[0]
    _only(first, "pattern", "behavior", "invert")
    _require(first["type"] == "Split", first["behavior"] == "Isolated", not first["invert"])
    _require(not uses_regex, not last["add_prefix_space"], first["pattern"].keys() == {"Regex"})
    style, digits = SPLITS[first["pattern"]["Regex"]]
    return style, digits, False


def _byte_alphabet() -> dict[str, int]:
    """The bytes by the characters that stand for them in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _trie(tokens: Sequence[tuple[bytes, int, int]]) -> Trie:
    try:
        return Trie.of([token for token, _, _ in tokens], [i for _, i, _ in tokens], [root for _, _, root in tokens])
    except ValueError as e:
        raise _UnsupportedError from e
