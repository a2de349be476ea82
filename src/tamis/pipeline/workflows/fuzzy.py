"""Fuzzy deduplication from files to files, in steps whose results are files, too."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.pipeline.workflows.exact import DEDUPLICATED
from tamis.pipeline.workflows.removal import TextDuplicatesRemovalWorkflow
from tamis.pipeline.workflows.steps import Paths, Steps, WorkflowInput, check_run_arguments
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.file_barrier import WrittenFiles
from tamis.stages.deduplication.fuzzy.buckets_to_edges import BucketsToEdgesStage
from tamis.stages.deduplication.fuzzy.columns import FUZZY_IDS
from tamis.stages.deduplication.fuzzy.connected_components import ConnectedComponentsStage
from tamis.stages.deduplication.fuzzy.identify_duplicates import IdentifyDuplicatesStage
from tamis.stages.deduplication.fuzzy.lsh.stage import LSHStage
from tamis.stages.deduplication.fuzzy.minhash import MinHashStage
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR, IdGenerator
from tamis.stages.io.paths import absolute, join, path_text
from tamis.tasks import Task

__all__ = ["FuzzyDeduplicationWorkflow"]

_IDS_FILE: Final = "fuzzy_id_generator.json"
_SHORT_NGRAMS: Final = 20


@dataclass
class FuzzyDeduplicationWorkflow(WorkflowBase):
    """Find documents with similar texts in files, and write the ids of all but one of each group.

    The steps write files below ``cache_path``: signatures (``MinHashStage``), buckets (``LSHStage``), edges
    (``BucketsToEdgesStage``) and groups (``ConnectedComponentsStage``). Below ``output_path`` are
    ``FuzzyDuplicateIds/part.<k>.parquet``, ``fuzzy_id_generator.json``, which says which ids the files have, and with
    ``perform_removal=True`` the documents that stay, in ``deduplicated``. Of a group, the document with the smallest id
    stays: the first of the first file. It runs on any executor and needs no GPU. Started again, it goes on where it
    stopped; the runs of its steps are in ``<cache_path>/.tamis``.

    The stage :class:`~tamis.stages.deduplication.fuzzy.FuzzyDeduplication` does the same inside a pipeline, and can
    verify pairs and keep other documents.

    Args:
        cache_path: A directory for the files between the steps.
        output_path: A directory for the results.
        input_path: The documents: a file, a directory, a pattern, any fsspec address, or a list of those.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_blocksize: Bytes of input per task, as a number or as ``"64MiB"``. The ids do not depend on it.
        input_file_extensions: Endings to look for in directories.
        read_kwargs: Further arguments of the reader, such as ``storage_options``.
        cache_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter`` for files between the steps, and
            ``storage_options``.
        write_kwargs: The same for the results.
        text_field: The column compared.
        perform_removal: Whether to write the documents that stay.
        seed: Of the hashes.
        char_ngrams: How many characters an n-gram has.
        num_bands: How many bands a signature has.
        minhashes_per_band: How many hashes a band has.
        use_64_bit_hash: Whether signatures are made of numbers of 64 bits, not of 32.
        bands_per_iteration: The buckets of how many bands are in one folder.
        lsh_num_output_partitions: How many files a folder of buckets has at most; 16 by default.
        lsh_rmm_pool_size, lsh_spill_memory_limit, env_vars, use_async_memory: For NeMo Curator's GPU code; not used.
        normalize_text: Whether case and white space do not count.
        scheme: How signatures are made, see :class:`tamis.kernels.minhash.MinHash`.
        memory_budget: How much memory of a machine a step may take, as a number of bytes or as ``"8GB"``.

    >>> FuzzyDeduplicationWorkflow("cache", "out", "in", perform_removal=True).num_hashes
    260
    """

    cache_path: str | os.PathLike[str]
    output_path: str | os.PathLike[str]
    input_path: Paths | None = None
    input_filetype: str = "parquet"
    input_blocksize: int | str = "64MiB"
    input_file_extensions: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    cache_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    text_field: str = "text"
    perform_removal: bool = False
    seed: int = 42
    char_ngrams: int = 24
    num_bands: int = 20
    minhashes_per_band: int = 13
    use_64_bit_hash: bool = False
    bands_per_iteration: int = 5
    lsh_num_output_partitions: int | None = None
    lsh_rmm_pool_size: int | str | None = "auto"
    lsh_spill_memory_limit: int | str | None = "auto"
    env_vars: dict[str, Any] | None = None
    use_async_memory: bool = True
    normalize_text: bool = False
    scheme: str = "fast"
    memory_budget: int | str = "2GiB"

    def __post_init__(self) -> None:
        self.cache_path, self.output_path = path_text(self.cache_path), path_text(self.output_path)
        if self.char_ngrams < _SHORT_NGRAMS:
            warnings.warn(
                f"char_ngrams={self.char_ngrams}: texts of the same topic share many n-grams of fewer than "
                f"{_SHORT_NGRAMS} characters, so documents may be removed that are not duplicates",
                stacklevel=3,
            )
        self._minhash()
        self._lsh()
        self._grouping()

    @property
    def num_hashes(self) -> int:
        """The length of a signature."""
        return self.num_bands * self.minhashes_per_band

    def run(
        self, initial_tasks: Sequence[Task[Any]] | None = None, executor: Any = None, **settings: Any
    ) -> WorkflowRunResult:
        """Find the duplicates, and remove them if that is asked for.

        Args:
            initial_tasks: The files to read, as :class:`~tamis.tasks.FileGroup` tasks, instead of ``input_path``.
            executor: What runs it; by default as in :meth:`tamis.pipeline.Pipeline.run`.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.

        Returns:
            The files that each step wrote (``pipeline_tasks``), and in the metadata ``num_duplicates``,
            ``id_generator_path``, and how many seconds each step took.
        """
        owner = type(self).__name__
        check_run_arguments(owner, initial_tasks, executor)
        files = WorkflowInput(
            owner,
            self.input_path,
            self.input_filetype,
            self.input_blocksize,
            self.input_file_extensions,
            self.read_kwargs,
        ).given(initial_tasks)
        files.check_columns(self.text_field)
        steps = Steps("fuzzy deduplication", str(self.cache_path), executor, settings)
        steps.run("minhash", [files.partitioning(), self._minhash()])
        steps.run("lsh", [self._written("MinHashStage"), self._lsh()])
        made = steps.run(
            "connected_components",
            [self._written("LSHStage"), *self._grouping()],
            time_name="connected_components_pipeline_time",
        )
        found: dict[str, Any] = {
            "num_duplicates": sum(int(task._metadata.get("num_removal_ids", 0)) for task in made),
            "id_generator_path": self._copy_ids(),
        }
        if self.perform_removal:
            done = steps.run("removal", self._removal(files.paths).stages(), data_card=True)
            found["num_duplicates_removed"] = sum(done.stage("RemoveByIds").dropped.values())
        return steps.finished(**found)

    def _minhash(self) -> MinHashStage:
        return MinHashStage(
            absolute(self.cache_path),
            self.text_field,
            char_ngrams=self.char_ngrams,
            num_hashes=self.num_hashes,
            seed=self.seed,
            use_64bit_hash=self.use_64_bit_hash,
            normalize_text=self.normalize_text,
            read_format=self.input_filetype,
            read_kwargs=self.read_kwargs,
            write_kwargs=self.cache_kwargs,
            scheme=self.scheme,
            ids_path=self._ids_path(self.cache_path),
            storage_options=self._options(self.cache_kwargs),
        )

    def _lsh(self) -> LSHStage:
        return LSHStage(
            self.num_bands,
            self.minhashes_per_band,
            output_path=absolute(self.cache_path),
            read_kwargs=self.cache_kwargs,
            write_kwargs=self.cache_kwargs,
            bands_per_iteration=self.bands_per_iteration,
            total_nparts=self.lsh_num_output_partitions,
            memory_budget=self.memory_budget,
        )

    def _grouping(self) -> list[ProcessingStage[Any, Any]]:
        cache, kwargs = absolute(self.cache_path), self.cache_kwargs
        return [
            BucketsToEdgesStage(cache, read_kwargs=kwargs, write_kwargs=kwargs),
            ConnectedComponentsStage(cache, read_kwargs=kwargs, write_kwargs=kwargs, memory_budget=self.memory_budget),
            IdentifyDuplicatesStage(
                output_path=absolute(self.output_path),
                read_kwargs=kwargs,
                write_kwargs=self.write_kwargs,
                memory_budget=self.memory_budget,
            ),
        ]

    def _written(self, folder: str) -> WrittenFiles:
        return WrittenFiles(join(absolute(self.cache_path), folder), self._options(self.cache_kwargs))

    def _ids_path(self, directory: str | os.PathLike[str]) -> str:
        return join(absolute(directory), _IDS_FILE)

    def _copy_ids(self) -> str:
        """Copy the file of ids from the cache, where it belongs to the signatures, to the results."""
        generator = IdGenerator.from_disk(self._ids_path(self.cache_path), self._options(self.cache_kwargs))
        generator.to_disk(self._ids_path(self.output_path), self._options(self.write_kwargs))
        return self._ids_path(self.output_path)

    def _removal(self, paths: Paths | None) -> TextDuplicatesRemovalWorkflow:
        options = self._options(self.write_kwargs)
        return TextDuplicatesRemovalWorkflow(
            paths,
            join(absolute(self.output_path), FUZZY_IDS),
            join(absolute(self.output_path), DEDUPLICATED),
            self.input_filetype,
            input_blocksize=self.input_blocksize,
            input_file_extensions=self.input_file_extensions,
            input_kwargs=self.read_kwargs,
            duplicate_id_field=CURATOR_DEDUP_ID_STR,
            duplicate_id_read_kwargs={"storage_options": options},
            id_generator_path=self._ids_path(self.output_path),
            id_generator_storage_options=options,
            output_filetype=self.input_filetype,
            output_kwargs={"storage_options": options} if options else None,
            output_mode="overwrite",
            drop_id_field=True,
            memory_budget=self.memory_budget,
        )

    @staticmethod
    def _options(kwargs: dict[str, Any] | None) -> dict[str, Any]:
        return (kwargs or {}).get("storage_options") or {}
