"""What the planner makes of a list of stages, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tamis.errors import ColumnError, PlanError, TypeMismatchError
from tamis.pipeline import Pipeline
from tamis.plan import make_plan
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlWriter
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, EmptyTask, FileGroup


class Make(ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task: EmptyTask) -> DocumentBatch:
        return DocumentBatch({"text": ["a"], "lang": ["en"]})

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str]:
        return frozenset({"text", "lang"})


@dataclass
class Needs(ProcessingStage[DocumentBatch, DocumentBatch]):
    column: str = "text"
    adds: str = ""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.column]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.adds] if self.adds else []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Sink(ProcessingStage[DocumentBatch, FileGroup]):
    is_sink_stage = True

    def process(self, task: DocumentBatch) -> FileGroup:
        return FileGroup(["x"])

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


class Two(CompositeStage[DocumentBatch, DocumentBatch]):
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [Needs().with_(name="first"), Needs().with_(name="second")]


def groups(*stages: ProcessingStage[Any, Any]) -> list[list[str]]:
    plan = make_plan("p", stages)
    return [[plan.vertices[v].name for v in g.vertices] for g in plan.groups]


def test_composites_are_unfolded_also_nested() -> None:
    class Four(CompositeStage[DocumentBatch, DocumentBatch]):
        def decompose(self) -> list[ProcessingStage[Any, Any]]:
            return [Two(), Two()]

    plan = make_plan("p", [Make(), Four()])
    assert [v.name for v in plan.vertices] == ["Make", "first", "second", "first #2", "second #2"]


def test_settings_of_a_composite_reach_the_stage_they_name() -> None:
    plan = make_plan("p", [Make(), Two().with_({"second": {"resources": Resources(cpus=3)}})])
    assert [v.stage.resources.cpus for v in plan.vertices] == [1, 1, 3]


def test_a_setting_for_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match=r"no stage of that name, only first, second. Did you mean 'second'\?"):
        make_plan("p", [Make(), Two().with_({"secnd": {"batch_size": 2}})])


def test_a_missing_column_is_refused_with_what_is_there() -> None:
    with pytest.raises(
        ColumnError, match=r"stage 'Needs' needs the column 'txt'.*Available: lang, text. Did you mean 'text'\?"
    ):
        make_plan("p", [Make(), Needs("txt")])


def test_a_column_that_a_stage_adds_is_there_for_the_next() -> None:
    plan = make_plan("p", [Make(), Needs("text", adds="score"), Needs("score")])
    assert plan.columns[-1] == {"text", "lang", "score"}


def test_behind_a_stage_that_does_not_say_what_it_adds_nothing_is_refused() -> None:
    @processing_stage(name="mystery")
    def mystery(task: DocumentBatch) -> DocumentBatch:
        return task

    plan = make_plan("p", [Make(), mystery, Needs("anything")])
    assert plan.columns[1] is None


def test_a_stage_that_takes_another_kind_of_task_is_refused() -> None:
    class TakesFiles(ProcessingStage[FileGroup, DocumentBatch]):
        def process(self, task: FileGroup) -> None:
            return None

    with pytest.raises(TypeMismatchError, match="stage 'TakesFiles' takes FileGroup, but Make gives DocumentBatch"):
        make_plan("p", [Make(), TakesFiles()])


def test_a_pipeline_that_starts_with_rows_must_be_given_some() -> None:
    with pytest.raises(TypeMismatchError, match=r"Begin with a reader .* or give run\(initial_tasks"):
        make_plan("p", [Needs()])


def test_a_stage_without_process_is_refused() -> None:
    class Unfinished(ProcessingStage[DocumentBatch, DocumentBatch]):
        pass

    with pytest.raises(PlanError, match=r"stage 'Unfinished' does nothing.*process or process_batch"):
        make_plan("p", [Make(), Unfinished()])


def test_an_empty_pipeline_is_refused() -> None:
    with pytest.raises(PlanError, match="has no stages"):
        Pipeline("p").plan()


def test_a_class_instead_of_a_stage_is_refused() -> None:
    with pytest.raises(TypeError, match=r"was given the class: add an object, Make\(...\)"):
        Pipeline("p").add_stage(Make)  # type: ignore[arg-type]  # the mistake under test


def test_neighbours_are_fused() -> None:
    assert groups(Make(), Needs(), Needs(), Sink()) == [["Make"], ["Needs", "Needs #2", "Sink"]]


def test_a_stage_with_a_gpu_has_workers_of_its_own() -> None:
    gpu = Needs().with_(name="gpu", resources=Resources(gpus=0.5))
    assert groups(Make(), Needs(), gpu, Sink()) == [["Make"], ["Needs"], ["gpu"], ["Sink"]]


def test_a_stage_with_other_cpus_or_workers_has_workers_of_its_own() -> None:
    four = Needs().with_(name="four", resources=Resources(cpus=4))
    one = Needs().with_(name="one", num_workers=1)
    assert groups(Make(), Needs(), four, one) == [["Make"], ["Needs"], ["four"], ["one"]]


def test_a_stage_that_makes_many_tasks_lets_them_spread() -> None:
    @processing_stage(name="many", fans_out=True)
    def many(task: DocumentBatch) -> list[DocumentBatch]:
        return [task, task]

    assert groups(Make(), Needs(), many, Sink()) == [["Make"], ["Needs", "many"], ["Sink"]]


def test_a_shuffle_ends_a_segment() -> None:
    names = groups(Make(), Needs(), ExactDeduplication(), Sink())
    assert names[1] == ["Needs", "ExactDeduplication (hash)"]
    assert names[-1] == ["ExactDeduplication", "Sink"]


def test_two_shuffles_of_one_kind_do_not_share_their_folders() -> None:
    plan = make_plan("p", [Make(), ExactDeduplication(), ExactDeduplication()])
    folders = {v.stage.folder for v in plan.vertices if hasattr(v.stage, "folder")}
    assert len(folders) == 2


def test_branches_join_again_behind_the_route() -> None:
    plan = make_plan("p", [Make(), Route("lang", {"en": [Needs("lang")], "de": [Sink()]}), Needs("text")])
    names = [v.name for v in plan.vertices]
    last = plan.vertices[names.index("Needs")]
    assert [names[i] for i in last.inputs] == ["Route[en] / Needs", "Route"]
    assert plan.vertices[names.index("Route[de] / Sink")].edges == {"out": -1}


def test_stages_in_branches_are_named_with_the_way_to_them() -> None:
    inner = Route("text", {"a": [Tee([Sink()]), Sink()]})
    plan = make_plan("p", [Make(), Route("lang", {"en": [inner], "de": [Sink()]}), Sink()])
    assert [v.name for v in plan.vertices] == [
        "Make",
        "Route",
        "Route[en] / Route",
        "Route[en] / Route[a] / Tee",
        "Route[en] / Route[a] / Tee[copy] / Sink",
        "Route[en] / Route[a] / Sink",
        "Route[de] / Sink",
        "Sink",
    ]
    assert "[en -> Route, de -> Sink, otherwise -> Sink]" in str(plan)


def test_composites_in_branches_keep_their_folders_apart_and_their_names() -> None:
    branches = {"en": [ExactDeduplication(), JsonlWriter("a")], "de": [ExactDeduplication(), JsonlWriter("b")]}
    plan = make_plan("p", [Make(), Route("lang", branches, otherwise=[Sink()])])
    names = [v.name for v in plan.vertices]
    assert [n for n in names if "JsonlWriter" in n] == ["Route[en] / JsonlWriter", "Route[de] / JsonlWriter"]
    folders = {getattr(v.stage, "folder", None) for v in plan.vertices} - {None}
    assert len(folders) == 2


def test_the_plan_says_how_many_bytes_a_stage_takes_at_once() -> None:
    text = str(make_plan("p", [Make(), JsonlWriter("out", shard_bytes="64kB")]))
    assert "up to 62.5 KiB at once" in text
    assert str(2**31) not in text


def test_a_route_by_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ColumnError, match=r"'Route' needs the column 'lnag'.*Did you mean 'lang'\?"):
        make_plan("p", [Make(), Route("lnag", {"en": []})])


def test_a_route_by_a_condition_needs_its_column() -> None:
    with pytest.raises(ColumnError, match="needs the column 'score'"):
        make_plan("p", [Make(), Route("score >= 0.5", {True: [], False: []})])  # type: ignore[dict-item]  # as users write


def test_a_condition_has_two_branches_only() -> None:
    with pytest.raises(PlanError, match="branches 'true' and 'false', not"):
        Route("score >= 0.5", {"high": []})


def test_a_tee_must_end_in_a_writer() -> None:
    with pytest.raises(PlanError, match="side branch must end in a writer, it ends in Needs"):
        make_plan("p", [Make(), Tee([Needs()]), Sink()])


def test_dropped_rows_arrive_with_their_reason() -> None:
    plan = make_plan("p", [Make(), Dropped(Needs(), to=[Needs("dropped_because"), Sink()]), Sink()])
    assert plan.columns[2] == {"text", "lang", "dropped_by", "dropped_because"}


def test_the_plan_can_be_read() -> None:
    text = str(make_plan("demo", [Make(), Needs(), Route("lang", {"de": [Sink()]}), Sink()]))
    assert text.startswith("Plan of 'demo': 5 stages in 2 groups")
    assert "Needs  (DocumentBatch -> DocumentBatch)" in text
    assert "de -> Sink" in text


def test_equal_pipelines_have_equal_fingerprints() -> None:
    def print_of(column: str) -> str:
        return make_plan("p", [Make(), Needs(column)]).fingerprint

    assert print_of("text") == print_of("text")
    assert print_of("text") != print_of("lang")


def test_planning_leaves_the_pipeline_as_it_was() -> None:
    pipeline = Pipeline("p", stages=[Make(), Two()])
    assert str(pipeline.plan()) == str(pipeline.plan())
    assert [s.name for s in pipeline.stages] == ["Make", "Two"]


def test_describe_names_each_stage_with_what_it_needs() -> None:
    text = Pipeline("p", "A test.", [Make(), Needs().with_(resources=Resources(gpu_memory_gb=10))]).describe()
    assert "Description: A test." in text
    assert "2. Needs: Needs(column='text', adds='') (1 cpu, 10 GB of gpu memory)" in text


def test_a_stage_that_can_do_without_a_gpu_runs_on_cpus_where_there_is_none() -> None:
    class Model(ProcessingStage[DocumentBatch, DocumentBatch]):
        gpu_is_optional = True
        resources = Resources(cpus=2, gpus=0.5)

        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task

    with_gpu = make_plan("p", [Model()], initial=DocumentBatch, has_gpus=lambda: True)
    without = make_plan("p", [Model()], initial=DocumentBatch, has_gpus=lambda: False)
    assert with_gpu.groups[0].resources == Resources(cpus=2, gpus=0.5)
    assert without.groups[0].resources == Resources(cpus=2)
    assert "no GPU: it runs on CPUs" in str(without)
    assert "no GPU" not in str(with_gpu)
