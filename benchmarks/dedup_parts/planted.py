"""Real documents with planted near-duplicates: what is similar to what, and how similar, is then measured exactly."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["Planted", "plant", "read_documents"]

EDITS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05)
KEPT = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6)
WRAPPED = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5)
MOVED = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True)
class Planted:
    """Documents, and for each the number of the one it was made of, and how.

    Args:
        texts: The documents.
        families: The number of the original; documents of one family were made of the same one.
        kinds: What was done to it: ``"original"``, ``"edited"``, ``"cut"``, ``"wrapped"`` or ``"moved"``.
    """

    texts: list[str]
    families: np.ndarray
    kinds: list[str]


def read_documents(path: str, seed: int = 0, least: int = 800, most: int = 20_000) -> list[str]:
    """The documents of a Parquet file whose texts have between so many bytes, in a random order."""
    column = pq.read_table(path, columns=["text"])["text"]
    lengths = pc.binary_length(column)
    column = column.filter(pc.and_(pc.greater_equal(lengths, least), pc.less_equal(lengths, most)))
    order = np.random.default_rng(seed).permutation(len(column))
    return column.take(pa.array(order)).to_pylist()


def plant(documents: list[str], originals: int, seed: int = 0) -> Planted:
    """Take so many documents as they are, and after each some changed copies of it, of every kind."""
    draw = random.Random(seed)
    words = [word for text in documents[:200] for word in text.split()]
    texts, families, kinds = [], [], []
    for family, text in enumerate(documents[:originals]):
        boilerplate = documents[originals + family % (len(documents) - originals)]
        made: list[tuple[str, str]] = [("original", text)]
        made += [("edited", _edited(text, rate, words, draw)) for rate in draw.sample(EDITS, 3)]
        made += [("cut", text[: int(share * len(text))]) for share in draw.sample(KEPT, 2)]
        made += [("wrapped", _wrapped(text, boilerplate, share, draw)) for share in draw.sample(WRAPPED, 2)]
        made += [("moved", _moved(text, share, draw)) for share in draw.sample(MOVED, 1)]
        for kind, content in made:
            texts.append(content)
            families.append(family)
            kinds.append(kind)
    return Planted(texts, np.array(families), kinds)


def _edited(text: str, rate: float, words: list[str], draw: random.Random) -> str:
    """Some words are replaced, left out or added."""
    changes: list[Callable[[str], str]] = [
        lambda word: draw.choice(words),
        lambda word: "",
        lambda word: f"{word} {draw.choice(words)}",
    ]
    pieces = re.split(r"(\s+)", text)
    for place in range(0, len(pieces), 2):
        if draw.random() < rate:
            pieces[place] = draw.choice(changes)(pieces[place])
    return "".join(pieces)


def _wrapped(text: str, other: str, share: float, draw: random.Random) -> str:
    """Text of another document before and after, together so long as a share of the text."""
    added = other[: int(share * len(text))]
    cut = draw.randrange(len(added) + 1)
    return f"{added[:cut]}\n{text}\n{added[cut:]}"


def _moved(text: str, share: float, draw: random.Random) -> str:
    """Some sentences change places with each other."""
    sentences = _SENTENCE_END.split(text)
    chosen = [place for place in range(len(sentences)) if draw.random() < share]
    shuffled = draw.sample(chosen, len(chosen))
    moved = list(sentences)
    for place, other in zip(chosen, shuffled, strict=True):
        moved[place] = sentences[other]
    return "\n".join(moved)
