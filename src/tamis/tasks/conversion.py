"""What users hand in as a batch, a mask or an index, as Arrow tables and NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array

__all__ = ["as_table", "row_numbers", "truth_values"]


def as_table(data: Any) -> pa.Table:
    """Turn what users hand in as a batch into an Arrow table."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return _without_views(data)
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        data = {name: [row.get(name) for row in data] for name in names}
    if isinstance(data, dict):
        try:
            return pa.table(data)
        except UnicodeEncodeError as e:
            raise ValueError(_half_character(data)) from e
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if module == "polars" and hasattr(data, "to_arrow"):
        return _without_views(data.to_arrow())
    raise TypeError(
        f"a batch holds an Arrow table, a pandas or Polars frame, a dict of columns or a list of rows, "
        f"not {type(data).__name__}"
    )


_PLAIN = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}


def _without_views(table: pa.Table) -> pa.Table:
    """A table without columns of type ``string_view`` or ``binary_view``, of which Arrow can take no rows."""
    for number, kind in enumerate(table.schema.types):
        plain = _PLAIN.get(kind.id)
        if plain is not None:
            table = table.set_column(number, table.schema.field(number).with_type(plain), table[number].cast(plain))
    return table


def _half_character(columns: dict[str, Any]) -> str:
    """Says where the text is that is not Unicode text."""
    for name, values in columns.items():
        for row, value in enumerate(values):
            try:
                str(value).encode()
            except UnicodeEncodeError as e:
                half = f"\\u{ord(e.object[e.start]):04x}"
                return (
                    f"row {row} of the column {name!r}: {half} at character {e.start} is one half of a surrogate pair "
                    "without the other, which no UTF-8 text can hold. Remove it, or repair the text: "
                    'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
                )
    return "the data holds one half of a surrogate pair without the other, which no UTF-8 text can hold"


def truth_values(mask: Any) -> NDArray[np.bool_]:
    """A mask in any of the usual forms as NumPy truth values; null is false."""
    if isinstance(mask, pa.ChunkedArray | pa.Array):
        return numpy_array(mask.fill_null(False)).astype(np.bool_)
    if hasattr(mask, "to_arrow"):
        return truth_values(mask.to_arrow())
    if hasattr(getattr(mask, "dtype", None), "na_value") and hasattr(mask, "fillna"):
        mask = mask.fillna(False)  # of pandas, whose NA is neither true nor false
    values = np.asarray(mask)
    if values.dtype == object:
        return np.fromiter((bool(value) and value == value for value in values), np.bool_, len(values))
    return values.astype(np.bool_)


def row_numbers(data: Any) -> NDArray[np.int64] | None:
    """The index of a pandas frame from which rows were taken: it still has the numbers that they had."""
    index = getattr(data, "index", None)
    if index is None or callable(index):
        return None
    if type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1):
        return None  # as a new frame has it: it says nothing
    values = np.asarray(index)
    return values.astype(np.int64) if values.dtype.kind in "iu" and values.ndim == 1 else None
