"""Names that scripts for NeMo Curator import from places that tamis does not have: they are there, and they work."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tamis
from tamis import compat
from tamis.compat.config import create_executor_from_yaml, create_pipeline_from_yaml
from tamis.compat.executors import BaseExecutor
from tamis.compat.files import get_all_file_paths_under, is_remote_url, merge_file_prefixes, split_jsonl_file_by_size
from tamis.compat.pipeline import Pipeline
from tamis.compat.slurm_array import SlurmArrayRetryPlan, build_slurm_array_retry_submissions, find_slurm_array_retries
from tamis.compat.workflow import TaskPerfUtils, WorkflowBase, WorkflowRunResult
from tamis.errors import PlanError, RecipeError
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlReader
from tamis.stages.io.megatron import MegatronPair, write_index
from tamis.tasks import DocumentBatch, Task

# What the tutorials of NeMo Curator import, without what decodes sound or video.
IMPORTED = {
    "backends.base": "BaseExecutor NodeInfo WorkerMetadata",
    "backends.ray_actor_pool": "RayActorPoolExecutor",
    "backends.ray_data": "RayDataExecutor",
    "backends.slurm_array": (
        "build_slurm_array_retry_submissions find_slurm_array_retries format_slurm_array_indices "
        "is_slurm_array_driver_process"
    ),
    "backends.utils": "get_available_cpu_gpu_resources",
    "backends.xenna": "XennaExecutor",
    "config.run": "create_pipeline_from_yaml",
    "core.client": "RayClient SlurmRayClient",
    "core.constants": (
        "DEFAULT_RAY_CLIENT_SERVER_PORT DEFAULT_RAY_DASHBOARD_HOST DEFAULT_RAY_DASHBOARD_PORT "
        "DEFAULT_RAY_METRICS_PORT DEFAULT_RAY_PORT DEFAULT_RAY_TEMP_DIR"
    ),
    "pipeline": "Pipeline",
    "pipeline.pipeline": "Pipeline",
    "pipeline.workflow": "WorkflowBase WorkflowRunResult",
    "stages.base": "ProcessingStage",
    "stages.deduplication.exact": "ExactDeduplicationWorkflow ExactDuplicateIdentification",
    "stages.deduplication.exact.identification": "ExactDuplicateIdentification",
    "stages.deduplication.exact.workflow": "ExactDeduplicationWorkflow",
    "stages.deduplication.fuzzy": "FuzzyDeduplicationWorkflow",
    "stages.deduplication.fuzzy.buckets_to_edges": "BucketsToEdgesStage",
    "stages.deduplication.fuzzy.connected_components": "ConnectedComponentsStage",
    "stages.deduplication.fuzzy.identify_duplicates": "IdentifyDuplicatesStage",
    "stages.deduplication.fuzzy.lsh.stage": "LSHStage",
    "stages.deduplication.fuzzy.minhash": "MinHashStage",
    "stages.deduplication.fuzzy.utils": "CURATOR_DEFAULT_MINHASH_FIELD CURATOR_FUZZY_DUPLICATE_GROUP_FIELD",
    "stages.deduplication.fuzzy.workflow": "FuzzyDeduplicationWorkflow",
    "stages.deduplication.id_generator": (
        "CURATOR_DEDUP_ID_STR IdGenerator create_id_generator_actor get_id_generator_actor kill_id_generator_actor "
        "write_id_generator_to_disk"
    ),
    "stages.deduplication.semantic": "SemanticDeduplicationWorkflow",
    "stages.deduplication.semantic.identify_duplicates": "IdentifyDuplicatesStage",
    "stages.deduplication.semantic.kmeans": "KMeansReadFitWriteStage KMeansStage",
    "stages.deduplication.semantic.pairwise": "PairwiseCosineSimilarityStage PairwiseStage",
    "stages.deduplication.semantic.pairwise_io": "ClusterWiseFilePartitioningStage",
    "stages.deduplication.semantic.ranking": "RankingStrategy",
    "stages.deduplication.semantic.workflow": "SemanticDeduplicationWorkflow",
    "stages.file_partitioning": "FilePartitioningStage",
    "stages.function_decorators": "processing_stage",
    "stages.image.deduplication.removal": "ImageDuplicatesRemovalStage",
    "stages.image.embedders.clip_embedder": "ImageEmbeddingStage",
    "stages.image.filters.aesthetic_filter": "ImageAestheticFilterStage",
    "stages.image.filters.base": "BaseFilterStage",
    "stages.image.filters.nsfw_filter": "ImageNSFWFilterStage",
    "stages.image.io.convert": "ConvertImageBatchToDocumentBatchStage",
    "stages.image.io.image_reader": "ImageReaderStage",
    "stages.image.io.image_writer": "ImageWriterStage",
    "stages.math.classifiers": "FineMathClassifier",
    "stages.math.classifiers.finemath": "FineMathClassifier",
    "stages.resources": "Resources",
    "stages.text.classifiers": (
        "AegisClassifier ContentTypeClassifier DistributedDataClassifier DomainClassifier FineWebEduClassifier "
        "FineWebMixtralEduClassifier FineWebNemotronEduClassifier InstructionDataGuardClassifier "
        "MultilingualDomainClassifier PromptTaskComplexityClassifier QualityClassifier"
    ),
    "stages.text.classifiers.aegis": "AegisClassifier InstructionDataGuardClassifier",
    "stages.text.classifiers.base": "DistributedDataClassifier",
    "stages.text.classifiers.content_type": "ContentTypeClassifier",
    "stages.text.classifiers.domain": "DomainClassifier MultilingualDomainClassifier",
    "stages.text.classifiers.fineweb_edu": (
        "FineWebEduClassifier FineWebMixtralEduClassifier FineWebNemotronEduClassifier"
    ),
    "stages.text.classifiers.prompt_task_complexity": "PromptTaskComplexityClassifier",
    "stages.text.classifiers.quality": "QualityClassifier",
    "stages.text.deduplication": "TextDuplicatesRemovalWorkflow",
    "stages.text.deduplication.removal": "TextDuplicatesRemovalStage",
    "stages.text.deduplication.removal_workflow": "TextDuplicatesRemovalWorkflow",
    "stages.text.deduplication.semantic": "TextSemanticDeduplicationWorkflow",
    "stages.text.download.base": (
        "DocumentDownloadExtractStage DocumentDownloader DocumentExtractor DocumentIterator URLGenerator"
    ),
    "stages.text.filters": "DocumentFilter Filter Score ScoreFilter",
    "stages.text.filters.heuristic": "SubstringFilter",
    "stages.text.filters.token": "TokenCountFilter",
    "stages.text.io.reader": "JsonlReader ParquetReader",
    "stages.text.io.reader.jsonl": "JsonlReader",
    "stages.text.io.reader.parquet": "ParquetReader",
    "stages.text.io.writer": "JsonlWriter ParquetWriter",
    "stages.text.io.writer.jsonl": "JsonlWriter",
    "stages.text.io.writer.megatron_tokenizer": "MegatronTokenizerWriter",
    "stages.text.io.writer.parquet": "ParquetWriter",
    "stages.text.modifiers": "DocumentModifier Modify",
    "stages.text.modifiers.string": "LineRemover MarkdownRemover QuotationRemover Slicer",
    "stages.text.modifiers.unicode": "UnicodeReformatter",
    "stages.text.modules.add_id": "AddId",
    "stages.text.modules.joiner": "DocumentJoiner",
    "stages.text.modules.splitter": "DocumentSplitter",
    "tasks": "AudioTask DocumentBatch EmptyTask FileGroupTask ImageBatch ImageObject Task",
    "tasks.document": "DocumentBatch",
    "tasks.image": "ImageBatch ImageObject",
    "tasks.utils": "TaskPerfUtils",
    "tasks.video": "Clip ClipStats Video VideoMetadata VideoTask",
    "utils.client_utils": "is_remote_url",
    "utils.file_utils": "get_all_file_paths_under get_fs",
    "utils.hash_utils": "get_deterministic_hash",
    "utils.merge_file_prefixes": "merge_file_prefixes",
    "utils.split_large_files": "split_jsonl_file_by_size",
}


@pytest.fixture
def active() -> Iterator[None]:
    compat.activate()
    yield
    compat.deactivate()


@pytest.mark.usefixtures("active")
@pytest.mark.parametrize("module", IMPORTED)
def test_what_tutorials_import_is_there(module: str) -> None:
    found = importlib.import_module(f"nemo_curator.{module}")
    assert [name for name in IMPORTED[module].split() if not hasattr(found, name)] == []


def test_files_are_listed_as_asked(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.JSONL", "c.txt", "below/d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    def listed(**settings: Any) -> list[str]:
        return [str(Path(p).relative_to(tmp_path)) for p in get_all_file_paths_under(str(tmp_path), **settings)]

    assert listed() == ["a.JSONL", "b.jsonl", "c.txt"]
    assert listed(keep_extensions="jsonl") == ["a.JSONL", "b.jsonl"]
    assert listed(keep_extensions=[".txt"], recurse_subdirectories=True) == ["c.txt"]
    assert listed(recurse_subdirectories=True) == ["a.JSONL", "b.jsonl", "below/d.jsonl", "c.txt"]
    assert get_all_file_paths_under(str(tmp_path / "none")) == []
    assert is_remote_url("memory://x/a.jsonl")


def test_a_json_lines_file_is_split_between_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"n": n, "text": "x" * size}) + "\n" for n, size in enumerate([600_000, 600_000, 3_000_000, 5])]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    split_jsonl_file_by_size(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), target_size_mb=1)
    made = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in made] == ["a_0.jsonl", "a_1.jsonl", "a_2.jsonl", "a_3.jsonl"]
    assert "".join(path.read_text() for path in made) == "".join(lines)


def test_pairs_for_megatron_are_merged(tmp_path: Path) -> None:
    for name, ids in (("b", [3]), ("a", [1, 2])):
        np.array(ids, "<u2").tofile(tmp_path / f"{name}.bin")
        with (tmp_path / f"{name}.idx").open("wb") as sink:
            write_index(sink, np.array([len(ids)]), np.dtype("<u2"))
    (tmp_path / "out").mkdir()
    merge_file_prefixes(str(tmp_path), str(tmp_path / "out" / "all"))
    merged = MegatronPair.open(str(tmp_path / "out" / "all"))
    assert [merged[n].tolist() for n in range(len(merged))] == [[1, 2], [3]]
    (tmp_path / "b.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.bin is missing"):
        merge_file_prefixes(str(tmp_path), str(tmp_path / "out" / "more"))


@pytest.mark.usefixtures("active")
def test_a_pipeline_of_a_hydra_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "a b"}\n')
    stages = [
        {"_target_": "nemo_curator.stages.text.io.reader.JsonlReader", "file_paths": str(tmp_path / "a.jsonl")},
        {
            "_target_": "nemo_curator.stages.text.filters.ScoreFilter",
            "filter_obj": {"_target_": "nemo_curator.stages.text.filters.WordCountFilter", "min_words": 2},
            "resources": {"cpus": 0.5},
        },
    ]
    pipeline = create_pipeline_from_yaml({"stages": stages})
    result = pipeline.run(create_executor_from_yaml({}), progress="off", run_dir=str(tmp_path / "run"))
    assert [task.data["text"].tolist() for task in result] == [["a b"]]
    with pytest.raises(RecipeError, match=r"subprocess\.Popen is not a stage"):
        create_pipeline_from_yaml({"stages": [{"_target_": "subprocess.Popen", "args": "true"}]})


class Backwards(BaseExecutor):
    """An executor of a script's own."""

    def execute(self, stages: list[ProcessingStage[Any, Any]], initial_tasks: list[Task[Any]] | None = None) -> Any:
        return [stage.name for stage in reversed(stages)], initial_tasks


def test_an_executor_of_the_scripts_own_is_given_the_stages(tmp_path: Path) -> None:
    pipeline = Pipeline("p", stages=[JsonlReader(str(tmp_path))])
    names, tasks = pipeline.run(Backwards(config={"a": 1}))
    assert len(names) == 2  # the reader is unfolded
    assert tasks == []
    assert isinstance(tamis.LocalExecutor(), BaseExecutor)
    assert not isinstance(pipeline, BaseExecutor)


def test_a_workflow_sums_up_what_its_pipelines_did(tmp_path: Path) -> None:
    class Twice(WorkflowBase):
        def run(self) -> WorkflowRunResult:
            result = WorkflowRunResult("twice")
            for name in ("one", "two"):
                tasks = [DocumentBatch({"text": ["a", "b"]})]
                made = Pipeline(name, stages=[tamis.stages.text.modules.AddId(id_field="id")]).run(
                    initial_tasks=tasks, progress="off", run_dir=str(tmp_path / name)
                )
                result.add_pipeline_tasks(name, made)
            return result

    import tamis.stages.text.modules

    result = Twice().run()
    assert TaskPerfUtils.get_aggregated_stage_stat(result, "AddId", "num_items_processed") == 4
    summed = TaskPerfUtils.aggregate_task_metrics(result, prefix="p")
    assert summed["p_one_AddId_num_items_processed_sum"] == 2


def test_unfinished_shards_of_an_array_of_nemo_curator_are_found(tmp_path: Path) -> None:
    records = tmp_path / ".nemo_curator_metadata" / ".slurm_array_completion"
    records.mkdir(parents=True)
    array = {"total_shards": 4, "minimum_shard_index": 1}
    (records / "run.json").write_text(json.dumps(array))
    for shard in (1, 3):
        (records / f"completed_slurm_array_{shard}.json").write_text(json.dumps({**array, "shard_index": shard}))
    assert find_slurm_array_retries(tmp_path) == SlurmArrayRetryPlan((2, 4), 4, 1)
    assert find_slurm_array_retries(tmp_path / "elsewhere") is None


def test_a_slurm_array_is_refused_because_each_task_would_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(build_slurm_array_retry_submissions(SlurmArrayRetryPlan((1, 9), 10, 0))) == 1
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "10")
    pipeline = Pipeline("p", stages=[JsonlReader("nothing")])
    with pytest.raises(PlanError, match="one of 10 tasks of a Slurm array"):
        pipeline.run()
    monkeypatch.setenv("NEMO_CURATOR_SLURM_ARRAY_ENABLED", "0")
    with pytest.raises(Exception, match="nothing"):
        pipeline.run(progress="off")
