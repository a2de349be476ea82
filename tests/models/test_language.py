"""Language identification with the built-in model."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pycld2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tamis.kernels.utf8 import Utf8
from tamis.models import language
from tamis.models.fasttext import ends_within
from tamis.models.language import UNKNOWN, built_in_languages, load_language_model, matches_language
from tamis.quickstart import sample_files

SENTENCES = {
    "en": "The library is open every day of the week, except for Sunday afternoons.",
    "de": "Die Bibliothek ist jeden Tag der Woche geöffnet, außer am Sonntagnachmittag.",
    "fr": "La bibliothèque est ouverte tous les jours de la semaine, sauf le dimanche après-midi.",
    "ru": "Библиотека открыта каждый день недели, кроме воскресенья после обеда.",
    "he": "הספרייה פתוחה בכל יום בשבוע, למעט אחר הצהריים של יום ראשון.",
    "ar": "المكتبة مفتوحة كل يوم من أيام الأسبوع، ما عدا بعد ظهر يوم الأحد.",
    "ja": "図書館は日曜日の午後を除いて、毎日開いています。",
    "zh": "图书馆每天都开放。星期日下午除外。",
    "zh-Hant": "圖書館每天都開放。星期日下午除外。這裡還有兒童閱覽區與學習資料。",
    "th": "ห้องสมุดเปิดทุกวันในสัปดาห์ ยกเว้นบ่ายวันอาทิตย์",
    "und-Goth": "𐌸𐌹𐌿𐌳𐌰𐌽𐍃",
}
ODD = [
    "",
    "  \n",
    "\0",
    "\x07\x7f\x85\x9f",
    "\ufdd0\ufffe\uffff",
    "\U0001fffe\U0010ffff",
    "42 + 1 = 43",
    "👩\u200d🚀",
    "\u0301",
]


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_language_of_a_sentence(language: str, text: str) -> None:
    codes, certain = load_language_model().identify(pa.array([text]))
    assert codes.to_pylist() == [language]
    assert 0.8 < certain[0] <= 1


def test_text_without_language_is_undetermined() -> None:
    codes, certain = load_language_model().identify(pa.array([*ODD, None]))
    assert set(codes.to_pylist()) == {UNKNOWN}
    assert certain.tolist() == [0.0] * (len(ODD) + 1)


@pytest.mark.parametrize("dirt", ["\0", "\x1b[0m", "\x85", "\ufdd0", "\uffff", "\U0005fffe"])
def test_characters_that_the_model_refuses_do_no_harm(dirt: str) -> None:
    dirty = SENTENCES["de"].replace(" ", f" {dirt} ")
    with pytest.raises(pycld2.error):
        pycld2.detect(dirty.encode())
    assert load_language_model().identify(pa.array([dirty]))[0].to_pylist() == ["de"]


@settings(deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8), max_bytes=st.integers(1, 20))
@example(texts=ODD, max_bytes=3)
def test_any_text_has_a_known_code(texts: list[str], max_bytes: int) -> None:
    column = pa.array(texts, pa.string())
    for model in (load_language_model(), load_language_model(max_bytes=max_bytes)):
        codes, certain = model.identify(column)
        assert set(codes.to_pylist()) <= built_in_languages()
        assert len(certain) == len(texts)
        assert ((certain >= 0) & (certain <= 1)).all()


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8), max_bytes=st.integers(1, 20))
@example(texts=["né", "日本", "👩👩"], max_bytes=4)
def test_texts_are_cut_between_characters(texts: list[str], max_bytes: int) -> None:
    column = Utf8.from_arrow(pa.array(texts, pa.string()))
    lengths = (ends_within(column, max_bytes) - column.offsets[:-1]).tolist()
    expected = [len(text.encode()[:max_bytes].decode("utf-8", "ignore").encode()) for text in texts]
    assert lengths == expected


def test_only_the_beginning_is_looked_at() -> None:
    text = SENTENCES["en"] + " " + SENTENCES["ru"] * 20
    assert load_language_model(max_bytes=len(SENTENCES["en"])).identify(pa.array([text]))[0].to_pylist() == ["en"]
    assert load_language_model(max_bytes=None).identify(pa.array([text]))[0].to_pylist() == ["ru"]
    with pytest.raises(ValueError, match="max_bytes=0"):
        load_language_model(max_bytes=0)


def test_threads_do_not_disturb_each_other() -> None:
    column = pa.array([*SENTENCES.values(), *ODD] * 20)
    model = load_language_model()
    alone = model.identify(column)[0].to_pylist()
    with ThreadPoolExecutor(4) as pool:
        assert [codes.to_pylist() for codes, _ in pool.map(model.identify, [column] * 8)] == [alone] * 8


def documents() -> list[dict[str, str]]:
    """Documents of the sample, with the languages they are said to be in."""
    (file,) = [file for file in sample_files() if file.endswith("docs-world-2.jsonl.gz")]
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def right(codes: pa.Array, rows: list[dict[str, str]]) -> int:
    return sum(matches_language(code, row["lang"]) for code, row in zip(codes.to_pylist(), rows, strict=True))


def one_by_one(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[pa.Array, NDArray[np.float64]]:
    """What the package says of each text."""
    with monkeypatch.context() as patch:
        patch.setattr(language, "cld2_tables", lambda: None)
        return load_language_model().identify(pa.array(texts, pa.string()))


def test_documents_have_the_language_that_the_package_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents()
    texts = [row["text"] for row in rows]
    codes, certain = load_language_model().identify(pa.array(texts))
    theirs, shares = one_by_one(texts, monkeypatch)
    same = np.asarray(pc.equal(codes, theirs))
    assert same.mean() > 0.99
    assert np.abs(certain - shares)[same].mean() < 0.04
    assert right(codes, rows) >= right(theirs, rows) - 2


def test_sentences_have_the_language_that_the_package_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*SENTENCES.values(), *ODD, *(row["text"][:60] for row in documents())]
    codes, certain = load_language_model().identify(pa.array(texts))
    theirs, shares = one_by_one(texts, monkeypatch)
    assert codes.to_pylist() == theirs.to_pylist()
    assert certain.tolist() == shares.tolist()


def test_a_text_in_two_languages_is_not_certain() -> None:
    text = f"{SENTENCES['en']} " * 12 + f"{SENTENCES['de']} " * 10
    codes, certain = load_language_model().identify(pa.array([text]))
    assert codes.to_pylist() == ["en"]
    assert 0.4 < certain[0] < 0.7


def test_a_text_has_the_same_language_in_any_company() -> None:
    column = pa.array([row["text"] for row in documents()[:60]])
    model = load_language_model()
    codes, certain = model.identify(column)
    alone = [model.identify(column.slice(row, 1)) for row in range(len(column))]
    assert [code.to_pylist() for code, _ in alone] == [[code] for code in codes.to_pylist()]
    assert [share.tolist() for _, share in alone] == [[share] for share in certain.tolist()]


def test_chunks_and_slices() -> None:
    whole = pa.array(["not seen", SENTENCES["fr"], None, SENTENCES["ja"]], pa.large_string())
    column = pa.chunked_array([whole.slice(1, 1), whole.slice(0, 0), whole.slice(2)])
    assert load_language_model().identify(column)[0].to_pylist() == ["fr", UNKNOWN, "ja"]


def test_most_of_the_sample_is_in_the_language_it_is_said_to_be_in() -> None:
    """The sample has dirt and documents that are mostly code, so not all of it."""
    rows = documents()
    codes, _ = load_language_model().identify(pa.array([row["text"] for row in rows]))
    assert right(codes, rows) / len(rows) > 0.9
