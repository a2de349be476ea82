"""The script of characters and texts."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.kernels.scripts import NO_SCRIPT, SCRIPT_NAMES, dominant_scripts, script_of, script_shares

LETTERS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("aZéßжΩ語かカ한ไअ\U00020000\U00010330٣1 .\u0301👩\u200d"),
    )
)
TEXTS = st.lists(LETTERS, max_size=6)


@pytest.mark.parametrize(
    ("characters", "script"),
    [
        *[("azAZéßŁ", "Latn"), ("жЇ", "Cyrl"), ("Ωά", "Grek"), ("語\U00020000", "Hani"), ("かゝ", "Hira")],
        *[("カｶ", "Kana"), ("한ᄀ", "Hang"), ("ไ", "Thai"), ("अ", "Deva"), ("ש", "Hebr"), ("ع", "Arab")],
        *[("\U00010330", "Goth"), ("12² \n\0.,!?„👩\u0301\u200d\uffff\U0010ffff", NO_SCRIPT)],
    ],
)
def test_script_of_a_character(characters: str, script: str) -> None:
    assert {script_of(character) for character in characters} == {script}


def test_letters_are_named_after_their_script() -> None:
    """Unicode's names of letters begin with the script: a check of the table against an independent one."""
    named = [
        (code, name.upper()) for code, name in SCRIPT_NAMES.items() if name in ("Latin", "Cyrillic", "Greek", "Thai")
    ]
    for code, name in named:
        letters = [c for c in map(chr, range(0x3000)) if unicodedata.name(c, "").startswith(f"{name} SMALL LETTER")]
        assert {script_of(letter) for letter in letters} <= {code}


def plainly_dominant(text: str) -> tuple[str, float]:
    counts = Counter(script for script in map(script_of, text) if script != NO_SCRIPT)
    if not counts:
        return NO_SCRIPT, 0.0
    script = min(counts, key=lambda code: (-counts[code], code))
    return script, counts[script] / counts.total()


@settings(deadline=None)
@given(texts=TEXTS)
@example(texts=["", "\0", "aж", "жa", "語" * 3 + "か" * 3, "\u200f שלום"])
def test_dominant_script_is_the_commonest(texts: list[str]) -> None:
    codes, shares = dominant_scripts(pa.array(texts, pa.string()))
    assert list(zip(codes.to_pylist(), shares.tolist(), strict=True)) == [plainly_dominant(text) for text in texts]


def test_chunks_slices_and_nulls() -> None:
    whole = pa.array(["not seen", "два", None, "abc", "語"], pa.large_string())
    column = pa.chunked_array([whole.slice(1, 2), whole.slice(0, 0), whole.slice(3)])
    assert dominant_scripts(column)[0].to_pylist() == ["Cyrl", NO_SCRIPT, "Latn", "Hani"]
    assert script_shares(column, ["Jpan", "Cyrl"]).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert len(dominant_scripts(pa.chunked_array([], pa.string()))[0]) == 0
