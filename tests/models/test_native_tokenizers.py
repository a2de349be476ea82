"""The kernels that tokenise give the ids of the package ``tokenizers``, for any text."""

from __future__ import annotations

import functools
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tamis.kernels.tokens import LONGEST_PIECE
from tamis.models.native_tokenizers import NativeTokenizer, native_tokenizer
from tamis.models.tokenizers import _FastTokenizer
from tests.support.property_tests import examples
from tests.support.vocabularies import GPT4_PATTERN, KINDS, bert, byte_level, sample_texts, tokenizer_of

PIECES = (
    *(
        "a",
        "the ",
        " The",
        "don't",
        "we'LL",
        "'s",
        "'\u017f",
        "'K",
        "''",
        "'",
        "it's 12345 o'clock",
        "  ",
        "   \n",
        "\r",
    ),
    *(
        "\n\n",
        "\r\n",
        "\t",
        "\v",
        "\x00",
        "\x1c",
        "\x7f",
        "\x85",
        "\xa0",
        "\u3000",
        "\u2028",
        "\u200d",
        "\ufeff",
        "\ufffd",
    ),
    *(
        "1",
        "1234567",
        "٣٤٥",
        "½",
        "Ⅷ",
        "日本語",
        "中",
        "\u3007",
        "ｱ",
        "がか\u3099",
        "한국어",
        "\u1112\u1161\u11ab",
        "ไทยกำลัง",
        "नमस्ते",
    ),
    *(
        "é",
        "e\u0301",
        "e\u0323\u0301",
        "e\u0301\u0323",
        "ñ\u0323",
        "İ",
        "ß",
        "ﬁ",
        "Å",
        "\u0344",
        "\u09c7\u09be",
        "\u0345",
    ),
    *("Привет", "Ёлка", "العَرَبِيَّة", "עִבְרִית", "😀", "👩‍👩‍👧", "🇩🇪", "\U0001d4b3", "\U0001d15e", "\ue000", "\U000f0000"),
    *("[MASK]", "[CLS", "<|end|>", "<s>", "</s", "##a", "...", "---", "x" * 40, "ab" * 60, "!?", "#", "_", "\u302e"),
)
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
    st.lists(st.one_of(st.sampled_from(PIECES), st.characters(exclude_categories=["Cs"])), max_size=20).map("".join),
    st.text(st.sampled_from("ab '\n\r\té1日.\u0301"), max_size=50),
)


def wrapped(inner: Tokenizer) -> _FastTokenizer:
    return _FastTokenizer("made here", Tokenizer.from_str(inner.to_str()), None)


def native(inner: Tokenizer) -> NativeTokenizer:
    made = native_tokenizer(inner)
    assert made is not None
    assert made.is_ready()
    return made


@functools.cache
def ready(kind: str) -> _FastTokenizer:
    """A tokenizer whose tables are made once, and which has seen some texts."""
    return wrapped(tokenizer_of(kind))


def check(
    inner: Tokenizer, texts: list[str], add_special_tokens: bool = False, tokenizer: _FastTokenizer | None = None
) -> NativeTokenizer:
    """Compare ids and counts with those of the package."""
    tokenizer = tokenizer or wrapped(inner)
    expected = [one.ids for one in inner.encode_batch(texts, add_special_tokens=add_special_tokens)]
    column = pa.array(texts, pa.string())
    assert tokenizer.encode_column(column, add_special_tokens=add_special_tokens).to_pylist() == expected
    counts = tokenizer.count_tokens(column, add_special_tokens=add_special_tokens)
    assert counts.tolist() == [len(ids) for ids in expected]
    assert tokenizer._native is not None
    return tokenizer._native


@functools.cache
def cutting(kind: str) -> Tokenizer:
    """A copy that may be changed."""
    return Tokenizer.from_str(tokenizer_of(kind).to_str())


def left_out(tokenizer: NativeTokenizer, texts: list[str]) -> list[bool]:
    return tokenizer.tokenise(pa.array(texts, pa.string()), False, None, True).left_out.tolist()


@pytest.mark.parametrize("kind", KINDS)
@examples(300)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=8), add_special_tokens=st.booleans())
def test_ids_are_those_of_the_package(kind: str, texts: list[str], add_special_tokens: bool) -> None:
    # The second time the tokens of pieces come from those that are kept.
    check(tokenizer_of(kind), texts * 2, add_special_tokens, ready(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_real_texts_are_done_by_the_kernel(kind: str) -> None:
    texts = list(sample_texts()[::4])
    tokenizer = check(tokenizer_of(kind), texts)
    assert sum(left_out(tokenizer, texts)) <= len(texts) // 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_character(kind: str, step: int) -> None:
    """Each (or some of them) alone, beside letters, beside digits and spaces, and after an apostrophe."""
    some = [*range(0xD800), *range(0xE000, 0x33500), *range(0x3FF00, 0x40100), *range(0xE0000, 0xE0210), 0x10FFFF]
    texts = []
    for first in range(0, len(some), 8):
        characters = [chr(code_point) for code_point in some[first : first + 8]]
        texts.append(" ".join(f"{c} x{c}y '{c}1{c}, {c}{c}" for c in characters))
    check(tokenizer_of(kind), texts[::step], tokenizer=ready(kind))


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=6), most=st.integers(2, 12), add_special_tokens=st.booleans())
def test_texts_are_cut_as_the_package_does(kind: str, texts: list[str], most: int, add_special_tokens: bool) -> None:
    inner = cutting(kind)
    inner.enable_truncation(most)
    expected = [one.ids for one in inner.encode_batch(texts, add_special_tokens=add_special_tokens)]
    tokenizer = ready(kind)
    column = pa.array(texts, pa.string())
    cut = {"add_special_tokens": add_special_tokens, "max_tokens": most}
    assert tokenizer.encode_column(column, **cut).to_pylist() == expected
    assert tokenizer.count_tokens(column, **cut).tolist() == [len(ids) for ids in expected]


@pytest.mark.parametrize("kind", ["bert {}", "gpt2", "llama3"])
def test_long_texts_and_long_words(kind: str) -> None:
    inner = tokenizer_of(kind)
    texts = [
        "x" * 33,
        "x" * 5000,
        "ab" * 4000,
        "日本語" * 3000,
        " " * 6000,
        "=" * 3000 + "\n",
        "é" * 101,
        "abc " * 9000,
    ]
    assert not any(left_out(check(inner, texts), texts))
    long = ["a", "x" * (LONGEST_PIECE + 1), "b"]
    assert left_out(check(inner, long), long) == [False, kind != "bert {}", False]


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("[NEW]", special=True),
        AddedToken("lower", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("é" * 40, normalized=False),
    ],
)
@pytest.mark.parametrize("kind", ["bert {}", "gpt2", "qwen2"])
def test_tokens_that_are_written_out_in_a_text(kind: str, token: AddedToken) -> None:
    inner = Tokenizer.from_str(tokenizer_of(kind).to_str())
    inner.add_tokens([token])
    texts = [
        "plain text",
        f"a  {token.content}  b",
        f"x{token.content}y{token.content}",
        token.content,
        "Word",
        "LOWER",
    ]
    tokenizer = check(inner, [*texts, "[MASK] <|end|>"])
    assert left_out(tokenizer, texts)[:4] == [False, True, True, True]


def test_many_added_tokens() -> None:
    inner = byte_level()
    inner.add_special_tokens([f"<|reserved_{i}|>" for i in range(250)])
    texts = [f"a <|reserved_{i}|> b" for i in range(0, 250, 50)] + ["a <| reserved_1|>", "<|end|>"]
    assert left_out(check(inner, texts), texts) == [True] * 5 + [False, True]


def test_texts_in_form_c_are_done_by_the_kernel() -> None:
    inner = tokenizer_of("qwen2")
    composed = ["naïve café", "ไทยกำลัง", "বাংলা লেখা", "العَرَبِيَّة", "한국어", "ệ ǖ", "नमस्ते"]
    others = ["e\u0301", "n\u0303\u0323", "\u1112\u1161\u11ab", "\u212b", "\u09c7\u09be"]
    tokenizer = check(inner, [*composed, *others])
    assert left_out(tokenizer, [*composed, *others]) == [False] * len(composed) + [True] * len(others)


def test_nulls_slices_chunks_and_types() -> None:
    tokenizer = wrapped(tokenizer_of("bert {}"))
    texts = ["one", None, "two [MASK]", "", "the third"]
    expected = tokenizer.encode_column(pa.array(texts), add_special_tokens=True)
    assert expected.to_pylist()[1] == expected.to_pylist()[3] == [2, 3]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(["before", *texts, "after"], pa.string()).cast(kind).slice(1, 5)
        assert tokenizer.encode_column(column, add_special_tokens=True) == expected
        chunked = pa.chunked_array([column.slice(0, 2), column.slice(2, 0), column.slice(2)])
        assert tokenizer.encode_column(chunked, add_special_tokens=True) == expected
        assert tokenizer.count_tokens(chunked).tolist() == [
            len(ids) for ids in tokenizer.encode_column(column).to_pylist()
        ]
    empty = tokenizer.encode_column(pa.chunked_array([], pa.string()))
    assert empty.type == pa.large_list(pa.int32())
    assert (len(empty), tokenizer.count_tokens(pa.array([], pa.string())).tolist()) == (0, [])
    assert tokenizer.encode_column(pa.nulls(2)).to_pylist() == [[], []]


def test_bytes_that_are_not_utf8_are_an_error_as_before() -> None:
    tokenizer = wrapped(tokenizer_of("gpt2"))
    for wrong in (b"a \xff b", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80"):
        offsets = pa.py_buffer(np.array([0, len(wrong)], np.int32))
        column = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(wrong)])
        for read in (tokenizer.encode_column, tokenizer.count_tokens):
            with pytest.raises(UnicodeDecodeError):
                read(column)


def test_more_texts_than_are_collected_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.kernels.tokens._ROOM", 100)
    check(tokenizer_of("llama3"), list(sample_texts()[:20]), add_special_tokens=True)


def test_a_small_table_of_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.kernels.tokens._CACHE_BITS", 1)
    for kind in ("bert {}", "llama3"):
        check(tokenizer_of(kind), list(sample_texts()[:20]))


@pytest.mark.parametrize("kind", ["bert {}", "llama3"])
def test_threads_may_share_a_tokenizer(kind: str) -> None:
    tokenizer = wrapped(tokenizer_of(kind))
    columns = [pa.array(sample_texts()[i::6]) for i in range(6)]
    expected = [tokenizer.encode_column(column) for column in columns]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(tokenizer.encode_column, columns)) == expected
    assert pickle.loads(pickle.dumps(tokenizer)).encode_column(columns[0]) == expected[0]


def test_settings_of_older_files_are_understood() -> None:
    """Merges as one string each, and no setting that came later."""
    config = json.loads(tokenizer_of("gpt2").to_str())
    config["model"]["merges"] = [" ".join(pair) for pair in config["model"]["merges"]]
    del config["model"]["ignore_merges"]
    del config["pre_tokenizer"]["use_regex"]
    check(Tokenizer.from_str(json.dumps(config)), list(sample_texts()[:5]))


def changed(inner: Tokenizer, **parts: Any) -> Tokenizer:
    made = Tokenizer.from_str(inner.to_str())
    for name, part in parts.items():
        setattr(made, name, part)
    return made


OTHERS: dict[str, Any] = {
    "a normaliser in a sequence": lambda: changed(
        bert(), normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    ),
    "words split otherwise": lambda: changed(bert(), pre_tokenizer=pre_tokenizers.Whitespace()),
    "no normaliser": lambda: changed(bert(), normalizer=None),
    "an added token that is normalised": lambda: _with_token(bert(), AddedToken("Token", normalized=True)),
    "an added token that form C changes": lambda: _with_token(
        tokenizer_of("qwen2"), AddedToken("e\u0301", normalized=True)
    ),
    "another regular expression": lambda: byte_level(r"\w+|\W"),
    "a number of another kind": lambda: byte_level(GPT4_PATTERN.replace("NUMBER", r"\p{N}{1,2}")),
    "digits split before": lambda: changed(
        byte_level(),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]),
    ),
    "dropout": lambda: byte_level(dropout=0.5),
    "a lower-casing normaliser": lambda: changed(byte_level(), normalizer=normalizers.Lowercase()),
    "two templates": lambda: changed(
        byte_level(), post_processor=processors.Sequence([processors.TemplateProcessing("$A")] * 2)
    ),
    "no alphabet of bytes": lambda: changed(
        Tokenizer(models.BPE({"a": 0, "b": 1}, [])), pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False)
    ),
    "words": lambda: changed(
        Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")), pre_tokenizer=pre_tokenizers.WhitespaceSplit()
    ),
    "unigrams": lambda: Tokenizer(models.Unigram([("a", 0.0), ("b", -1.0)], 0, False)),
}


def _with_token(inner: Tokenizer, token: AddedToken) -> Tokenizer:
    made = changed(inner)
    made.add_tokens([token])
    return made


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_kernels_do_not_know_is_left_to_the_package(kind: str) -> None:
    inner = OTHERS[kind]()
    assert native_tokenizer(inner) is None
    if kind != "dropout":
        texts = ["a b a", "Token e\u0301", ""]
        assert wrapped(inner).encode_column(pa.array(texts)).to_pylist() == [
            inner.encode(text, add_special_tokens=False).ids for text in texts
        ]


def test_a_decoder_does_not_matter() -> None:
    assert native(changed(byte_level(), decoder=decoders.ByteLevel())).needles is not None


@pytest.mark.parametrize(("most", "add_special_tokens"), [(0, False), (1, True), (-3, False)])
def test_too_few_tokens_are_refused(most: int, add_special_tokens: bool) -> None:
    tokenizer = wrapped(tokenizer_of("bert {}"))
    with pytest.raises(ValueError, match=f"max_tokens={most}: must be at least"):
        tokenizer.encode_column(pa.array(["a"]), max_tokens=most, add_special_tokens=add_special_tokens)


def test_without_kernels_the_package_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = wrapped(tokenizer_of("gpt2"))
    column = pa.array(["it's one", None, "<|end|>"])
    expected = tokenizer.encode_column(column)
    monkeypatch.setattr("tamis.kernels.native.load", lambda name: None)
    assert tokenizer.encode_column(column) == expected
    assert tokenizer.count_tokens(column, max_tokens=2).tolist() == [2, 0, 1]
