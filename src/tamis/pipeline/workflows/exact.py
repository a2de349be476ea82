"""Exact deduplication from files to files: find duplicates, list their ids, and remove them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import PlanError
from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.pipeline.workflows.removal import TextDuplicatesRemovalWorkflow
from tamis.pipeline.workflows.steps import Paths, Steps, WorkflowInput, check_run_arguments
from tamis.stages.deduplication.exact.identification import EXACT_IDS, ExactDuplicateIdentification
from tamis.stages.deduplication.memory import DEFAULT_MEMORY
from tamis.stages.io.paths import absolute, join, path_text
from tamis.tasks import Task

__all__ = ["DEDUPLICATED", "ExactDeduplicationWorkflow"]

DEDUPLICATED = "deduplicated"
"""The directory, below the output, with the documents that stay."""

_IDS_FILE = "exact_id_generator.json"


@dataclass
class ExactDeduplicationWorkflow(WorkflowBase):
    """Find documents with equal text in files, and write the ids of all but one of each set.

    Below ``output_path`` are ``ExactDuplicateIds/part.<k>.parquet``, ``exact_id_generator.json``, which says which ids
    the files have, and with ``perform_removal=True`` the documents that stay, in ``deduplicated``. It runs on any
    executor and needs no GPU. Started again, it goes on where it stopped.

    Args:
        output_path: A directory for the results.
        input_path: The documents: a file, a directory, a pattern, any fsspec address, or a list of those.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_blocksize: Bytes of input per task, as a number or as ``"64MiB"``. The ids do not depend on it.
        identification_batchsize: For NeMo Curator's GPU code; not used.
        input_file_extensions: Endings to look for in directories.
        read_kwargs: Further arguments of the reader, such as ``storage_options``.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``storage_options``.
        assign_id: Whether documents are given ids, as ``_curator_dedup_id``; otherwise ``id_field`` has them.
        id_field: The column with the ids; they must be different.
        text_field: The column compared.
        perform_removal: Whether to write the documents that stay.
        total_nparts: How many parts the hashes are sorted in; 16 by default.
        rmm_pool_size, spill_memory_limit, env_vars, use_async_memory: For NeMo Curator's GPU code; not used.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        keep: Which document of a set stays, see :class:`~tamis.stages.deduplication.keep.Keep`.
        memory_budget: How much memory of a machine hashes and ids may take, as a number of bytes or as ``"8GB"``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "in.jsonl").write_text('{"text": "a"}\\n{"text": "b"}\\n{"text": "a"}\\n')
    ...     workflow = ExactDeduplicationWorkflow(f"{folder}/out", f"{folder}/in.jsonl", "jsonl", perform_removal=True)
    ...     workflow.run(progress="off").get_metadata("num_duplicates")
    1
    """

    output_path: str | os.PathLike[str]
    input_path: Paths | None = None
    input_filetype: str = "parquet"
    input_blocksize: int | str = "64MiB"
    identification_batchsize: int = 1
    input_file_extensions: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    assign_id: bool = True
    id_field: str | None = None
    text_field: str = "text"
    perform_removal: bool = False
    total_nparts: int | None = None
    rmm_pool_size: int | str | None = "auto"
    spill_memory_limit: int | str | None = "auto"
    env_vars: dict[str, Any] | None = None
    use_async_memory: bool = True
    normalize_text: bool = False
    keep: str = "first"
    memory_budget: int | str = DEFAULT_MEMORY

    def __post_init__(self) -> None:
        self.output_path = path_text(self.output_path)
        self._identification()

    def run(
        self, initial_tasks: Sequence[Task[Any]] | None = None, executor: Any = None, **settings: Any
    ) -> WorkflowRunResult:
        """Find the duplicates, and remove them if that is asked for.

        Args:
            initial_tasks: The files to read, as :class:`~tamis.tasks.FileGroup` tasks, instead of ``input_path``.
            executor: What runs it; by default as in :meth:`tamis.pipeline.Pipeline.run`.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.

        Returns:
            The files of ids (``pipeline_tasks["identification"]``), and in the metadata ``num_duplicates``,
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
        files.check_columns(self.text_field, *([] if self.assign_id else [str(self.id_field)]))
        steps = Steps("exact deduplication", str(self.output_path), executor, settings)
        steps.result.add_pipeline_tasks("input_filegroups", files.partitioning().splits(""))
        steps.took("input_filegroups_time")
        made = steps.run("identification", [files.partitioning(), self._identification()])
        found: dict[str, Any] = {"num_duplicates": made.summary.output_rows, "id_generator_path": self._ids_path()}
        if self.perform_removal:
            removal = self._removal(files.paths)
            done = steps.run("removal", removal.stages(), data_card=True)
            found["num_duplicates_removed"] = sum(done.stage("RemoveByIds").dropped.values())
        return steps.finished(**found)

    def _ids_path(self) -> str | None:
        return join(absolute(self.output_path), _IDS_FILE) if self.assign_id else None

    def _identification(self) -> ExactDuplicateIdentification:
        if self.assign_id and self.id_field:
            raise PlanError(
                f"{type(self).__name__}: assign_id=True and id_field={self.id_field!r}: set assign_id=False to "
                "use that column"
            )
        return ExactDuplicateIdentification(
            self.text_field,
            str(self.output_path),
            self.input_filetype,
            self.read_kwargs,
            self.write_kwargs,
            self.assign_id,
            self.id_field,
            self.normalize_text,
            self.total_nparts,
            keep=self.keep,
            memory_budget=self.memory_budget,
            ids_path=self._ids_path() or "",
            storage_options=(self.write_kwargs or {}).get("storage_options") or {},
        )

    def _removal(self, paths: Paths | None) -> TextDuplicatesRemovalWorkflow:
        options = (self.write_kwargs or {}).get("storage_options") or {}
        stage = self._identification()
        return TextDuplicatesRemovalWorkflow(
            paths,
            join(absolute(self.output_path), EXACT_IDS),
            join(absolute(self.output_path), DEDUPLICATED),
            self.input_filetype,
            id_field=stage.id_column,
            input_blocksize=self.input_blocksize,
            input_file_extensions=self.input_file_extensions,
            input_kwargs=self.read_kwargs,
            duplicate_id_field=stage.id_column,
            duplicate_id_read_kwargs={"storage_options": options},
            id_generator_path=self._ids_path(),
            id_generator_storage_options=options,
            output_filetype=self.input_filetype,
            output_kwargs={"storage_options": options} if options else None,
            output_mode="overwrite",
            drop_id_field=self.assign_id,
            memory_budget=self.memory_budget,
        )
