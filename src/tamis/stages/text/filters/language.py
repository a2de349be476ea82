"""Filters by language and by script, with a model and tables that come with a package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import did_you_mean
from tamis.kernels.scripts import SCRIPT_NAMES, WRITING_SYSTEMS, script_of, script_shares
from tamis.models.fasttext import check_model_file
from tamis.models.language import MAX_BYTES, built_in_languages, load_language_model, matches_language
from tamis.stages.text.filters.base import SHARE, ThresholdFilter
from tamis.stages.text.forms import well_formed

__all__ = ["LanguageFilter", "ScriptFilter"]


@dataclass
class LanguageFilter(ThresholdFilter):
    """Keep text in some languages. Needs ``tamis[language]``.

    Score: how sure it is, 0 to 1, that the text is in its likeliest language, if that is one of those wanted; else 0.0.
    For the built-in model that is the share of the text that is in the language.

    Args:
        languages: The codes of the languages that are kept. ``zh`` is matched with any script, ``zh-Hant`` exactly.
        min_score: The lowest score that is kept; more than 0.
        model_path: A fastText model (``.bin`` or ``.ftz``), such as ``lid.176.ftz``, instead of the built-in model. The
            languages are then named as its labels are.
        max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.

    >>> keep = LanguageFilter(["de", "nl"])
    >>> keep.score_document("Das ist ein Satz, den man leicht versteht.")
    0.97
    >>> keep.score_document("This one is in English.")
    0.0
    """

    languages: list[str]
    min_score: float = 0.5
    model_path: str | None = None
    max_bytes: int | None = MAX_BYTES
    name = "language"

    def __post_init__(self) -> None:
        _check_codes(self.languages, "LanguageFilter", "languages", "['en', 'de']")
        if not 0 < self.min_score <= 1:
            raise ValueError(f"LanguageFilter(min_score={self.min_score}): must be more than 0 and at most 1")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise ValueError(f"LanguageFilter(max_bytes={self.max_bytes}): must be at least 1, or None for whole texts")
        if self.model_path is None:
            known = built_in_languages()
            for wanted in self.languages:
                if not any(matches_language(code, wanted) for code in known):
                    raise ValueError(
                        f"LanguageFilter: the built-in model knows no language {wanted!r}."
                        f"{did_you_mean(wanted, known)} Languages have ISO 639-1 codes, such as 'en'."
                    )

    def model_check_or_download(self) -> None:
        """Refuse a model path that leads to no file on this machine."""
        if self.model_path is not None:
            check_model_file(self.model_path, type(self).__name__)

    def load_model(self) -> None:
        """Load the model; once in each process."""
        load_language_model(self.model_path, self.max_bytes)

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min_score, None

    def score_document(self, text: str) -> float:
        return float(self.score_column(pa.chunked_array([[well_formed(text)]], pa.string()))[0])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        codes, certain = load_language_model(self.model_path, self.max_bytes).identify(column)
        encoded = codes.dictionary_encode()
        wanted = [
            any(matches_language(code, language) for language in self.languages)
            for code in encoded.dictionary.to_pylist()
        ]
        return np.where(np.array(wanted, np.bool_)[np.asarray(encoded.indices)], certain, 0.0)

    def reason(self) -> str:
        return f"{self.name} not {' or '.join(self.languages)} (score < {self.min_score})"


@dataclass
class ScriptFilter(ThresholdFilter):
    """Keep text that is written in some scripts.

    Score: of the characters that belong to a script (letters, mostly: digits, punctuation and spaces belong to none),
    the share that belongs to one of those wanted; 0.0 for a text without such characters.

    Args:
        scripts: ISO 15924 codes of scripts, such as ``Latn`` or ``Cyrl``, or of writing systems that mix some: ``Jpan``
            (Han, Hiragana, Katakana), ``Kore`` (Hangul, Han).
        min_share: The lowest share that is kept, 0 to 1.

    >>> ScriptFilter(["Cyrl"]).score_document("два words")
    0.375
    """

    scripts: list[str]
    min_share: float = 0.5
    name = "script"
    score_range = SHARE

    def __post_init__(self) -> None:
        _check_codes(self.scripts, "ScriptFilter", "scripts", "['Latn']")
        codes_by_name = {name: code for code, name in SCRIPT_NAMES.items()}
        for script in self.scripts:
            if script not in SCRIPT_NAMES and script not in WRITING_SYSTEMS:
                meant = codes_by_name.get(script.replace("_", " ").title())
                hint = f" Did you mean {meant!r}?" if meant else did_you_mean(script, [*SCRIPT_NAMES, *WRITING_SYSTEMS])
                raise ValueError(f"ScriptFilter: there is no script {script!r}.{hint} Scripts have ISO 15924 codes.")

    def score_document(self, text: str) -> float:
        wanted = {code for given in self.scripts for code in WRITING_SYSTEMS.get(given, (given,))}
        scripts = [script for script in map(script_of, text) if script in SCRIPT_NAMES]
        return sum(script in wanted for script in scripts) / len(scripts) if scripts else 0.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return script_shares(column, self.scripts)

    def reason(self) -> str:
        return f"{self.name} not {' or '.join(self.scripts)} (share < {self.min_share})"


def _check_codes(codes: list[str], filter_name: str, argument: str, such_as: str) -> None:
    if isinstance(codes, str) or not codes:
        raise ValueError(f"{filter_name}({argument}={codes!r}): give a list of codes, such as {such_as}")
