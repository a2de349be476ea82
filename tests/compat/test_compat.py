"""Scripts that import ``nemo_curator`` get tamis, or a clear word about what it does not have."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tamis.compat.images
import tamis.stages.base
import tamis.stages.function_decorators
import tamis.tasks
from tamis import compat
from tamis.compat import hints, module_map
from tamis.compat.finder import tamis_modules_for
from tamis.core.client import RayClient, SlurmRayClient
from tamis.errors import TamisError
from tamis.stages.io import FilePartitioningStage, JsonlReader, ParquetWriter
from tamis.stages.text.columns import AddId
from tamis.stages.text.download import DocumentDownloader, URLGenerator
from tamis.stages.text.filters import (
    DocumentFilter,
    FastTextLangId,
    HistogramFilter,
    RepeatedLinesFilter,
    ScoreFilter,
    TokenCountFilter,
    WordCountFilter,
)
from tamis.stages.text.filters.code import AlphaFilter
from tamis.stages.text.modifiers import DocumentModifier, Modify, UnicodeReformatter, UrlRemover
from tamis.stages.text.segments import DocumentJoiner
from tamis.stages.text.words import get_word_splitter


@pytest.fixture
def active() -> Iterator[None]:
    compat.activate()
    yield
    compat.deactivate()


@pytest.fixture
def real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that is really called nemo_curator."""
    package = tmp_path / "nemo_curator"
    package.mkdir()
    (package / "__init__.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    compat.deactivate()
    for name in [n for n in sys.modules if n.partition(".")[0] == "nemo_curator"]:
        del sys.modules[name]


def imported(statement: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(statement, names)
    return names


def refused(statement: str) -> str:
    with pytest.raises(ImportError) as caught:
        imported(statement)
    assert isinstance(caught.value, TamisError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("from nemo_curator.stages.base import ProcessingStage as X", tamis.stages.base.ProcessingStage),
        ("from nemo_curator.stages.core import CompositeStage as X", tamis.stages.base.CompositeStage),
        ("import nemo_curator.stages.base as m; X = m.ProcessingStage", tamis.stages.base.ProcessingStage),
        ("from nemo_curator.stages import base; X = base.ProcessingStage", tamis.stages.base.ProcessingStage),
        (
            "from nemo_curator.stages.function_decorators import processing_stage as X",
            tamis.stages.function_decorators.processing_stage,
        ),
        ("from nemo_curator.tasks import FileGroupTask as X", tamis.tasks.FileGroup),
        ("from nemo_curator.tasks.file_group import FileGroupTask as X", tamis.tasks.FileGroup),
        ("from nemo_curator.tasks import EmptyTask as X", tamis.tasks.EmptyTask),
        ("from nemo_curator.tasks import ImageObject as X", tamis.tasks.ImageObject),
        ("from nemo_curator.tasks.image import ImageBatch as X", tamis.compat.images.ImageBatch),
        ("from nemo_curator.tasks.video import VideoTask as X", tamis.tasks.VideoTask),
        ("from nemo_curator.tasks.audio_task import AudioTask as X", tamis.tasks.AudioTask),
        ("from nemo_curator.tasks import _EmptyTask as X", tamis.tasks.EmptyTask),
        ("from nemo_curator.backends.base import WorkerMetadata as X", tamis.stages.base.WorkerMetadata),
        ("from nemo_curator.backends.base import NodeInfo as X", tamis.stages.base.NodeInfo),
        ("from nemo_curator.stages.file_partitioning import FilePartitioningStage as X", FilePartitioningStage),
        ("from nemo_curator.stages.text.io.reader import JsonlReader as X", JsonlReader),
        ("from nemo_curator.stages.text.io.writer.parquet import ParquetWriter as X", ParquetWriter),
        ("from nemo_curator.stages.text.filters.heuristic.string import WordCountFilter as X", WordCountFilter),
        ("from nemo_curator.stages.text.modules.score_filter import ScoreFilter as X", ScoreFilter),
        ("from nemo_curator.stages.text.modules import Modify as X", Modify),
        ("from nemo_curator.stages.text.modules import AddId as X", AddId),
        ("from nemo_curator.stages.text.modules.add_id import AddId as X", AddId),
        ("from nemo_curator.stages.text.modules.joiner import DocumentJoiner as X", DocumentJoiner),
        (
            "from nemo_curator.stages.text.filters.heuristic.repetition import RepeatedLinesFilter as X",
            RepeatedLinesFilter,
        ),
        ("from nemo_curator.stages.text.filters.fasttext.fasttext_filters import FastTextLangId as X", FastTextLangId),
        ("from nemo_curator.stages.text.filters.histogram import HistogramFilter as X", HistogramFilter),
        ("from nemo_curator.stages.text.filters.token.token_count import TokenCountFilter as X", TokenCountFilter),
        ("from nemo_curator.stages.text.utils.text_utils import get_word_splitter as X", get_word_splitter),
        ("from nemo_curator.stages.text.filters.heuristic.code import AlphaFilter as X", AlphaFilter),
        ("from nemo_curator.stages.text.filters.heuristic.code.code import AlphaFilter as X", AlphaFilter),
        ("from nemo_curator.stages.text.download import DocumentDownloader as X", DocumentDownloader),
        ("from nemo_curator.stages.text.download.base.download import DocumentDownloader as X", DocumentDownloader),
        ("from nemo_curator.stages.text.download.base import URLGenerator as X", URLGenerator),
        ("from nemo_curator.stages.text.filters.doc_filter import DocumentFilter as X", DocumentFilter),
        ("from nemo_curator.stages.text.modifiers.doc_modifier import DocumentModifier as X", DocumentModifier),
        ("from nemo_curator.stages.text.modifiers.string import UrlRemover as X", UrlRemover),
        ("from nemo_curator.stages.text.modifiers.string.url_remover import UrlRemover as X", UrlRemover),
        ("from nemo_curator.stages.text.modifiers.url_remover import UrlRemover as X", UrlRemover),
        (
            "from nemo_curator.stages.text.modifiers.unicode.reformatter import UnicodeReformatter as X",
            UnicodeReformatter,
        ),
        ("from nemo_curator.core.client import RayClient as X", RayClient),
        ("from nemo_curator.core.client import SlurmRayClient as X", SlurmRayClient),
        ("from nemo_curator import __version__ as X", tamis.__version__),
        ("from nemo_curator.utils.performance_utils import StagePerfStats as X", tamis.tasks.StagePerf),
    ],
)
@pytest.mark.usefixtures("active")
def test_names_are_the_very_same_objects(statement: str, expected: object) -> None:
    assert imported(statement)["X"] is expected


@pytest.mark.usefixtures("active")
@pytest.mark.parametrize(("module", "on_tamis"), [("nemo_curator", tamis), ("nemo_curator.tasks", tamis.tasks)])
def test_a_star_brings_what_the_module_offers(module: str, on_tamis: ModuleType) -> None:
    names = imported(f"from {module} import *")
    assert {n for n in names if n != "__builtins__"} == set(on_tamis.__all__)


@pytest.mark.parametrize("module", module_map.MODULES)
def test_every_place_in_the_table_is_there(module: str) -> None:
    modules = {m.__name__ for m in tamis_modules_for(f"nemo_curator.{module}")}
    assert modules >= {f"tamis.{place}" for place in module_map.MODULES[module]}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("from nemo_curator.tasks import DocumentBach", ["nemo_curator.tasks.DocumentBach", "'DocumentBatch'?"]),
        ("import nemo_curator.stages.bas", ["nemo_curator.stages.bas is not in tamis", "'base'?"]),
        ("from nemo_curator.stages.text.filters import Tee", ["from tamis.stages.flow import Tee"]),
        ("from nemo_curator.tasks import Nonsense", ["nemo_curator.tasks has AudioBatch, ", "tamis stages"]),
        ("import nemo_curator.nonsense.more", ["nemo_curator.nonsense is not in tamis"]),
        ("from nemo_curator.tasks.interleaved import InterleavedBatch", ["interleaved", "tamis.tasks.VideoTask"]),
        ("from nemo_curator.stages.video.io.video_reader import VideoReader", ["nemo_curator.stages.video", "video"]),
        (
            "from nemo_curator.stages.text.download import CommonCrawlDownloadExtractStage",
            ["not built yet", "tamis.stages.text.download.DocumentDownloadExtractStage"],
        ),
        ("from nemo_curator.datasets import DocumentDataset", ["Dask"]),
        ("from nemo_curator.filters import WordCountFilter", ["Dask"]),
        ("import nemo_curator.modifiers", ["Dask"]),
        ("from nemo_curator.models.client.llm_client import GenerationConfig", ["language model"]),
        ("from nemo_curator.stages.math.download import Anything", ["mathematical"]),
    ],
)
@pytest.mark.usefixtures("active")
def test_what_tamis_lacks_is_named_with_what_to_use_instead(statement: str, words: list[str]) -> None:
    message = refused(statement)
    assert [w for w in words if w not in message] == []


@pytest.mark.usefixtures("active")
def test_a_missing_attribute_is_an_attribute_error() -> None:
    module = importlib.import_module("nemo_curator.tasks")
    assert not hasattr(module, "Nonsense")


def test_hints_name_only_what_there_is() -> None:
    texts = {*hints.NAMES.values(), *hints.MODULES.values()}
    for path in {p for text in texts for p in re.findall(r"tamis(?:\.\w+)+", text)}:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(path), path


@pytest.mark.parametrize("module", hints.MODULES)
def test_there_is_no_hint_for_a_module_that_is_there(module: str) -> None:
    assert tamis_modules_for(f"nemo_curator.{module}") == [], "it is built now: remove its hint"


@pytest.mark.usefixtures("real_one")
def test_a_real_package_is_hidden_with_a_warning_and_comes_back() -> None:
    assert imported("from nemo_curator import REAL")["REAL"]
    with pytest.warns(UserWarning, match="nemo_curator is installed"):
        compat.activate()
    assert imported("from nemo_curator.tasks import Task")["Task"] is tamis.tasks.Task
    assert "REAL" in refused("from nemo_curator import REAL")
    compat.deactivate()
    assert imported("from nemo_curator import REAL")["REAL"]


def test_deactivate_undoes_everything() -> None:
    before = (list(sys.meta_path), list(sys.path))
    compat.activate()
    importlib.import_module("nemo_curator.tasks")
    compat.deactivate()
    assert (list(sys.meta_path), list(sys.path)) == before
    assert [n for n in sys.modules if n.startswith("nemo_curator")] == []
    assert tamis.tasks.__spec__ is not None
    assert tamis.tasks.__spec__.name == "tamis.tasks"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nemo_curator")


@pytest.mark.usefixtures("active")
def test_activating_twice_is_the_same_as_once() -> None:
    finders = len(sys.meta_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compat.activate()
    assert len(sys.meta_path) == finders


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_script_runs_unchanged_with_workers_in_other_processes(tmp_path: Path) -> None:
    script = """
        import os, sys
        import nemo_curator.stages.resources as resources
        from helper import suffix
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.base import ProcessingStage
        from nemo_curator.tasks import DocumentBatch
        from tamis import LocalExecutor

        class Mark(ProcessingStage[DocumentBatch, DocumentBatch]):
            resources = resources.Resources(cpus=1.0)

            def process(self, task):
                from nemo_curator.tasks import DocumentBatch as Batch  # found in the worker, too

                assert isinstance(self, ProcessingStage) and resources.Resources(gpus=1).requires_gpu
                rows = [{"text": t + suffix(), "pid": os.getpid()} for t in task.data["text"]]
                return Batch(data=rows, dataset_name=task.dataset_name)

        batches = [DocumentBatch(data=[{"text": t}], dataset_name="d") for t in "abc"]
        executor = LocalExecutor(substrate="processes", workers=2)
        result = Pipeline(name="p", stages=[Mark()]).run(executor, initial_tasks=batches, progress="off")
        rows = [row for task in result for row in task.to_pyarrow().to_pylist()]
        print(sys.argv[1:], [row["text"] for row in rows], os.getpid() in {row["pid"] for row in rows})
    """
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "script.py").write_text(textwrap.dedent(script))
    (folder / "helper.py").write_text("from nemo_curator.tasks import Task\n\ndef suffix():\n    return '!'\n")
    done = python("-m", "tamis.compat", "scripts/script.py", "--one", "2", folder=tmp_path)
    assert done.stdout == "['--one', '2'] ['a!', 'b!', 'c!'] False\n", done.stderr


def test_tasks_of_ones_own_with_a_pandas_frame(tmp_path: Path) -> None:
    script = """
        from dataclasses import dataclass, field
        import pandas as pd
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.base import ProcessingStage
        from nemo_curator.tasks import Task, _EmptyTask

        @dataclass
        class Reviews(Task[pd.DataFrame]):
            data: pd.DataFrame = field(default_factory=pd.DataFrame)

            @property
            def num_items(self) -> int:
                return len(self.data)

        class Make(ProcessingStage[_EmptyTask, Reviews]):
            def process(self, task: _EmptyTask) -> list[Reviews]:
                frames = [pd.DataFrame({"stars": [n]}) for n in range(3)]
                return [Reviews(data=frame, task_id=str(n), dataset_name="r") for n, frame in enumerate(frames)]

        class Judge(ProcessingStage[Reviews, Reviews]):
            def process(self, task: Reviews) -> Reviews:
                task.data["good"] = task.data["stars"] > 1
                return task

        result = Pipeline(name="reviews", stages=[Make(), Judge()]).run(progress="off")
        print([task.data["good"].tolist() for task in result], type(result[0]) is Reviews)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    done = python("-m", "tamis.compat", "script.py", folder=tmp_path)
    assert done.stdout == "[[False], [False], [True]] True\n", done.stderr


def test_a_module_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text("import nemo_curator.tasks, sys\nprint(__name__, sys.argv[1:])\n")
    assert python("-m", "tamis.compat", "-m", "my_module", "x", folder=tmp_path).stdout == "__main__ ['x']\n"


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = python("-m", "tamis.compat", "nothing.py", folder=tmp_path)
    assert done.returncode == 1
    assert "there is no file 'nothing.py'" in done.stderr
