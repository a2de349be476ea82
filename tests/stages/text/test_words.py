"""Words of languages with and without spaces, sentences, paragraphs, n-grams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import MeCab
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.stages.text.words import WITHOUT_SPACES, get_ngrams, get_paragraphs, get_sentences, get_word_splitter

TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("日本語かな 我们ไทย a\n\0")))


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", " one  two\n", ["one", "two"]),
        ("xx", "日本語 です", ["日本語", "です"]),
        ("zh", "我来到北京清华大学 hello", ["我", "来到", "北京", "清华大学", " ", "hello"]),
        ("zh-Hant", "我 你", ["我", " ", "你"]),
        ("ZH_cn", "我", ["我"]),
        ("ja", "すもももももももものうち", ["すもも", "も", "もも", "も", "もも", "の", "うち"]),
        ("ja-JP", "東京 大阪", ["東京", "大阪"]),
        ("th", "ภาษาไทยเป็นภาษา สวัสดี\nครับ", ["ภาษาไทย", "เป็น", "ภาษา", "สวัสดี", "ครับ"]),
    ],
)
def test_words(language: str, text: str, words: list[str]) -> None:
    assert get_word_splitter(language)(text) == words


@pytest.mark.parametrize("language", [*WITHOUT_SPACES, "en"])
@settings(deadline=None)
@given(text=TEXTS)
@example(text="")
@example(text="\0")
@example(text="a\0b\u3000日本")
@example(text="e\u0301 שלום\u200f")
def test_words_are_pieces_of_the_text_in_order(language: str, text: str) -> None:
    at = 0
    for word in get_word_splitter(language)(text):
        assert word
        at = text.index(word, at) + len(word)


@settings(deadline=None)
@given(text=TEXTS.map(lambda text: text.replace("\0", "").replace("\u3000", "").strip()))
def test_japanese_words_are_the_surface_forms_of_mecab(text: str) -> None:
    """MeCab's full output names a word of white space by another form, and ends at a NUL."""
    parsed = MeCab.Tagger().parse(text).split("\n")
    surfaces = [line.split("\t")[0] for line in parsed if line and line != "EOS"]
    assert get_word_splitter("ja")(text) == surfaces


@pytest.mark.parametrize("language", [*WITHOUT_SPACES, "en"])
@pytest.mark.parametrize("unit", ["a", "日本語", "ไทย", "我们\n", "a\0"])
def test_very_long_texts_are_split_to_their_end(language: str, unit: str) -> None:
    text = unit * 70_000
    words = get_word_splitter(language)(text)
    kept = {"zh": text, "ja": "".join(text.replace("\0", "").split())}.get(language, "".join(text.split()))
    assert "".join(words) == kept


def test_threads_do_not_disturb_each_other() -> None:
    texts = ["日本語の文章です。", "東京都に住んでいます。", "すもももももももものうち"] * 100
    split = get_word_splitter("ja")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(split, texts)) == [split(text) for text in texts]


def test_pieces() -> None:
    text = "one\n\n two\n \n\nthree\nfour"
    assert get_paragraphs(text) == ["one", " two\n ", "three\nfour"]
    assert get_sentences(text) == ["one", " two", "three", "four"]
    assert get_ngrams(["a", "b", "c", "d"], 3) == [("a", "b", "c"), ("b", "c", "d")]
    assert get_ngrams(["a"], 2) == []
