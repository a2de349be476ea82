"""Texts as the tokens that a model wants: cut to its limit, with the tokens it wants around each text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, one_array
from tamis.errors import DataError, MissingExtraError
from tamis.models.lengths import tokenizer_settings
from tamis.models.tokenizers import Tokenizer, load_tokenizer

__all__ = ["ModelTokens", "Tokens", "cuts_begin", "load_model_tokenizer"]

_PROBE = "a"


@dataclass(frozen=True)
class Tokens:
    """The tokens of a column of texts.

    Args:
        column: A list of ``int32`` for each text; null for a null.
        truncated: How many texts were cut.
    """

    column: pa.LargeListArray
    truncated: int


class ModelTokens:
    """Turns columns of texts into the tokens that a model is given.

    Args:
        tokenizer: The model's tokenizer.
        max_seq_length: The most tokens of a text, those around it included. The rest of a longer text is left out.
        max_chars: The most characters of a text that are looked at.
        prompt: What is put before each text.
        lower_case: Whether texts are made lower case, as the package ``tokenizers`` does it.
        cuts_begin: Whether the begin of a text that is too long is left out, and not its end.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_seq_length: int | None = None,
        max_chars: int | None = None,
        *,
        prompt: str = "",
        lower_case: bool = False,
        cuts_begin: bool = False,
    ) -> None:
        self.tokenizer, self.max_seq_length, self.max_chars = tokenizer, max_seq_length, max_chars
        self.prompt, self.lower_case, self.cuts_begin = prompt, lower_case, cuts_begin
        self._before, self._after = _around(tokenizer)
        around = len(self._before) + len(self._after)
        if max_seq_length is not None and max_seq_length <= around:
            raise ValueError(
                f"max_seq_length={max_seq_length} is too small: the tokenizer puts {around} tokens around each text"
            )

    def __call__(self, texts: pa.Array | pa.ChunkedArray) -> Tokens:
        """The tokens of each text."""
        column = one_array(texts)
        is_cut = np.zeros(len(column), np.bool_)
        if self.max_chars is not None:
            is_cut = numpy_array(pc.fill_null(pc.greater(pc.utf8_length(column), self.max_chars), False))
            column = pc.utf8_slice_codeunits(column, 0, self.max_chars)
        if self.prompt:
            column = pc.binary_join_element_wise(
                pa.scalar(self.prompt, column.type), column, pa.scalar("", column.type)
            )
        if self.lower_case:
            column = pa.array([_lower(text) for text in column.to_pylist()], column.type)
        most = None
        if self.max_seq_length is not None:
            most = self.max_seq_length - len(self._before) - len(self._after)
        # One more than is kept, which tells that there are more.
        limit = None if most is None or self.cuts_begin else most + 1
        encoded = self.tokenizer.encode_column(column, max_tokens=limit)
        lengths = np.diff(numpy_array(encoded.offsets))
        kept = lengths if most is None else np.minimum(lengths, most)
        is_cut |= kept < lengths
        missing = numpy_array(pc.is_null(column)) if column.null_count else None
        return Tokens(self._with_ends(encoded, kept, missing), int(is_cut.sum()))

    def _with_ends(
        self, encoded: pa.LargeListArray, kept: NDArray[np.int64], missing: NDArray[np.bool_] | None
    ) -> pa.LargeListArray:
        """The tokens of each row that are kept, with the tokens around a text; none for a text that is missing."""
        offsets, ids = numpy_array(encoded.offsets), numpy_array(encoded.values)
        starts = offsets[1:] - kept if self.cuts_begin else offsets[:-1]
        before, after = len(self._before), len(self._after)
        lengths = kept + before + after
        if missing is not None:
            lengths = np.where(missing, 0, lengths)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        if not before and not after and offsets[-1] == len(ids) and missing is None:
            made = ids
        else:
            row = np.repeat(np.arange(len(kept)), lengths)
            place = np.arange(offsets[-1]) - offsets[:-1][row] - before
            inside = (place >= 0) & (place < kept[row])
            made = np.empty(offsets[-1], np.int32)
            made[inside] = ids[starts[row[inside]] + place[inside]]
            present = np.flatnonzero(lengths)
            for number, token in enumerate(self._before):
                made[offsets[present] + number] = token
            for number, token in enumerate(reversed(self._after)):
                made[offsets[present + 1] - 1 - number] = token
        nulls = None if missing is None else arrow_array(missing)
        return pa.LargeListArray.from_arrays(arrow_array(offsets), arrow_array(made), mask=nulls)


def _around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that a tokenizer puts before and after each text."""
    probe = pa.array([_PROBE])
    plain = tokenizer.encode_column(probe).to_pylist()[0]
    full = tokenizer.encode_column(probe, add_special_tokens=True).to_pylist()[0]
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    raise ValueError(f"the tokenizer {tokenizer.name} changes a text when it puts tokens around it: {plain}, {full}")


def _lower(text: str | None) -> str | None:
    """A text in lower case, letter by letter: Arrow knows no letters that become two, Python has a final sigma."""
    return None if text is None else text.replace("\u03a3", "\u03c3").lower()


def load_model_tokenizer(folder: str, transformers_init_kwargs: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a model, as ``transformers`` has it where that is installed.

    It holds what ``tokenizer_config.json`` says, such as ``do_lower_case``, against ``tokenizer.json``. The latter is
    used alone where ``transformers`` is missing, or cannot load the folder without running code that is in it.

    Args:
        folder: The folder of the model.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``.
    """
    given = dict(transformers_init_kwargs or {})
    has_file = (Path(folder) / "tokenizer.json").is_file()
    if given or find_spec("transformers") is None or not Path(folder).is_dir():
        return load_tokenizer(folder, transformers_init_kwargs=given)
    try:
        return load_tokenizer(folder, transformers_init_kwargs={"trust_remote_code": False})
    except Exception as error:  # whatever the classes of transformers make of files that are not theirs
        if not has_file:
            if isinstance(error, DataError | MissingExtraError):
                raise
            raise DataError(f"the tokenizer cannot be loaded: {error}", path=folder) from error
        return load_tokenizer(folder)


def cuts_begin(folder: str) -> bool:
    """Whether the tokenizer of a folder leaves out the begin of a text that is too long."""
    return tokenizer_settings(folder).get("truncation_side") == "left"
