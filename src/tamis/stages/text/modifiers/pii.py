"""A modifier that takes personal data and secrets out of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import did_you_mean
from tamis.kernels.needles import Needles, rows_with
from tamis.stages.text.modifiers.base import CountingModifier, replace_texts
from tamis.stages.text.modifiers.pii_rules import RULES

__all__ = ["PiiRedactor"]

_TAGS = {
    "key": "<KEY>",
    "secret": "<SECRET>",
    "email": "<EMAIL>",
    "iban": "<IBAN>",
    "credit_card": "<CREDIT_CARD>",
    "ip": "<IP_ADDRESS>",
    "ssn": "<SSN>",
    "phone": "<PHONE>",
}
_ON_REQUEST = ("secret", "ssn")


@dataclass
class PiiRedactor(CountingModifier):
    """Replace personal data and secrets by tags: e-mail addresses, telephone numbers, keys and the like.

    It works by rules, which verify check digits, ranges and shapes, so that version numbers, dates and identifiers
    stay. It finds no names and no postal addresses. How many of each kind were replaced is reported by the run.

    Args:
        kinds: What is replaced: some of ``key`` (access keys and tokens of well-known services, private keys),
            ``email``, ``iban``, ``credit_card``, ``ip`` (public addresses), ``phone``. Only if they are named also
            ``secret`` (what is assigned to a password or token and looks random) and ``ssn`` (US social security
            numbers).
        tags: Other tags than ``<EMAIL>`` and so on, by kind.
        counts_field: A column for the number of replacements of each kind in each document, if that is wanted.

    >>> PiiRedactor().modify_document("Write to jane.doe@mail.org or call +44 20 7946 0958.")
    'Write to <EMAIL> or call <PHONE>.'
    """

    kinds: list[str] = field(default_factory=lambda: [kind for kind in RULES if kind not in _ON_REQUEST])
    tags: dict[str, str] = field(default_factory=dict)
    counts_field: str | None = None

    def __post_init__(self) -> None:
        for given, names in (("kinds", self.kinds), ("tags", self.tags)):
            for name in names:
                if name not in RULES:
                    raise ValueError(
                        f"PiiRedactor({given}=...): there is no kind {name!r}, only {', '.join(RULES)}."
                        f"{did_you_mean(name, list(RULES))}"
                    )
        if not self.kinds:
            raise ValueError(f"PiiRedactor(kinds=[]): name some of {', '.join(RULES)}")
        for kind, tag in self.tags.items():
            if not isinstance(tag, str):
                raise TypeError(f"PiiRedactor(tags=...): the tag of {kind} is a text, not {tag!r}")
        self._rules = {kind: rule for kind, rule in RULES.items() if kind in self.kinds}
        self._tags = {**_TAGS, **self.tags}

    @property
    def vectorised(self) -> bool:
        return False  # the rules are Python code: most of the time goes into the texts that may hold something

    def modify_document(self, text: str) -> str:
        return self._redact(text, self._rules)[0]

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return self.modify_and_count(column)[0]

    def modify_and_count(self, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, NDArray[np.int64]]]:
        counts = {kind: np.zeros(len(column), np.int64) for kind in self._rules}
        before = 0

        def redacted(chunk: pa.Array) -> dict[int, str]:
            nonlocal before
            suspects: dict[int, list[str]] = {}
            for kind, rule in self._rules.items():
                for row in _rows_with_any(chunk, rule.needles):
                    suspects.setdefault(row, []).append(kind)
            changed = {}
            for row, kinds in suspects.items():
                text = chunk[row].as_py()
                if text is not None:
                    new, replaced = self._redact(text, kinds)
                    if replaced:
                        changed[row] = new
                    for kind in replaced:
                        counts[kind][before + row] += 1
            before += len(chunk)
            return changed

        return replace_texts(column, redacted), counts

    def _redact(self, text: str, kinds: Iterable[str]) -> tuple[str, list[str]]:
        """The text with tags, and the kind of each."""
        taken: list[tuple[int, int, str]] = []
        is_taken = bytearray(len(text))
        for kind in kinds:
            for begin, end in self._rules[kind].find(text):
                if 1 not in is_taken[begin:end]:
                    taken.append((begin, end, kind))
                    is_taken[begin:end] = b"\1" * (end - begin)
        parts, done = [], 0
        for begin, end, kind in sorted(taken):
            parts += [text[done:begin], self._tags[kind]]
            done = end
        return "".join([*parts, text[done:]]), [kind for *_, kind in taken]


def _rows_with_any(array: pa.Array, needles: Iterable[Needles]) -> Iterable[int]:
    found = [rows_with(array, some) for some in needles]
    if any(rows is None for rows in found):
        return range(len(array))
    return sorted({row for rows in found if rows is not None for row in rows.tolist()})
