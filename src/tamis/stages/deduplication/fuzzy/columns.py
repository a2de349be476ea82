"""Columns of the files between the steps of fuzzy deduplication, and the folders they are in."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CURATOR_DEFAULT_MINHASH_FIELD",
    "CURATOR_FUZZY_DUPLICATE_GROUP_FIELD",
    "CURATOR_LSH_BUCKET_FIELD",
    "FUZZY_IDS",
]

CURATOR_DEFAULT_MINHASH_FIELD: Final = "_minhash_signature"
"""The signature of a document: a list of numbers."""

CURATOR_LSH_BUCKET_FIELD: Final = "_bucket_id"
"""A bucket: documents that agree in a whole band."""

CURATOR_FUZZY_DUPLICATE_GROUP_FIELD: Final = "_duplicate_group_id"
"""A group of duplicates: the smallest id of its documents."""

FUZZY_IDS: Final = "FuzzyDuplicateIds"
"""The directory, below the output, with the ids of duplicates."""
