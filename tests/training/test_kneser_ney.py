"""Modified Kneser-Ney smoothing is what its definition says, worked out here with dicts of words."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import PlanError
from tamis.kernels import native
from tamis.kernels.text_units import LINE_END, hash_units
from tamis.training.kneser_ney import discounts_of, estimate
from tamis.training.language_model import train_language_model

Probability = Callable[[str, tuple[str, ...]], float]

WORDS = list("abcdefgh")
CHANCE = random.Random(7)
LINES = [CHANCE.choices(WORDS, range(1, 9), k=n % 9 + 1) for n in range(80)]
OTHERS = [CHANCE.choices([*WORDS, "zz"], k=n % 8 + 1) for n in range(40)]


def counts_of(
    lines: list[list[str]], order: int
) -> tuple[list[Counter[tuple[str, ...]]], list[dict[tuple[str, ...], int]]]:
    """How often each n-gram occurs, and its count for smoothing."""
    raw: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(order + 1)]
    for line in lines:
        sentence = ("<s>", *line, "</s>")
        for n in range(1, order + 1):
            raw[n].update(sentence[i : i + n] for i in range(len(sentence) - n + 1))
    adjusted: list[dict[tuple[str, ...], int]] = [{}]
    for n in range(1, order + 1):
        left: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for ngram in raw[n + 1] if n < order else ():
            left[ngram[1:]].add(ngram[0])
        is_plain = n == order
        adjusted.append({g: c if is_plain or g[0] == "<s>" else len(left[g]) for g, c in raw[n].items()})
    adjusted[1].pop(("<s>",))
    return raw, adjusted


def defined(lines: list[list[str]], order: int, min_counts: list[int]) -> tuple[Probability, list[str]]:
    raw, adjusted = counts_of(lines, order)
    discounts = [discounts_of(np.array(list(each.values()))) if each else (0.0, 0.0, 0.0) for each in adjusted]
    vocabulary = [*(ngram[0] for ngram in adjusted[1]), "<unk>"]

    def likely(word: str, context: tuple[str, ...]) -> float:
        n = len(context) + 1
        below = 1 / len(vocabulary) if n == 1 else likely(word, context[1:])
        after = {g: c for g, c in adjusted[n].items() if g[:-1] == context}
        total = sum(after.values())
        if not total:
            return below
        share = {g: c - min(c, discounts[n][min(c, 3) - 1]) for g, c in after.items()}
        kept = {g: s / total for g, s in share.items() if n == 1 or raw[n][g] >= min_counts[n - 1]}
        return kept.get((*context, word), 0.0) + (1 - sum(kept.values())) * below

    return likely, vocabulary


def log_of(line: list[str], likely: Probability, order: int, known: list[str]) -> float:
    sentence = ["<s>", *(word if word in known else "<unk>" for word in line), "</s>"]
    return sum(
        math.log10(likely(sentence[i], tuple(sentence[max(0, i - order + 1) : i]))) for i in range(1, len(sentence))
    )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("order", "min_counts"), [(1, [1]), (2, [1, 1]), (3, [1, 1, 2]), (4, [1, 2, 2, 3])])
def test_scores_are_those_of_the_definition(order: int, min_counts: list[int], exact: bool) -> None:
    likely, known = defined(LINES, order, min_counts)
    hashes, _ = hash_units(pa.array(["\n".join(map(" ".join, LINES))]), "word", line_marks=True)
    table = estimate(hashes, order, min_counts=min_counts, exact=exact).table
    logs, counts, unknown = table.score(*hash_units(pa.array(list(map(" ".join, OTHERS))), "word", line_marks=True))
    assert logs.tolist() == pytest.approx([log_of(line, likely, order, known) for line in OTHERS])
    assert counts.tolist() == [len(line) + 1 for line in OTHERS]
    assert unknown.tolist() == [line.count("zz") for line in OTHERS]


@pytest.mark.parametrize("context", ["", "a", "a b", "zz c"])
def test_probabilities_after_a_context_add_up_to_one(context: str) -> None:
    hashes, _ = hash_units(pa.array(["\n".join(map(" ".join, LINES))]), "word", line_marks=True)
    table = estimate(hashes, 3, min_counts=[1, 1, 2], exact=True).table
    before, count = hash_units(pa.array([context]), "word")
    following = [*hash_units(pa.array([" ".join([*WORDS, "zz"])]), "word")[0], np.uint64(LINE_END)]
    start = float(table.score(before, count)[0][0])
    logs = [float(table.score(np.append(before, unit), count + 1)[0][0]) for unit in following]
    assert sum(10 ** (log - start) for log in logs) == pytest.approx(1)


def test_the_kernel_gives_what_the_definition_gives() -> None:
    hashes, _ = hash_units(pa.array(["\n".join(map(" ".join, LINES))]), "word", line_marks=True)
    for exact in (True, False):
        table = estimate(hashes, 4, exact=exact).table
        units = hash_units(pa.array([*map(" ".join, OTHERS), "", "\n".join(map(" ".join, OTHERS))]), "word", True)
        found = [part.tolist() for part in table.score(*units)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "load", lambda name: None)
            assert [part.tolist() for part in table.score(*units)] == found


def test_rare_units_count_as_unknown() -> None:
    lines = "a b\n" * 5 + "rare a\n"
    hashes, _ = hash_units(pa.array([lines]), "word", line_marks=True)
    table = estimate(hashes, 2, min_unit_count=2).table
    logs, _, unknown = table.score(*hash_units(pa.array(["rare a", "never a"]), "word", line_marks=True))
    assert logs[0] == logs[1]
    assert unknown.tolist() == [1, 1]


def test_counts_that_decrease_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="must not decrease"):
        train_language_model("none", str(tmp_path / "m"), min_counts=[1, 3, 2])
