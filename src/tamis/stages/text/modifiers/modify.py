"""The stage that runs modifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.stages.column_values import holds_text, read_column, text_values
from tamis.stages.text.forms import OperationStage, chain_name, listed, name_of
from tamis.stages.text.modifiers.base import CountingModifier, DocumentModifier
from tamis.tasks import DocumentBatch

__all__ = ["Modify"]

ModifierOrFunction: TypeAlias = DocumentModifier | Callable[..., Any]


@dataclass(repr=False)
class Modify(OperationStage):
    """Change the text of each document.

    A column that comes out as it was is passed on without being copied.

    Args:
        modifier_fn: A modifier, or a function from a text to a text; or a list of them, applied one after the other.
        input_fields: The column that is changed. For a list of modifiers: one for all, or a list with one for each.
            A list of columns for one modifier (in a list of modifiers: a list within the list) makes it a function of
            several columns, which it is given by name: ``fn(title=..., text=...)``.
        output_fields: Where the result goes, if not into the same column: one for each modifier. Needed where there
            are several input columns.

    A null is left a null. Only a function of several columns is called with ``None``.

    >>> Modify(str.upper).process(DocumentBatch({"text": ["a", None]})).data.to_pydict()
    {'text': ['A', None]}
    """

    modifier_fn: ModifierOrFunction | list[ModifierOrFunction]
    input_fields: str | Sequence[str | list[str]] = "text"
    output_fields: str | list[str | None] | None = None

    def __post_init__(self) -> None:
        modifiers = listed(self.modifier_fn, DocumentModifier, "Modify(modifier_fn=...)")
        several = isinstance(self.modifier_fn, list | tuple)
        inputs = _inputs_of_each(self.input_fields, len(modifiers), several)
        outputs = _outputs_of_each(self.output_fields, len(modifiers))
        self._steps = [
            _Step(modifier, reads, _output(modifier, reads, writes))
            for modifier, reads, writes in zip(modifiers, inputs, outputs, strict=True)
        ]
        self.name = chain_name("Modify", modifiers)

    def outputs(self) -> tuple[list[str], list[str]]:
        written = [name for step in self._steps for name in (step.writes, step.counts_field) if name is not None]
        return ["data"], list(dict.fromkeys(written))

    def adds_columns(self) -> list[str]:
        added: list[str] = []
        changed: set[str] = set()  # by an earlier step, so that changing it again is meant
        for step in self._steps:
            added += [step.writes] if step.writes not in {*step.columns, *changed} else []
            added += [step.counts_field] if step.counts_field is not None else []
            changed |= {step.writes} if step.writes in step.columns else set()
        return added

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table = task.data
        for step in self._steps:
            table = step.run(table, self)
        return task if table is task.data else task.with_same_rows(table)


@dataclass(frozen=True)
class _Step:
    """One modifier or function of the stage, with its columns."""

    modifier: ModifierOrFunction
    columns: list[str]
    writes: str

    @property
    def releases_gil(self) -> bool:
        return isinstance(self.modifier, DocumentModifier) and self.modifier.vectorised and len(self.columns) == 1

    @property
    def needs_text(self) -> bool:
        """Whether the column must hold text: a modifier with a column form takes nothing else."""
        return isinstance(self.modifier, DocumentModifier) and self.modifier.modifies_columns and len(self.columns) == 1

    @property
    def counts_field(self) -> str | None:
        """The column for the number of changes, if there is to be one."""
        return self.modifier.counts_field if isinstance(self.modifier, CountingModifier) else None

    def run(self, table: pa.Table, stage: Modify) -> pa.Table:
        """The table with what this step writes; the table itself if that is there already."""
        given = [read_column(table, name, stage.name) for name in self.columns]
        modifier = self.modifier
        function = modifier.modify_document if isinstance(modifier, DocumentModifier) else modifier
        if len(given) > 1:
            rows = zip(*(column.to_pylist() for column in given), strict=True)
            values = [function(**dict(zip(self.columns, row, strict=True))) for row in rows]
            return _with_column(table, self.writes, pa.chunked_array([pa.array(values)]))
        (before,) = given
        if isinstance(modifier, DocumentModifier) and modifier.modifies_columns:
            texts = text_values(before, self.columns[0], stage.name)
            if isinstance(modifier, CountingModifier):
                after, counts = modifier.modify_and_count(texts)
                for kind, numbers in counts.items():
                    stage.log_metric(kind, int(numbers.sum()))
                if self.counts_field is not None:
                    arrays = [arrow_array(numbers) for numbers in counts.values()]
                    counted = pa.StructArray.from_arrays(arrays, list(counts))
                    table = _with_column(table, self.counts_field, pa.chunked_array([counted]))
            else:
                after = modifier.modify_column(texts)
            if self.writes == self.columns[0]:  # a column form says by itself whether something has changed
                return table if after is texts else _set_column(table, self.writes, _as_before(before, after))
        else:
            values = [None if value is None else function(value) for value in before.to_pylist()]
            after = pa.chunked_array([pa.array(values)])
        return _with_column(table, self.writes, _as_before(before, after))


def _with_column(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    if name not in table.column_names:
        return table.append_column(name, column)
    present = table.column(name)
    if column.type == present.type and column.equals(present):
        return table
    return _set_column(table, name, column)


def _set_column(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _as_before(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    """The new column, with the type it had where it holds text."""
    if after.type != before.type and holds_text(before.type) and (holds_text(after.type) or after.type == pa.null()):
        return after.cast(before.type)
    return after


def _inputs_of_each(given: Any, count: int, several: bool) -> list[list[str]]:
    """The input columns of each modifier."""
    if isinstance(given, str):
        return [[given]] * count
    given = list(given)
    if not several and all(isinstance(column, str) for column in given):
        return [given]
    if len(given) != count:
        raise ValueError(
            f"Modify: {count} modifiers need one entry each in input_fields, given was {given!r}. "
            "A modifier of several columns takes a list of them as its entry"
        )
    return [[entry] if isinstance(entry, str) else list(entry) for entry in given]


def _outputs_of_each(given: Any, count: int) -> list[str | None]:
    """The output column of each modifier, where one is given."""
    if given is None:
        return [None] * count
    outputs = [given] if isinstance(given, str) else list(given)
    if len(outputs) != count:
        raise ValueError(f"Modify: {count} modifiers need as many columns in output_fields, given was {given!r}")
    return outputs


def _output(modifier: ModifierOrFunction, reads: list[str], writes: str | None) -> str:
    if writes is not None:
        return writes
    if len(reads) != 1:
        raise ValueError(
            f"Modify: {name_of(modifier)} works on several columns, {', '.join(reads)}: "
            "say in output_fields where the result goes"
        )
    return reads[0]
