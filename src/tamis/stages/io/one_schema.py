"""One schema for all files of an output: the types of their columns unified, and their tables converted to it.

Types that are found batch by batch differ between batches: a column may be null in one file and text in the next. They
are unified where every value stays what it is: null with anything, integers with wider ones and with floats, lists and
structs by their elements. Any other difference is an error that names the column, both types and both files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tamis.errors import DataError, redacted

__all__ = ["SchemaLog", "converted", "unified", "with_empty_structs", "without_empty_structs"]

_EMPTY = "__empty__"
"""The one field of a struct without fields, which Parquet cannot hold: a column of nulls."""


class SchemaLog:
    """The schemas of the files of one output as they are written: whether they differ, and whether they can be unified.

    >>> log = SchemaLog()
    >>> log.add(pa.schema({"n": pa.int64()}), "part-0.parquet")
    >>> log.add(pa.schema({"n": pa.string()}), "part-1.parquet")
    Traceback (most recent call last):
    tamis.errors.DataError: part-1.parquet: column 'n' is string here and int64 in part-0.parquet
      All files of an output have the same types. Declare the type where the data is read, for instance
      JsonlReader(types={'n': 'string'}), convert the column in a stage, or leave it out with fields=[...].
    """

    def __init__(self) -> None:
        self._first: pa.Schema | None = None
        self._columns: dict[str, tuple[pa.Field, str]] = {}
        self.differ = False

    def add(self, schema: pa.Schema, file: str) -> None:
        """Note the schema of a file; :class:`DataError` if it cannot be unified with the earlier ones."""
        if self._first is None:
            self._first = schema
        elif schema.equals(self._first):
            return
        else:
            self.differ = True
        for column in schema:
            known, earlier = self._columns.get(column.name, (column, file))
            kind = _wider(known.type, column.type)
            if kind is None:
                raise DataError(
                    f"column {column.name!r} is {column.type} here and {known.type} in {redacted(earlier)}",
                    path=file,
                    hint="All files of an output have the same types. Declare the type where the data is read, for "
                    f"instance\n  JsonlReader(types={{{column.name!r}: 'string'}}), convert the column in a stage, or "
                    "leave it out with fields=[...].",
                )
            changed = not kind.equals(known.type)
            self._columns[column.name] = (known.with_type(kind), file if changed else earlier)

    def unified(self) -> pa.Schema:
        """The schema that holds the values of all of them, its columns in the order in which they came."""
        fields = [column for column, _ in self._columns.values()]
        return pa.schema([f.with_nullable(True) for f in fields] if self.differ else fields)


def unified(schemas: Iterable[tuple[pa.Schema, str]]) -> pa.Schema:
    """One schema that holds the values of all files: (schema, file) each.

    >>> unified([(pa.schema({"a": pa.null()}), "x"), (pa.schema({"b": pa.int64(), "a": pa.string()}), "y")])
    a: string
    b: int64
    """
    log = SchemaLog()
    for schema, file in schemas:
        log.add(schema, file)
    return log.unified()


def converted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the columns and types of a schema. A column that it does not have is null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for column in schema:
        if column.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, column.type))
            continue
        try:
            columns.append(table.column(column.name).cast(column.type))
        except pa.ArrowException as e:
            raise DataError(
                f"column {column.name!r} is {table.schema.field(column.name).type} here and {column.type} in other "
                f"files of the output, and cannot be converted without a loss: {e}",
                hint="Declare the type where the data is read, for instance JsonlReader(types={...}).",
            ) from e
    return pa.table(columns, schema=schema)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both; ``None`` when there is none."""
    if one.equals(other):
        return one
    one, other = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (one, other))
    both = (one, other)
    if all(map(pa.types.is_integer, both)) and pa.uint64() in both:
        return pa.uint64()
    if any(map(pa.types.is_integer, both)) and any(map(pa.types.is_floating, both)):
        return pa.float64()
    if any(map(_is_text, both)) and not all(_is_text(kind) or pa.types.is_null(kind) for kind in both):
        return None
    try:
        schemas = [pa.schema([pa.field("x", kind)]) for kind in both]
        return pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def without_empty_structs(table: pa.Table) -> pa.Table:
    """A table that Parquet can hold: a struct without fields (JSON's ``{}``) gets one, ``__empty__``, of nulls.

    >>> table = pa.table({"meta": pa.array([{}, None], pa.struct([]))})
    >>> without_empty_structs(table).schema.field("meta").type
    StructType(struct<__empty__: bool>)
    >>> with_empty_structs(without_empty_structs(table)).equals(table)
    True
    """
    return _with_structs(table, lambda kind: kind if kind.num_fields else pa.struct([(_EMPTY, pa.bool_())]))


def with_empty_structs(table: pa.Table) -> pa.Table:
    """The reverse of :func:`without_empty_structs`."""
    return _with_structs(table, lambda kind: pa.struct([]) if [f.name for f in kind] == [_EMPTY] else kind)


def _with_structs(table: pa.Table, change: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    """A table whose struct types are changed, however deep they are."""
    fields = [column.with_type(_changed(column.type, change)) for column in table.schema]
    schema = pa.schema(fields, table.schema.metadata)
    return table if schema.equals(table.schema) else table.cast(schema)


def _changed(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return change(pa.struct([f.with_type(_changed(f.type, change)) for f in kind]))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_changed(kind.value_type, change)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_changed(kind.value_type, change)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_changed(kind.value_type, change)), kind.list_size)
    return kind
