"""Stages: what happens to the tasks that flow through a pipeline."""

from __future__ import annotations

import collections
import copy
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from tamis.errors import PlanError, did_you_mean
from tamis.lazy import load_when_used
from tamis.stages.emit import DROPPED, BadRows, Drop, Emit, Publish
from tamis.stages.metrics import StageMetrics
from tamis.stages.resources import NodeInfo, Resources, WorkerMetadata
from tamis.tasks import TableTask, Task
from tamis.tasks.base import digest

__all__ = [
    "CompositeStage",
    "Emission",
    "NodeInfo",
    "ProcessingStage",
    "SourceStage",
    "WorkerMetadata",
    "emissions",
    "is_async_function",
]

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])

Emission = Task[Any] | Emit | Drop | BadRows | Publish
"""What a stage may return or yield."""

_EMITTED = (Task, Emit, Drop, BadRows, Publish)

_METHODS = ("num_workers", "num_workers_per_node", "ray_stage_spec", "xenna_stage_spec")
"""Settings that a stage has a method for: they are kept under another name."""


class ProcessingStage(StageMetrics, Generic[X, Y]):
    """One step of a pipeline: turns a task into none, one or many.

    Subclasses implement :meth:`process` (or :meth:`process_batch`) and declare what they need in class attributes. A
    stage does not know where it runs; each worker has its own copy. If :meth:`process` is a coroutine function
    (``async def``), one worker keeps up to :attr:`max_in_flight` calls in flight: for stages that wait for a server.

    >>> from tamis.tasks import DocumentBatch
    >>> class Head(ProcessingStage[DocumentBatch, DocumentBatch]):
    ...     name = "head"
    ...     def process(self, task):
    ...         return task.with_table(task.data.slice(0, 1))
    >>> Head().process(DocumentBatch({"text": ["a", "b"]})).num_items
    1

    Attributes:
        name: Shown in plans and reports; the class name when not set.
        resources: What one worker needs.
        batch_size: How many tasks :meth:`process_batch` is given at once.
        batch_rows, batch_bytes, batch_tokens: Instead of a number of tasks: how many rows, bytes or tokens a call is
            given at most. Small tasks are put together, in the order of the input, and large ones are cut. Tokens are
            counted by :meth:`count_tokens`.
        max_in_flight: How many calls of an ``async`` :meth:`process` one worker keeps in flight.
        fuse: Whether the stage may share a worker with its neighbours, so that tasks are passed on without a copy.
        runtime_env: The Ray runtime environment of its workers.
        timeout_s: Seconds that it may work on one task, or batch of tasks. After that its worker is ended (of an
            ``async`` stage, only the call is cancelled) and the task is tried again. A stage with a time limit has
            workers of its own.
        releases_gil: Whether its work runs outside Python's lock (Arrow, Polars, NumPy, I/O). The local executor runs
            such stages on threads and the others in processes.
        is_source_stage, is_sink_stage: Whether it starts or ends a pipeline.
        makes_rows: How its rows come from those it was given: ``"same"`` (each is one of them), ``"split"`` (several
            may be pieces of one), ``"joined"`` (one may be several of them) or ``"new"`` (there is no way back). Of the
            first two, a row that is not in the output was dropped, also where the stage does not say so.
        fans_out: Whether it makes many tasks of one, which should spread over the workers.
        side_ports: Ports whose rows are dropped rows, or copies of rows on other ports: they are not counted as output.
        internal: Whether reports leave it out.
        gpu_is_optional: Whether it runs on CPUs where there is no GPU, with a note, although it asks for one.
        overwrite_columns: Whether the columns of :meth:`adds_columns` may replace columns that are already there.
    """

    name: str = ""
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 1
    batch_rows: int | None = None
    batch_bytes: int | None = None
    batch_tokens: int | None = None
    max_in_flight: int = 64
    fuse: bool = True
    runtime_env: dict[str, Any] | None = None
    timeout_s: float | None = None
    overwrite_columns: bool = False
    releases_gil: ClassVar[bool] = False
    is_source_stage: ClassVar[bool] = False
    is_sink_stage: ClassVar[bool] = False
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "same"
    fans_out: ClassVar[bool] = False
    internal: ClassVar[bool] = False
    gpu_is_optional: ClassVar[bool] = False
    side_ports: ClassVar[frozenset[str]] = frozenset({DROPPED})

    _misses_gpu: bool = False
    _num_workers: int | None = None
    _num_workers_per_node: float | None = None
    _ray_stage_spec: dict[str, Any] | None = None
    _xenna_stage_spec: dict[str, Any] | None = None

    def __init__(self) -> None:
        """Nothing to do: here so that subclasses may call ``super().__init__()``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__ or cls.__dict__["name"] == "":
            cls.name = cls.__name__

    def process(self, task: X) -> Y | Iterable[Emission] | None:
        """Work on one task. Return a task, a list or generator of them, or ``None`` to leave it out."""
        raise NotImplementedError(f"{type(self).__name__} has no process()")

    def process_batch(self, tasks: list[X]) -> Iterable[Emission]:
        """Work on several tasks at once, up to :attr:`batch_size` or another limit. By default: one after the other."""
        for task in tasks:
            yield from emissions(self.process(task))

    @property
    def is_async(self) -> bool:
        """Whether :meth:`process` (or :meth:`process_batch`, where the stage has one of its own) is ``async``."""
        return is_async_function(type(self).process_batch if self.supports_batch_processing() else type(self).process)

    def count_tokens(self, task: X) -> Sequence[int]:
        """The number of tokens in each row, for :attr:`batch_tokens`. By default: the column ``num_tokens``.

        Override it to count differently, for example by the length of the text: ``pc.binary_length(task["text"])``.
        """
        columns = task.get_columns() if isinstance(task, TableTask) else []
        if "num_tokens" not in columns:
            raise TypeError(
                f"{type(self).__name__} sets batch_tokens, but the tasks have no column 'num_tokens': add TokenCount() "
                "before it, or define count_tokens(task), which returns the number of tokens in each row"
            )
        counts: list[int] = task["num_tokens"].to_numpy()  # type: ignore[index]  # a TableTask
        return counts

    def inputs(self) -> tuple[list[str], list[str]]:
        """Task attributes and data columns that must be there: ``(["data"], ["text"])``."""
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Task attributes and data columns that are there afterwards, beside what was there before."""
        return [], []

    def validate_input(self, task: X) -> bool:
        """Whether a task has the attributes and columns that :meth:`inputs` names.

        The plan checks the columns before a run; this is for stages that are called by hand.

        >>> from tamis.stages.text.filters import ScoreFilter, WordCountFilter
        >>> from tamis.tasks import DocumentBatch
        >>> ScoreFilter(WordCountFilter()).validate_input(DocumentBatch({"body": ["a"]}))
        False
        """
        attributes, columns = self.inputs()
        there = task.get_columns() if isinstance(task, TableTask) else vars(task)
        return all(hasattr(task, name) for name in attributes) and all(name in there for name in columns)

    def adds_columns(self) -> list[str]:
        """Columns that the stage adds. One that is already there is refused, unless :attr:`overwrite_columns`."""
        return []

    def text_columns(self) -> list[str]:
        """Columns that must hold text. Where the plan knows the type of a column, it refuses any other."""
        return []

    def ordered_columns(self) -> list[str]:
        """Columns whose values are compared: numbers, truth values, dates or timestamps. The plan refuses others."""
        return []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        """The columns after this stage, given those before it; ``None`` means they cannot be known.

        For a stage that overrides :meth:`outputs`, those columns are added. A stage that does not may add columns
        that it does not name, so nothing is known after it.
        """
        if type(self).outputs is ProcessingStage.outputs or available is None:
            return None
        return available | frozenset(self.outputs()[1])

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Called once on each machine before its workers start: download weights, warm caches."""

    def merged_with(self, following: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any] | None:
        """One stage that does what this one and the next would do, faster; ``None`` if there is none.

        The planner asks this of neighbours. Rows that the merged stage drops say which of them dropped them
        (:attr:`tamis.tasks.Drop.stage`); what comes out must be the same.
        """
        return None

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> Any:
        """Called once in each worker before its first task: load models, open connections.

        What it returns is ignored. In an ``async`` stage, ``setup`` and :meth:`teardown` may be ``async`` too.
        """

    def teardown(self) -> Any:
        """Called once in each worker after its last task."""

    def num_workers(self) -> int | None:
        """A fixed number of workers, or ``None`` to leave it to the executor."""
        return self._num_workers

    def num_workers_per_node(self) -> float | None:
        """A fixed number of workers on each machine, or ``None`` to leave it to the executor."""
        return self._num_workers_per_node

    def ray_stage_spec(self) -> dict[str, Any]:
        """Settings for Ray executors."""
        return dict(self._ray_stage_spec or {})

    def xenna_stage_spec(self) -> dict[str, Any]:
        """Settings for the Xenna executor."""
        return dict(self._xenna_stage_spec or {})

    def supports_batch_processing(self) -> bool:
        """Whether the stage has a :meth:`process_batch` of its own."""
        return type(self).process_batch is not ProcessingStage.process_batch

    def notes(self) -> list[str]:
        """Remarks for the user. They are shown with the plan; new ones are shown after the run."""
        return ["there is no GPU: it runs on CPUs"] if self._misses_gpu else []

    def without_gpu(self) -> typing.Self:
        """A copy that runs on CPUs, for a stage that can do without a GPU."""
        changed = self.with_(resources=Resources(cpus=self.resources.cpus or 1.0))
        object.__setattr__(changed, "_misses_gpu", True)
        return changed

    def with_(
        self,
        *,
        name: str | None = None,
        resources: Resources | None = None,
        batch_size: int | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | None = None,
        batch_tokens: int | None = None,
        max_in_flight: int | None = None,
        fuse: bool | None = None,
        runtime_env: dict[str, Any] | None = None,
        num_workers: int | None = None,
        num_workers_per_node: float | None = None,
        timeout_s: float | None = None,
        overwrite_columns: bool | None = None,
        ray_stage_spec: dict[str, Any] | None = None,
        xenna_stage_spec: dict[str, Any] | None = None,
    ) -> typing.Self:
        """A copy of the stage with some settings changed.

        >>> stage = ProcessingStage().with_(resources=Resources(gpus=0.25), batch_size=128)
        >>> stage.resources.gpus, stage.batch_size, ProcessingStage().batch_size
        (0.25, 128, 1)
        """
        arguments: dict[str, Any] = dict(locals())
        given = {setting: value for setting, value in arguments.items() if setting != "self" and value is not None}
        for count in ("batch_size", "batch_rows", "batch_bytes", "batch_tokens", "max_in_flight", "num_workers"):
            if given.get(count, 1) < 1:
                raise ValueError(f"{count}={given[count]}: must be at least 1")
        for number in ("num_workers_per_node", "timeout_s"):
            if given.get(number, 1) <= 0:
                raise ValueError(f"{number}={given[number]}: must be more than 0")
        for spec in ("ray_stage_spec", "xenna_stage_spec"):
            if given.get(spec):
                given[spec] = {**getattr(self, spec)(), **given[spec]}
        changed = copy.copy(self)
        for setting, value in given.items():
            object.__setattr__(changed, f"_{setting}" if setting in _METHODS else setting, value)
        return changed

    def parameters(self) -> dict[str, Any]:
        """The parameters the stage was made with: its recipe form and its cache key.

        Dataclass fields, or, for other classes, the arguments of ``__init__`` that it keeps under the same name.
        """
        if dataclasses.is_dataclass(self):
            return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        names = [p for p in inspect.signature(type(self).__init__).parameters if p != "self"]
        return {n: getattr(self, n) for n in names if hasattr(self, n)}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.parameters().items())
        return f"{type(self).__name__}({shown})"


class SourceStage(ProcessingStage[X, Y]):
    """A stage whose tasks are made by the driver, one after the other, as room for them appears.

    At the start of a pipeline it lists the input. After another stage it is a barrier: once everything before it is
    finished, the pipeline continues with its splits (the reading side of a shuffle). Splits name data, they do not
    hold it.
    """

    is_source_stage: ClassVar[bool] = True

    input_id: str = ""
    """An id of all tasks together, equal for the same input: that of the latest complete listing, empty before it."""

    _notes_input: bool = False

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def check_input(self) -> None:
        """Raise if the input is not there. Called when the pipeline is planned."""

    def splits(self, scratch: str) -> Iterator[Y]:
        """Make the tasks. ``scratch`` is the run's directory for data between stages."""
        raise NotImplementedError

    def keep_groups(self, groups: Sequence[Sequence[str]]) -> None:
        """Make tasks of the same files as an earlier start of the run, where they are all there.

        Then files that were added or removed do not change the tasks of the others.

        Args:
            groups: The files of each task, in the order of the tasks.
        """

    def noting_input(self, tasks: Iterable[Y]) -> Iterator[Y]:
        """Pass on the tasks, and set :attr:`input_id` when all of them were made. For use in :meth:`splits`."""
        self._notes_input = True
        count = ids = 0
        for task in tasks:
            count, ids = count + 1, ids + _number(task.get_deterministic_id())  # in any order
            yield task
        self.input_id = digest(count, ids)

    def listing_id(self) -> str:
        """A digest of what the input looks like now, which is quickly made; empty if there is no such digest.

        It differs whenever :meth:`current_input_id` does.
        """
        return ""

    def current_input_id(self) -> str:
        """List the input as it is now, and return its id."""
        self._notes_input = False
        tasks = iter(self.splits(""))
        first = list(itertools.islice(tasks, 1))
        listed = tasks if self._notes_input else self.noting_input(itertools.chain(first, tasks))
        collections.deque(listed, maxlen=0)
        return self.input_id

    def process(self, task: X) -> list[Y]:  # type: ignore[override]  # a list is one of the forms allowed there
        return list(self.splits(""))


def _number(task_id: str | None) -> int:
    """An id as a number: most are hexadecimal digits."""
    try:
        return int(task_id or "", 16)
    except ValueError:
        return int(digest(task_id), 16)


class CompositeStage(ProcessingStage[X, Y]):
    """Several stages under one name: it is unfolded when the pipeline is planned."""

    def process(self, task: X) -> Any:
        """What it makes of one batch of rows alone, as if that were the whole input: for calls by hand.

        >>> from tamis.stages.deduplication.exact import ExactDeduplication
        >>> from tamis.tasks import DocumentBatch
        >>> ExactDeduplication().process(DocumentBatch({"text": ["a", "a"]})).num_items
        1
        """
        from tamis.stages.one_batch import run_on_one_batch

        return run_on_one_batch(self, task)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages it stands for. They may be composites themselves."""
        raise NotImplementedError(f"{type(self).__name__} has no decompose()")

    def with_(self, overrides: dict[str, dict[str, Any]] | None = None, **settings: Any) -> typing.Self:  # type: ignore[override]  # settings per inner stage
        """A copy with settings changed: of the inner stages by name, or, with plain keywords, of all of them."""
        changed = copy.copy(self)
        object.__setattr__(changed, "_overrides", {**getattr(self, "_overrides", {}), **(overrides or {})})
        if "name" in settings:
            object.__setattr__(changed, "name", settings.pop("name"))
        object.__setattr__(changed, "_settings", {**getattr(self, "_settings", {}), **settings})
        return changed

    def unfold(self) -> list[ProcessingStage[Any, Any]]:
        """The inner stages with the settings of :meth:`with_` applied."""
        stages: list[ProcessingStage[Any, Any]] = self.decompose()
        overrides: dict[str, dict[str, Any]] = getattr(self, "_overrides", {})
        names = [s.name for s in stages]
        for wanted in overrides:
            if wanted not in names:
                raise PlanError(
                    f"{self.name}.with_({{{wanted!r}: ...}}): it has no stage of that name, "
                    f"only {', '.join(names)}.{did_you_mean(wanted, names)}"
                )
        settings = getattr(self, "_settings", {})
        return [s.with_(**{**settings, **overrides.get(s.name, {})}) for s in stages]

    def get_description(self) -> str:
        """One sentence about the stage: the first line of its docstring."""
        return (inspect.getdoc(type(self)) or "").partition("\n")[0]


def emissions(result: Any) -> Iterator[Emission]:
    """Flatten what ``process`` returned: nothing, one task, or any iterable of emissions."""
    if result is None:
        return
    if isinstance(result, _EMITTED):
        yield result
        return
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("process() is async: await it, or call it through a pipeline")
    if not isinstance(result, Iterable) or isinstance(result, str | bytes | Mapping) or hasattr(result, "columns"):
        raise TypeError(f"process() returned {type(result).__name__}; it must return a task, several, or None")
    for item in result:
        if isinstance(item, _EMITTED):
            yield item
        else:
            yield from emissions(item)


def is_async_function(function: Any) -> bool:
    """Whether calling a function gives a coroutine or an asynchronous generator."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


__getattr__, _ = load_when_used(
    __name__, dict.fromkeys(("FunctionStage", "processing_stage"), "tamis.stages.function_decorators")
)
