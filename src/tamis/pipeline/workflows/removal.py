"""Remove documents by their ids: from files to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis.errors import PlanError
from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.pipeline.workflows.steps import Paths, Steps, WorkflowInput, check_run_arguments
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.document_ids import AssignIds, NumberFiles
from tamis.stages.deduplication.file_reading import reader_for, reading_stage
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.deduplication.removal import RemoveByIds
from tamis.stages.io import JsonlWriter, ParquetWriter
from tamis.stages.io.paths import absolute, path_text
from tamis.stages.io.writers import Writer
from tamis.tasks import Task

__all__ = ["TextDuplicatesRemovalWorkflow"]

_WRITERS: dict[str, type[Writer]] = {"jsonl": JsonlWriter, "parquet": ParquetWriter}


@dataclass
class TextDuplicatesRemovalWorkflow(WorkflowBase):
    """Copy documents without those whose ids are listed in files.

    Ids that a deduplication workflow assigned are found again with the ``id_generator_path`` that it returned. The
    files must be the same, under the same paths; how they are cut into tasks does not matter. Dropped rows are in the
    drop ledger of the run.

    Args:
        input_path: The documents: a file, a directory, a pattern, any fsspec address, or a list of those.
        ids_to_remove_path: Parquet files with the ids.
        output_path: A directory for the documents that stay.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_fields: Columns to read; all of them when not given.
        id_field: The column with the ids of the documents.
        input_files_per_partition: Whole files per task, instead of ``input_blocksize``.
        input_blocksize: Bytes of input per task, as a number or as ``"64MiB"``.
        input_file_extensions: Endings to look for in directories.
        input_task_limit: The largest number of tasks.
        input_kwargs: Further arguments of the reader, such as ``storage_options``.
        duplicate_id_field: The column of the files of ids. By default ``id_field``, if they have it; else ``"id"``,
            or the only one.
        duplicate_id_read_kwargs: ``storage_options`` for the files of ids; nothing else in it is used.
        id_generator_path: The JSON file that says which ids the files have. Without it, ``id_field`` is read.
        id_generator_storage_options: For its fsspec file system.
        output_file_extension: Ending of the output files; that of the format when not given.
        output_filetype: ``"parquet"`` or ``"jsonl"``.
        output_kwargs: Further arguments of the writer.
        output_fields: Columns to write; all of them when not given.
        output_mode: What to do when the directory holds files, see :class:`~tamis.stages.io.writers.Writer`;
            ``"error"`` when not given.
        drop_id_field: Whether to leave ``id_field`` out of the output.
        memory_budget: How much memory of a machine sorting the ids may take.

    >>> workflow = TextDuplicatesRemovalWorkflow("in", "ids", "out", input_filetype="jsonl", id_field="id")
    >>> workflow.output_filetype
    'parquet'
    """

    input_path: Paths | None
    ids_to_remove_path: str | os.PathLike[str]
    output_path: str | os.PathLike[str]
    input_filetype: str = "parquet"
    input_fields: list[str] | None = None
    id_field: str = CURATOR_DEDUP_ID_STR
    input_files_per_partition: int | None = None
    input_blocksize: int | str | None = None
    input_file_extensions: list[str] | None = None
    input_task_limit: int | None = None
    input_kwargs: dict[str, Any] | None = None
    duplicate_id_field: str = "id"
    duplicate_id_read_kwargs: dict[str, Any] | None = None
    id_generator_path: str | None = None
    id_generator_storage_options: dict[str, Any] | None = None
    output_file_extension: str | None = None
    output_filetype: str = "parquet"
    output_kwargs: dict[str, Any] | None = None
    output_fields: list[str] | None = None
    output_mode: str | None = None
    drop_id_field: bool = False
    memory_budget: int | str = "2GiB"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        reader_for(owner, self.input_filetype)
        reader_for(owner, self.output_filetype)
        memory_bytes(owner, self.memory_budget)
        if self.drop_id_field and self.id_field in (self.output_fields or ()):
            raise PlanError(f"{owner}: drop_id_field=True, but {self.id_field!r} is in output_fields")
        self.ids_to_remove_path, self.output_path = map(path_text, (self.ids_to_remove_path, self.output_path))

    def run(
        self, executor: Any = None, initial_tasks: Sequence[Task[Any]] | None = None, **settings: Any
    ) -> WorkflowRunResult:
        """Remove the documents. Started again, it goes on where it stopped.

        Args:
            executor: What runs it; by default as in :meth:`tamis.pipeline.Pipeline.run`.
            initial_tasks: The files to read, as :class:`~tamis.tasks.FileGroup` tasks, instead of ``input_path``.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.

        Returns:
            The files written (``pipeline_tasks["removal"]``), and in the metadata ``num_duplicates_removed``: how many
            rows were removed.
        """
        check_run_arguments(type(self).__name__, initial_tasks, executor)
        steps = Steps("duplicates removal", str(self.output_path), executor, settings)
        made = steps.run("removal", self.stages(initial_tasks), data_card=True)
        removed = sum(made.stage(_REMOVE).dropped.values())
        return steps.finished(num_duplicates_removed=removed)

    def stages(self, initial_tasks: Sequence[Task[Any]] | None = None) -> list[ProcessingStage[Any, Any]]:
        """The stages of the pipeline: read, remove, write."""
        owner = type(self).__name__
        files = WorkflowInput(
            owner,
            self.input_path,
            self.input_filetype,
            self.input_blocksize,
            self.input_file_extensions,
            self.input_kwargs,
            self.input_files_per_partition,
            self.input_task_limit,
        ).given(initial_tasks)
        reader = reading_stage(owner, self.input_filetype, self._fields(), self.input_kwargs)
        stages: list[ProcessingStage[Any, Any]] = [files.partitioning()]
        if self.id_generator_path:
            options = self.id_generator_storage_options or {}
            stages += [
                NumberFiles(absolute(self.id_generator_path), False, options),
                reader.with_(name="Read"),
                AssignIds(self.id_field),
            ]
        else:
            stages.append(reader.with_(name="Read"))
        removing = RemoveByIds(
            self.ids_to_remove_path,
            self.id_field,
            None if self.duplicate_id_field == "id" else self.duplicate_id_field,
            self.drop_id_field,
            memory_budget=self.memory_budget,
            storage_options=(self.duplicate_id_read_kwargs or {}).get("storage_options") or {},
            name=_REMOVE,
        )
        writer = _WRITERS[self.output_filetype](
            self.output_path,
            fields=self.output_fields,
            mode=self.output_mode or "error",
            file_extension=self.output_file_extension,
            write_kwargs=dict(self.output_kwargs or {}),
        )
        return [*stages, removing, writer]

    def _fields(self) -> list[str] | None:
        """The columns to read: those asked for, and that of the ids."""
        if self.input_fields is None or self.id_generator_path or self.id_field in self.input_fields:
            return self.input_fields
        return [*self.input_fields, self.id_field]


_REMOVE = "RemoveByIds"
