"""The small column stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.errors import ColumnError
from tamis.pipeline import Pipeline
from tamis.stages.text.columns import AddId, DropColumns, RenameColumns, SelectColumns
from tamis.tasks import DocumentBatch

BATCH = DocumentBatch({"text": ["a", "b"], "url": ["u", "v"], "n": [1, 2]}, task_id="t", order=(7,))


def test_select_keeps_columns_in_the_order_given() -> None:
    assert SelectColumns(["n", "text"]).process(BATCH).get_columns() == ["n", "text"]


def test_drop_leaves_columns_out() -> None:
    assert DropColumns(["url", "n"]).process(BATCH).get_columns() == ["text"]


def test_rename_keeps_order_and_data() -> None:
    result = RenameColumns({"url": "link", "text": "url"}).process(BATCH)
    assert result.get_columns() == ["url", "link", "n"]
    assert result.data["url"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (SelectColumns(["url"]), {"url"}),
        (DropColumns(["url"]), {"text", "n"}),
        (RenameColumns({"url": "link"}), {"text", "link", "n"}),
        (AddId("id"), {"text", "url", "n", "id"}),
    ],
)
def test_columns_behind_the_stage_are_known_beforehand(stage: Any, expected: set[str]) -> None:
    before = frozenset(BATCH.get_columns())
    assert stage.columns_after(before) == expected
    assert set(stage.process(BATCH).get_columns()) == expected


@pytest.mark.parametrize("stage", [DropColumns(["url"]), RenameColumns({"url": "link"}), AddId("id")])
def test_unknown_columns_stay_unknown(stage: Any) -> None:
    assert stage.columns_after(None) is None


def test_select_makes_unknown_columns_known() -> None:
    assert SelectColumns(["url"]).columns_after(None) == frozenset({"url"})


@pytest.mark.parametrize("stage", [SelectColumns(["ulr"]), DropColumns(["ulr"]), RenameColumns({"ulr": "link"})])
def test_missing_column_is_an_error_with_a_suggestion(stage: Any) -> None:
    with pytest.raises(ColumnError, match=r"there is no column 'ulr'.*Did you mean 'url'"):
        stage.process(BATCH)


def test_rename_to_a_name_that_is_taken_is_refused() -> None:
    stage = RenameColumns({"url": "text"})
    with pytest.raises(ColumnError, match="already a column 'text'"):
        stage.process(BATCH)
    with pytest.raises(ColumnError, match="already a column 'text'"):
        stage.columns_after(frozenset(BATCH.get_columns()))


@pytest.mark.parametrize("make", [lambda: SelectColumns("text"), lambda: DropColumns("text")])  # type: ignore[arg-type]  # the error is the point
def test_columns_given_as_one_text_are_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="give a list of columns"):
        make()


def test_column_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'text' is named twice"):
        SelectColumns(["text", "text"])


@pytest.mark.parametrize(
    ("order", "prefix", "expected"),
    [
        ((12, 3), None, ["000012-0003_0", "000012-0003_1"]),
        ((12,), "web", ["web_000012_0", "web_000012_1"]),
        ((), None, ["t_0", "t_1"]),
    ],
)
def test_ids_follow_from_the_place_in_the_input(
    order: tuple[int, ...], prefix: str | None, expected: list[str]
) -> None:
    batch = DocumentBatch({"text": ["a", "b"]}, task_id="t", order=order)
    assert AddId("id", prefix).process(batch).data["id"].to_pylist() == expected


def test_ids_do_not_replace_a_column_unless_told_to(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match="overwrite=True"):
        AddId("url").process(BATCH)
    with pytest.raises(ColumnError, match="would replace the column 'url'"):
        Pipeline("p", stages=[AddId("url")]).run(initial_tasks=[BATCH], run_dir=str(tmp_path / "run"), progress="off")
    result = AddId("url", overwrite=True).process(BATCH)
    assert result.get_columns() == BATCH.get_columns()
    assert result.data["url"].to_pylist() == ["000007_0", "000007_1"]
