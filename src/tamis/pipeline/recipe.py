"""Recipes: a pipeline as a YAML file.

    name: my-run
    stages:
      - JsonlReader: {file_paths: data/}
      - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 50}}}
      - JsonlWriter: {path: out/}
    run: {workers: 4}

A stage is written as its name, or as its name and its parameters; ``with:`` among them holds the settings that every
stage has. Relative paths are relative to the current directory of the program, not to the recipe.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tamis.backends.contracts import FAILURE_BUDGET, FailurePolicy
from tamis.errors import RecipeError, did_you_mean
from tamis.pipeline.catalogue import find, is_name
from tamis.pipeline.recipe_build import WITH, build_fields, build_stage, build_value
from tamis.pipeline.recipe_dump import dump_recipe
from tamis.pipeline.recipe_nodes import MAX_CHARACTERS, Node, parse_yaml
from tamis.runs.prometheus_endpoint import LOOPBACK
from tamis.sizes import byte_size
from tamis.stages.io.card_files import RUN_FILE

if TYPE_CHECKING:
    from tamis.backends.base import Executor
    from tamis.pipeline import Pipeline

__all__ = ["EXECUTORS", "Recipe", "RunSettings", "dump_recipe", "load_recipe", "shipped_recipes"]

EXECUTORS: Final = {
    "local": "tamis.backends.local:LocalExecutor",
    "streaming": "tamis.backends.streaming:StreamingExecutor",
    "ray-actor-pool": "tamis.backends.ray_actor_pool:RayActorPoolExecutor",
    "ray-data": "tamis.backends.ray_data:RayDataExecutor",
    "xenna": "tamis.backends.xenna:XennaExecutor",
}
"""The executors with a short name. Any other is written ``package.module:Class``."""


def default_executor_name() -> str:
    """The executor of a run that names none: on the Ray cluster that this process uses, else on this machine."""
    ray = sys.modules.get("ray")
    return "streaming" if os.environ.get("RAY_ADDRESS") or (ray and ray.is_initialized()) else "local"


OF_THE_RUN: Final = (
    "run_dir",
    "scratch",
    "drop_ledger",
    "failure_budget",
    "keep_scores",
    "metrics_port",
    "metrics_host",
    "traces",
    "data_card",
)
"""The settings that are arguments of :meth:`tamis.pipeline.Pipeline.run`; the others are for the executor."""

_TOP: Final[dict[str, Any]] = {"name": str, "description": str | None, "stages": list, "run": dict}


@dataclass(frozen=True)
class RunSettings:
    """How to run a recipe: its ``run:`` section. The executor decides what is not given.

    Args:
        executor: ``local``, ``streaming``, ``ray-actor-pool``, ``ray-data``, ``xenna``, or ``package.module:Class``.
            Without one: ``streaming`` where ``address`` or ``RAY_ADDRESS`` names a cluster, else ``local``.
        address: The address of a Ray cluster.
        ignore_head_node: Whether to keep the head node of a cluster free of work.
        workers: Workers to use; 0 runs everything in this process.
        substrate: What local workers are.
        execution_mode: All stages at once on different batches, or one stage after the other.
        memory_budget: Memory for tasks between stages: bytes, or a text such as ``1GiB``.
        retries: Times a task that fails is tried again.
        run_dir: The run directory, or an fsspec address.
        scratch: Where data between stages is kept: a directory or an address such as ``s3://bucket/tmp``.
        drop_ledger: Whether to record in the run directory which rows were dropped, and why.
        failure_budget: How many rows may be set aside before the run ends: a number, or a share of those read; 0 ends
            it with the first failure.
        metrics_port: Port on which Prometheus can read the metrics of the run; 0 picks a free one.
        metrics_host: The address to listen on; by default only programs of this machine can connect.
        traces: Whether to send OpenTelemetry traces; by default if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
        keep_scores: Whether to record the score of every row by every filter in the run directory.
        data_card: Whether to describe the output in its directories: ``RUN.json`` and a data card, ``README.md``.
    """

    executor: str | None = None
    address: str | None = None
    ignore_head_node: bool | None = None
    workers: int | None = None
    substrate: Literal["auto", "inline", "threads", "processes"] | None = None
    execution_mode: Literal["streaming", "batch"] | None = None
    memory_budget: int | str | None = None
    retries: int | None = None
    run_dir: str | None = None
    scratch: str | None = None
    drop_ledger: bool = True
    failure_budget: float | None = FAILURE_BUDGET
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    traces: bool | None = None
    keep_scores: bool = False
    data_card: bool = True

    def __post_init__(self) -> None:
        if self.executor is not None and self.executor not in EXECUTORS and ":" not in self.executor:
            raise RecipeError(
                f"unknown executor {self.executor!r}.{did_you_mean(self.executor, EXECUTORS)} "
                f"Known are {', '.join(EXECUTORS)}; one of your own is written package.module:Class"
            )
        for name, value in (("workers", self.workers), ("retries", self.retries)):
            if value is not None and value < 0:
                raise RecipeError(f"{name}: must not be negative, not {value}")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65535:
            raise RecipeError(f"metrics_port: must be between 0 and 65535, not {self.metrics_port}")
        if self.memory_budget is not None:
            byte_size(self.memory_budget)
        FailurePolicy.within(self.failure_budget)

    def make_executor(self) -> Executor:
        """The executor these settings describe."""
        name = self.executor or ("streaming" if self.address else default_executor_name())
        cls: Any = find(EXECUTORS.get(name, name))
        if not (isinstance(cls, type) and all(hasattr(cls, method) for method in ("check", "execute", "describe"))):
            raise RecipeError(f"{name} is not an executor: that is a class like tamis.backends.base.Executor")
        others = {"executor", *OF_THE_RUN}
        given = {name: value for name, value in asdict(self).items() if value is not None and name not in others}
        known = inspect.signature(cls).parameters
        unknown = [setting for setting in given if setting not in known]
        if unknown and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            raise RecipeError(f"run: the executor {name} has no setting {' and no setting '.join(unknown)}")
        try:
            executor: Executor = cls(**given)
            return executor
        except (TypeError, ValueError) as e:
            raise RecipeError(f"run: {name}: {e}") from e


@dataclass(frozen=True)
class Recipe:
    """A recipe that was read. Its names are looked up when a pipeline is made from it.

    Args:
        name: The pipeline's name: the file's, where the recipe gives none.
        description: The pipeline's description.
        run: How to run it.
        source: Where it was read.
        document: The recipe as written, with positions.
    """

    name: str
    description: str
    run: RunSettings
    source: str
    document: Node = field(repr=False)

    def to_pipeline(self) -> Pipeline:
        """Make the pipeline: look up every name and check every parameter.

        >>> load_recipe("stages:\\n  - Route: {by: lang, branches: {}}\\n").to_pipeline()
        Pipeline('recipe', 1 stages)
        """
        from tamis.pipeline import Pipeline

        return Pipeline(
            name=self.name,
            description=self.description or None,
            stages=[build_stage(node) for node in _stage_list(self.document)],
        )

    def with_settings(self, assignments: Iterable[str]) -> Recipe:
        """A copy with values replaced, as ``tamis run --set`` does it.

        Args:
            assignments: ``stage.parameter=value``: the stage by its name, class or number (from 1), the value in
                YAML. Further dots lead inside: into an object, a mapping, or a list (from 1). ``name``,
                ``description`` and ``run.workers`` etc. are reached the same way.

        >>> recipe = load_recipe("stages:\\n  - Route: {by: lang, branches: {en: []}}\\n")
        >>> recipe.with_settings(["Route.by=script", "run.workers=2"]).run.workers
        2
        """
        document = copy.deepcopy(self.document)
        for assignment in assignments:
            _assign(document, assignment)
        return _read(document, self.source, self.name)

    def with_paths(self, input_path: str | None = None, output_path: str | None = None) -> Recipe:
        """A copy whose first stage reads, and whose last stage writes, somewhere else.

        If the first stage is a reader without other parameters, it becomes the reader for files of that format.

        Args:
            input_path: For ``file_paths`` of the first stage.
            output_path: For ``path`` of the last stage.

        >>> recipe = load_recipe("english").with_paths("my/data", "my/out")
        >>> [stage.parameters().get("path") for stage in recipe.to_pipeline().stages]
        [None, None, 'my/out']
        """
        count = len(_stage_list(self.document))
        given = {"1.file_paths": input_path, f"{count}.path": output_path}
        recipe = self.with_settings(f"{place}={json.dumps(path)}" for place, path in given.items() if path is not None)
        if input_path is not None:
            _choose_reader(_stage_list(recipe.document)[0], input_path)
        return recipe


def shipped_recipes() -> dict[str, Path]:
    """The names and files of the recipes that come with tamis.

    >>> sorted(shipped_recipes())
    ['c4', 'dclm', 'english', 'fineweb', 'gopher', 'non-english']
    """
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}


def load_recipe(path_or_text: str | os.PathLike[str]) -> Recipe:
    """Read a recipe from a file, from a text of more than one line, or by the name of one that comes with tamis.

    Raises:
        RecipeError: It is not YAML, or has unknown keys. Its stages are checked by :meth:`Recipe.to_pipeline`.

    >>> load_recipe("name: tiny\\nstages:\\n  - Route: {by: lang, branches: {}}\\n").name
    'tiny'
    """
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        return _read(parse_yaml(path_or_text, "recipe"), "recipe", "recipe")
    path = Path(path_or_text)
    shipped = shipped_recipes()
    if not path.exists() and str(path) in shipped:
        path = shipped[str(path)]
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)  # one more than parse_yaml takes
    except OSError as e:
        likely = did_you_mean(str(path), shipped)
        raise RecipeError(f"{path}: cannot read the recipe: {e.strerror or e}.{likely}".removesuffix(".")) from e
    except UnicodeDecodeError as e:
        raise RecipeError(f"{path}: cannot read the recipe: it is not UTF-8 (byte {e.start})") from e
    return _read(parse_yaml(text, str(path)), str(path), path.stem)


def _read(document: Node, source: str, default_name: str) -> Recipe:
    """Check the outer shape of a recipe."""
    if not isinstance(document.value, dict):
        raise document.error("a recipe is a mapping with the keys name, description, stages and run")
    for key, node in document.value.items():
        if key not in _TOP:
            raise node.error(f"unknown key {key!r}.{did_you_mean(str(key), _TOP)} A recipe has: {', '.join(_TOP)}")
    values = {
        key: build_value(document.value[key], _TOP[key], key)
        for key in ("name", "description")
        if key in document.value
    }
    run = document.value.get("run", Node({}, source))
    for key, item in run.value.items() if isinstance(run.value, dict) else ():
        build_fields(RunSettings, Node({key: item}, item.where), "run")  # one by one: an error has the key's own line
    if not _stage_list(document):
        raise document.error("a recipe needs stages: a list with at least one")
    return Recipe(
        name=values.get("name", default_name),
        description=values.get("description") or "",
        run=build_fields(RunSettings, run, "run"),
        source=source,
        document=document,
    )


def _stage_list(document: Node) -> list[Node]:
    assert isinstance(document.value, dict)
    stages = document.value.get("stages")
    if stages is None or stages.value is None:
        return []
    if not isinstance(stages.value, list):
        raise stages.error("stages must be a list: each stage on a line of its own, after a dash")
    return stages.value


_READERS = {".jsonl": "JsonlReader", ".json": "JsonlReader", ".parquet": "ParquetReader", ".csv": "CsvReader"}


def _choose_reader(stage: Node, path: str) -> None:
    """Replace a reader without other parameters by the one for the files that are there."""
    if not isinstance(stage.value, dict) or len(stage.value) != 1:
        return
    ((name, parameters),) = stage.value.items()
    files = [path]
    if os.path.isdir(path):
        files = sorted(file for _, _, names in os.walk(path) for file in names if file != RUN_FILE)
    endings = {_READERS[ending] for file in files for ending in _READERS if ending in Path(file).suffixes}
    if name in _READERS.values() and len(endings) == 1 and list(parameters.plain() or ()) == ["file_paths"]:
        del stage.value[name]
        stage.value[endings.pop()] = parameters


# --- --set ----------------------------------------------------------------------------------------------------------


def _assign(document: Node, assignment: str) -> None:
    """Put one ``stage.parameter=value`` into the document."""
    place = f"--set {assignment}"
    path, equals, text = assignment.partition("=")
    steps = path.strip().split(".")
    if not equals or not all(steps):
        raise RecipeError(f"{place}: write stage.parameter=value")
    value = parse_yaml(text, place, one_place=True)
    assert isinstance(document.value, dict)
    if steps[0] in _TOP and steps[0] != "stages":
        target, rest = document, steps
    else:
        if len(steps) < 2:
            called = {name for _, names in _labelled(_stage_list(document)) for name in names}
            likely = did_you_mean(steps[0], [name for name in _TOP if name != "stages"])
            if likely and steps[0] not in called:
                raise RecipeError(f"{place}: the recipe has no {steps[0]!r}.{likely}")
            raise RecipeError(f"{place}: the parameter is missing. Write {steps[0]}.parameter=value")
        target, rest = _stage_parameters(_find_stage(document, steps[0], place), place), steps[1:]
    for step in rest[:-1]:
        container, key = _slot(target, step, place)
        target = container[key] if isinstance(container, list) else container.setdefault(key, Node({}, place))
    container, key = _slot(target, rest[-1], place)
    container[key] = value


def _find_stage(document: Node, wanted: str, place: str) -> Node:
    """The stage of that number, name or class."""
    nodes = _stage_list(document)
    if wanted.isdigit() and 1 <= int(wanted) <= len(nodes):
        return nodes[int(wanted) - 1]
    labelled = _labelled(nodes)
    found = [node for (_, names), node in zip(labelled, nodes, strict=True) if wanted in names]
    if not found:
        found = [node for node in nodes if _built_name(node) == wanted]
    listed = "\n".join(f"  {label}" for label, _ in labelled)
    if not found:
        known = [name for _, names in labelled for name in names]
        raise RecipeError(
            f"{place}: the recipe has no stage {wanted!r}.{did_you_mean(wanted, known)} It has:\n{listed}"
        )
    if len(found) > 1:
        raise RecipeError(f"{place}: {len(found)} stages are called {wanted!r}; give the number:\n{listed}")
    return found[0]


def _labelled(nodes: list[Node]) -> list[tuple[str, set[str]]]:
    """For each stage its label (``2 ScoreFilter (words)``), and the names it can be called by."""
    result = []
    for number, node in enumerate(nodes, 1):
        plain = node.plain()
        name, parameters = (plain, {}) if not isinstance(plain, dict) or not plain else next(iter(plain.items()))
        parameters = parameters if isinstance(parameters, dict) else {}
        settings = parameters.get(WITH)
        own = (settings.get("name") if isinstance(settings, dict) else None) or parameters.get("name")
        names = {str(name), str(name).rpartition(":")[2]} | ({str(own)} if own else set())
        result.append((f"{number} {name}" + (f" ({own})" if own else ""), names))
    return result


def _built_name(node: Node) -> str:
    """The name a stage gives itself, which may depend on its parameters; empty if the stage cannot be made."""
    try:
        return build_stage(node).name
    except RecipeError:
        return ""


def _stage_parameters(node: Node, place: str) -> Node:
    """The mapping of a stage's parameters; an empty one is made if there is none."""
    if isinstance(node.value, str):
        node.value = {node.value: Node({}, node.where)}
    if not isinstance(node.value, dict) or len(node.value) != 1:
        raise RecipeError(f"{place}: {node.where} is not a stage")
    parameters = next(iter(node.value.values()))
    if parameters.value is None:
        parameters.value = {}
    return parameters


def _slot(node: Node, step: str, place: str) -> tuple[Any, Any]:
    """The mapping and key, or list and index, that a step means; in ``{ClassName: {...}}``, one inside the object."""
    node = _inside_object(node, step)
    if isinstance(node.value, list):
        if not step.isdigit() or not 1 <= int(step) <= len(node.value):
            raise RecipeError(f"{place}: {step!r}: the list has the numbers 1 to {len(node.value)}")
        return node.value, int(step) - 1
    if node.value is None:
        node.value = {}
    if not isinstance(node.value, dict):
        raise RecipeError(f"{place}: {node.plain()!r} has no {step!r} inside")
    return node.value, next((key for key in node.value if str(key) == step), step)


def _inside_object(node: Node, step: str) -> Node:
    """The parameters of ``{ClassName: {parameters}}``, or of a bare ``ClassName``; any other node as it is."""
    if isinstance(node.value, str) and is_name(node.value):
        node.value = {node.value: Node({}, node.where)}
    if isinstance(node.value, dict) and len(node.value) == 1 and step not in node.value:
        name, inner = next(iter(node.value.items()))
        if is_name(name):
            inner.value = {} if inner.value is None else inner.value
            return inner
    return node
