"""Listing files and cutting them into tasks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tamis.errors import DataError, PlanError
from tamis.stages.io import FilePartitioningStage
from tamis.tasks import FileGroup


def groups(path: object, **settings: object) -> list[FileGroup]:
    return list(FilePartitioningStage(path, **settings).splits(""))  # type: ignore[arg-type]  # from tests


def names(found: list[FileGroup]) -> list[list[str]]:
    return [[Path(p).name for p in group.data] for group in found]


def make(root: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


def test_small_files_are_grouped_in_listing_order(tmp_path: Path) -> None:
    make(tmp_path, {f"{c}.jsonl": 10_000 for c in "edcba"})
    assert names(groups(str(tmp_path), blocksize=25_000)) == [
        ["a.jsonl", "b.jsonl"],
        ["c.jsonl", "d.jsonl"],
        ["e.jsonl"],
    ]


def test_directories_are_listed_with_all_below_them_in_order_of_names(tmp_path: Path) -> None:
    make(tmp_path, {"b/2.jsonl": 1, "b/1.jsonl": 1, "a.jsonl": 1, "c.jsonl": 1, "b/d/0.jsonl": 1})
    assert names(groups(str(tmp_path))) == [["a.jsonl", "1.jsonl", "2.jsonl", "0.jsonl", "c.jsonl"]]


def test_hidden_files_and_directories_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 1, ".b.jsonl": 1, "_c.jsonl": 1, ".d/e.jsonl": 1, "_logs/f.jsonl": 1})
    assert names(groups(str(tmp_path))) == [["a.jsonl"]]


def test_only_wanted_endings_are_taken_also_compressed(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 1, "b.jsonl.gz": 1, "c.JSONL.zst": 1, "d.txt": 1, "e.jsonl.tmp": 1})
    assert names(groups(str(tmp_path), file_extensions=[".jsonl"])) == [["a.jsonl", "b.jsonl.gz", "c.JSONL.zst"]]


def test_a_file_named_itself_is_taken_whatever_its_ending(tmp_path: Path) -> None:
    make(tmp_path, {"data.dump": 1})
    assert names(groups(str(tmp_path / "data.dump"), file_extensions=[".jsonl"])) == [["data.dump"]]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jsonl", ["a.jsonl"]),
        ("*", ["a.jsonl", "b.jsonl", "c.jsonl"]),
        ("x/*.jsonl", ["b.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "b.jsonl", "c.jsonl"]),
        ("x/**/c.jsonl", ["c.jsonl"]),
        ("**/y/**/*.jsonl", ["c.jsonl"]),
        ("?.jsonl", ["a.jsonl"]),
        ("[ab].jsonl", ["a.jsonl"]),
        ("*.txt", ["n.txt"]),
        ("**/_*.jsonl", ["_v.jsonl"]),
        ("u/**/*.jsonl", ["_v.jsonl", "w.jsonl"]),
        (".h*", [".h.jsonl"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    make(tmp_path, {"a.jsonl": 1, "x/b.jsonl": 1, "x/y/c.jsonl": 1, "n.txt": 1, ".h.jsonl": 1})
    if "_" in pattern or pattern[0] == "u":
        make(tmp_path, {"u/_v.jsonl": 1, "u/_x/w.jsonl": 1, "u/.git/z.jsonl": 1})
    assert names(groups(str(tmp_path / pattern), file_extensions=[".jsonl"])) == [expected]


def test_a_file_with_brackets_in_its_name_is_found(tmp_path: Path) -> None:
    make(tmp_path, {"a[1].jsonl": 1})
    assert names(groups(str(tmp_path / "a[1].jsonl"))) == [["a[1].jsonl"]]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    make(
        tmp_path, {"a.jsonl": 1, ".b.jsonl": 1, "_c.jsonl": 1, ".d/e.jsonl": 1, "_logs/f.jsonl": 1, "g.txt": 1, "h": 1}
    )
    make(tmp_path, {".tamis.json": 1, ".part-000000.jsonl.0123456789abcdef.tmp": 1})
    stage = FilePartitioningStage(str(tmp_path), file_extensions=[".jsonl"])
    assert stage.notes() == []
    list(stage.splits(""))
    [note] = stage.notes()
    for count in ("1 hidden,", "1 hidden (directories)", "1 starting with '_'", "1 ending in .txt"):
        assert count in note
    pattern = FilePartitioningStage(str(tmp_path / "**" / "*.jsonl"), file_extensions=[".jsonl"])
    assert names(list(pattern.splits(""))) == [["_c.jsonl", "a.jsonl", "f.jsonl"]]
    assert pattern.notes() == [
        "left out of the input directories: 1 hidden (directories). A pattern or file_extensions=[...] reads them"
    ]


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.jsonl")).touch()
    except OSError:
        pytest.skip("this file system only takes names in UTF-8")
    with pytest.raises(DataError, match=r"a\\xff\.jsonl: the name of this file is not valid UTF-8"):
        groups(str(tmp_path))


def test_the_input_has_an_id(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 1, "b.jsonl": 1})
    stage = FilePartitioningStage(str(tmp_path))
    first = stage.current_input_id()
    assert first == stage.current_input_id() == FilePartitioningStage(str(tmp_path)).current_input_id()
    assert FilePartitioningStage(str(tmp_path), files_per_partition=1).current_input_id() != first
    os.utime(tmp_path / "a.jsonl", (1, 1))
    assert stage.input_id == first
    assert stage.current_input_id() != first


def test_a_list_is_taken_in_the_order_given(tmp_path: Path) -> None:
    make(tmp_path, {"z/1.jsonl": 1, "a/2.jsonl": 1})
    assert names(groups([str(tmp_path / "z"), str(tmp_path / "a" / "2.jsonl")])) == [["1.jsonl", "2.jsonl"]]


def test_a_large_file_is_cut_into_equal_ranges(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 100_000, "b.jsonl": 10})
    found = groups(str(tmp_path), blocksize=30_000, splittable=True)
    assert [(s.start, s.stop) for g in found for s in g.slices] == [
        (0, 25_000),
        (25_000, 50_000),
        (50_000, 75_000),
        (75_000, 100_000),
        (0, None),
    ]
    assert {s.size for g in found[:4] for s in g.slices} == {100_000}


def test_small_files_before_a_large_one_keep_their_place(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 10, "b.jsonl": 50_000, "c.jsonl": 10})
    found = groups(str(tmp_path), blocksize=30_000, splittable=True)
    assert names(found) == [["a.jsonl"], ["b.jsonl"], ["b.jsonl"], ["c.jsonl"]]


@pytest.mark.parametrize(("name", "splittable"), [("a.jsonl.gz", True), ("a.jsonl.zst", True), ("a.jsonl", False)])
def test_what_cannot_be_cut_stays_whole(tmp_path: Path, name: str, splittable: bool) -> None:
    make(tmp_path, {name: 100_000})
    [group] = groups(str(tmp_path), blocksize=30_000, splittable=splittable)
    assert group.slices[0].is_whole


def test_files_per_partition_counts_whole_files(tmp_path: Path) -> None:
    make(tmp_path, {f"{c}.jsonl": 100_000 for c in "abc"})
    found = groups(str(tmp_path), files_per_partition=2, splittable=True)
    assert names(found) == [["a.jsonl", "b.jsonl"], ["c.jsonl"]]
    assert all(s.is_whole for g in found for s in g.slices)


def test_limit_counts_tasks(tmp_path: Path) -> None:
    make(tmp_path, {f"{c}.jsonl": 1 for c in "abcd"})
    assert names(groups(str(tmp_path), files_per_partition=1, limit=2)) == [["a.jsonl"], ["b.jsonl"]]


def test_groups_are_named_after_their_directory(tmp_path: Path) -> None:
    make(tmp_path, {"wiki/a.jsonl": 1})
    assert groups(str(tmp_path))[0].dataset_name == "wiki"


def test_a_change_of_a_file_changes_the_identity_of_its_task(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 10})
    [before] = groups(str(tmp_path))
    os.utime(tmp_path / "a.jsonl", ns=(1, 1))
    [after] = groups(str(tmp_path))
    assert before.get_deterministic_id() != after.get_deterministic_id()
    assert after.get_deterministic_id() == groups(str(tmp_path))[0].get_deterministic_id()


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"d/a.jsonl": 1})
    monkeypatch.chdir(tmp_path)
    assert groups("d")[0].data == [str(tmp_path / "d" / "a.jsonl")]


def test_a_link_to_a_directory_above_does_not_go_round_in_circles(tmp_path: Path) -> None:
    make(tmp_path, {"d/a.jsonl": 1})
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    assert names(groups(str(tmp_path))) == [["a.jsonl"]]


@pytest.mark.parametrize("pattern", ["", "**/*.jsonl"])
def test_links_that_lead_to_each_other_do_not_go_round_in_circles(tmp_path: Path, pattern: str) -> None:
    make(tmp_path, {"a/1.jsonl": 1, "b/2.jsonl": 1})
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a")
    found = groups(str(tmp_path / pattern))
    assert names(found) == [["1.jsonl", "2.jsonl", "2.jsonl", "1.jsonl"]]


def test_a_pipe_is_refused_by_name_and_left_out_of_a_directory(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 1})
    os.mkfifo(tmp_path / "b.jsonl")
    with pytest.raises(DataError, match=r"b\.jsonl: this is not a regular file"):
        groups(str(tmp_path / "b.jsonl"))
    assert names(groups(str(tmp_path))) == names(groups(str(tmp_path / "*"))) == [["a.jsonl"]]


def test_links_to_other_directories_are_followed(tmp_path: Path) -> None:
    make(tmp_path, {"real/a.jsonl": 1, "in/b.jsonl": 1})
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    assert names(groups(str(tmp_path / "in"))) == [["b.jsonl", "a.jsonl"]]


def test_an_empty_file_and_tiny_blocks(tmp_path: Path) -> None:
    make(tmp_path, {"a.jsonl": 0, "b.jsonl": 150})
    assert names(groups(str(tmp_path), blocksize=100, splittable=True)) == [["a.jsonl"], ["b.jsonl"], ["b.jsonl"]]


def test_the_work_for_each_of_20_000_files_is_small(tmp_path: Path) -> None:
    for i in range(20_000):
        os.close(os.open(tmp_path / f"{i:05d}.jsonl", os.O_CREAT | os.O_WRONLY))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = groups(str(tmp_path))
    finally:
        sys.setprofile(None)
    assert calls < 400 * 20_000  # calls and returns
    assert sum(len(g.data) for g in found) == 20_000
    assert len(found) == 3  # an empty file counts for 4 KiB


def test_a_directory_is_read_when_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"a/1.jsonl": 1, "b/2.jsonl": 1})
    scandir, seen = os.scandir, []

    def watched(path: str) -> object:
        seen.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", watched)
    next(FilePartitioningStage(str(tmp_path), files_per_partition=1).splits(""))
    assert seen == [tmp_path.name, "a"]


def test_both_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"files_per_partition=2 and blocksize='1MB': set only one of them"):
        FilePartitioningStage("data", files_per_partition=2, blocksize="1MB")


@pytest.mark.parametrize("size", ["many", "10 XB", 0, -1, "0MB"])
def test_no_size_is_refused(size: object) -> None:
    with pytest.raises(PlanError, match="is not a valid size"):
        FilePartitioningStage("data", blocksize=size)  # type: ignore[arg-type]  # the mistake under test


def test_no_path_is_refused() -> None:
    with pytest.raises(PlanError, match="file_paths is empty"):
        FilePartitioningStage([])


def test_a_missing_path_is_named_and_the_nearest_one_proposed(tmp_path: Path) -> None:
    make(tmp_path, {"corpus/a.jsonl": 1})
    with pytest.raises(DataError) as error:
        groups(str(tmp_path / "corpsu"))
    assert f"{tmp_path / 'corpsu'}: there is no such file or directory" in str(error.value)
    assert "Did you mean 'corpus'?" in str(error.value)


def test_a_directory_of_other_files_says_what_is_there(tmp_path: Path) -> None:
    make(tmp_path, {"a.parquet": 1, "b.parquet": 1, "c.txt": 1})
    with pytest.raises(DataError) as error:
        groups(str(tmp_path), file_extensions=[".jsonl", ".json"])
    assert "no file ending in .jsonl, .json is in this directory, but 2 x .parquet, 1 x .txt" in str(error.value)
    assert 'Use ParquetReader, or give file_extensions=[".parquet"].' in str(error.value)


def test_an_empty_directory_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file is in this directory: it is empty"):
        groups(str(tmp_path))


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file matches this pattern"):
        groups(str(tmp_path / "*.jsonl"))


@pytest.mark.parametrize("pattern", ["**", "**/*", "**/*.jsonl", "*", "**/y"])
def test_a_pattern_lists_each_file_once(tmp_path: Path, pattern: str) -> None:
    for name in ("a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "x/y/z/d.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    stage = FilePartitioningStage(str(tmp_path / pattern), file_extensions=[".jsonl"])
    found = [os.path.relpath(f.path, tmp_path) for f in stage.files()]
    below_y = ["x/y/c.jsonl", "x/y/z/d.jsonl"]
    assert sorted(found) == (below_y if pattern == "**/y" else ["a.jsonl", "x/b.jsonl", *below_y])


def test_a_file_that_is_named_twice_is_two_tasks_with_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"n": 1}\n', encoding="utf-8")
    folder, file = str(tmp_path / "in"), str(tmp_path / "in" / "a.jsonl")
    for given in ([file, file], [folder, file], [file, folder], [f"{folder}/*.jsonl", file], [folder, f"{folder}/a*"]):
        stage = FilePartitioningStage(given, files_per_partition=1)
        first, second = stage.splits("")
        assert first.data == second.data == [file]
        assert first.get_deterministic_id() != second.get_deterministic_id()
        (alone,) = FilePartitioningStage([given[0]], files_per_partition=1).splits("")
        assert first.get_deterministic_id() == alone.get_deterministic_id()
