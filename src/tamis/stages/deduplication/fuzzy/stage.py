"""Fuzzy deduplication as one stage of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import PlanError
from tamis.kernels.minhash import MinHash
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.fuzzy.buckets import BucketPartitions, HashBands
from tamis.stages.deduplication.fuzzy.edges import FindEdges
from tamis.stages.deduplication.fuzzy.groups import (
    ChooseKept,
    EdgeFiles,
    GroupPartitions,
    JoinEdges,
    MemberFiles,
    SendMembers,
)
from tamis.stages.deduplication.fuzzy.index import NEW_FILES, IndexedRows, RemoveAndIndex, check_index
from tamis.stages.deduplication.fuzzy.verify import ComparePairs, PairPartitions, SendTexts, TextsToSend
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.io.paths import absolute
from tamis.stages.resources import Resources
from tamis.stages.spill import folder_for
from tamis.tasks import TableTask

__all__ = ["REASON", "FuzzyDeduplication"]

REASON = "near duplicate"


@dataclass
class FuzzyDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep one of each group of documents with similar texts.

    Texts are cut into n-grams; the similarity of two texts is the Jaccard similarity of their sets of n-grams. MinHash
    signatures in bands find pairs that are probably similar: with ``b`` bands of ``r`` hashes, a pair of similarity
    ``s`` is found with the probability ``1 - (1 - s**r)**b``, which with the default settings is 0.5 at 0.77 and 0.99
    at 0.88. Similar documents, and those similar to these, form a group. The answer depends on nothing but the texts
    and the names of the rows. A document without text (null) is not a duplicate of anything.

    The drop ledger says of each duplicate which row is kept in its place (``score_text``), and how similar they are,
    estimated from the signatures (``score``).

    Args:
        text_field: The column compared.
        keep: Which document of a group stays: the ``"first"`` by name (path, then position), the ``"longest"``, or
            the ``"highest:COLUMN"`` or ``"lowest:COLUMN"``. Ties go to the first.
        num_bands: How many bands a signature has.
        minhashes_per_band: How many hashes a band has.
        char_ngrams: How many characters an n-gram has.
        word_ngrams: Instead of characters: how many words an n-gram has.
        normalize: What is made equal before texts are compared: ``"lower"``, ``"whitespace"``, ``"punctuation"``.
        scheme: ``"fast"`` or ``"classic"``: how signatures are made, see :class:`tamis.kernels.minhash.MinHash`.
        seed: Another seed makes other signatures.
        use_64_bit_hash: Whether hashes have 64 bits, not 32.
        verify: Compare the texts of candidate pairs, and join only those with at least this Jaccard similarity.
        pairs_path: With ``verify``, a folder for the pairs and their similarities, as Parquet. Those of an earlier run
            are removed from it.
        index: A folder with the signatures of earlier documents. Documents similar to one of them are removed, without
            reading earlier texts, and the signatures of the new documents are added.
        update_index: Whether to add them.
        within: Whether documents of the input are compared with each other, too, not only with those of the index.
        partitions: How many parts buckets and groups are divided into; as many can be worked on at the same time.
        memory_budget: Memory for the tables of this stage on one machine, in bytes or as ``"8GB"``. What does not fit
            is worked on in parts that are kept on disk.
        gpus: GPUs, or the share of one, for each worker that makes signatures; they are the same as on a CPU. Where
            there is no GPU, CPUs make them, and the plan says so.

    >>> from tamis.testing import run_stage
    >>> text = "The quick brown fox jumps over the lazy dog, and the lazy dog does not mind it at all today"
    >>> run = run_stage(FuzzyDeduplication(), [{"text": text}, {"text": "another"}, {"text": text + "."}])
    >>> [row["text"][:9] for row in run], run.dropped[0].reason
    (['The quick', 'another'], 'near duplicate')
    """

    text_field: str = "text"
    keep: str = "first"
    num_bands: int = 20
    minhashes_per_band: int = 13
    char_ngrams: int = 24
    word_ngrams: int | None = None
    normalize: Sequence[str] = ()
    scheme: str = "fast"
    seed: int = 42
    use_64_bit_hash: bool = False
    verify: float | None = None
    pairs_path: str | None = None
    index: str | None = None
    update_index: bool = True
    within: bool = True
    partitions: int = 16
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0
    name: str = "FuzzyDeduplication"

    def __post_init__(self) -> None:
        for parameter in ("num_bands", "minhashes_per_band", "char_ngrams", "word_ngrams", "partitions"):
            value = getattr(self, parameter)
            if value is not None and value < 1:
                raise PlanError(f"{parameter}={value}: must be at least 1")
        if self.partitions > 2**15:
            raise PlanError(f"partitions={self.partitions}: must be at most {2**15}")
        if self.verify is not None and not 0 < self.verify <= 1:
            raise PlanError(f"verify={self.verify}: a similarity is more than 0 and at most 1")
        if self.verify is not None and self.index is not None:
            raise PlanError("sets both verify and index: an index has no texts to compare with. Set only one")
        if self.pairs_path is not None and self.verify is None:
            raise PlanError("pairs_path is for verified pairs: set verify, too")
        if not self.within and self.index is None:
            raise PlanError("within=False compares with the documents of an index only: set index, too")
        memory_bytes(type(self).__name__, self.memory_budget)
        Keep.parse(self.keep)
        self._minhash()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *Keep.parse(self.keep).columns]

    def _minhash(self) -> MinHash:
        return MinHash(
            num_hashes=self.num_bands * self.minhashes_per_band,
            ngram=self.word_ngrams or self.char_ngrams,
            unit="word" if self.word_ngrams else "character",
            scheme=self.scheme,
            seed=self.seed,
            bits=64 if self.use_64_bit_hash else 32,
            normalize=tuple(self.normalize),
        )

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, minhash, parts = folder_for(self.name), self._minhash(), self.partitions
        index = absolute(self.index) if self.index else ""
        memory = memory_bytes(self.name, self.memory_budget)
        settings = (*dataclasses.asdict(minhash).items(), ("num_bands", self.num_bands), ("partitions", parts))
        settings = tuple((name, list(value) if isinstance(value, tuple) else value) for name, value in settings)
        check_index(index, dict(settings), must_exist=not self.update_index)
        keep, verifies = Keep.parse(self.keep), self.verify is not None
        hashing = HashBands(folder, minhash, self.num_bands, self.text_field, keep, parts, verifies)
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "hash": hashing.with_(resources=Resources(cpus=1, gpus=self.gpus)) if self.gpus else hashing,
            "buckets": BucketPartitions(folder, memory, index),
            "edges": FindEdges(folder, parts, self.within, verifies),
        }
        if self.verify is not None:
            pairs_path = absolute(self.pairs_path) if self.pairs_path else ""
            stages |= {
                "candidates": TextsToSend(folder),
                "texts": SendTexts(folder, self.text_field, keep, parts),
                "pairs": PairPartitions(folder, memory, pairs_path),
                "compare": ComparePairs(folder, minhash, self.verify, parts, pairs_path),
            }
        stages |= {
            "all edges": EdgeFiles(folder, "verified" if verifies else "edges"),
            "join": JoinEdges(folder, memory),
            "members": MemberFiles(folder, index),
            "send": SendMembers(folder, parts),
            "groups": GroupPartitions(folder, memory, index),
            "choose": ChooseKept(folder, parts, self.within),
        }
        if index and self.update_index:
            stages["rows"] = IndexedRows(folder, NEW_FILES, index=index, settings=settings)
            last: ProcessingStage[Any, Any] = RemoveAndIndex(folder, REASON, index)
        else:
            stages["rows"] = KeptRows(folder, NEW_FILES)
            last = RemoveMarked(folder, REASON)
        named = [stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()]
        return [*named, last.with_(name=self.name)]
