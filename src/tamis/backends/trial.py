"""A process that tries a stage on some items: ``python -m tamis.backends.trial``. It may die of them.

What the stage makes is thrown away: only whether it raises counts.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from tamis.backends.async_calls import WorkerLoop, awaited
from tamis.backends.isolation import Items
from tamis.backends.outcome import Failure, failure_of
from tamis.backends.pipes import die_with_parent, receive, send
from tamis.backends.stage_calls import calls_of, results_of
from tamis.runs.publication import remove_unpublished
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import Publish
from tamis.tasks import Task
from tamis.tasks.storage import read_task


def main() -> None:
    """Answer for each piece what went wrong, until the other side is gone."""
    die_with_parent()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # the pipe is kept apart from what stages print
    hello, content = receive(requests), receive(requests)
    if hello is None or content is None:
        return
    sys.path, sys.argv = pickle.loads(hello)
    stage, worker, paths = pickle.loads(content)
    items, loop = Items([read_task(path) for path in paths]), WorkerLoop()
    done: Any = stage.setup(worker)
    if stage.is_async and done is not None:
        loop.run(done)
    send(answers, b"ready")
    while (message := receive(requests)) is not None:
        start, stop = pickle.loads(message)
        send(answers, pickle.dumps(problem(stage, items.select(range(start, stop)), loop)))


def problem(stage: ProcessingStage[Any, Any], tasks: list[Task[Any]], loop: WorkerLoop) -> Failure | None:
    """What goes wrong when a stage is given some tasks; ``None`` if nothing does."""
    try:
        calls = list(calls_of(stage, tasks))
        begun = (awaited(loop, call.begin(stage)) if stage.is_async else call.begin(stage) for call in calls)
        for _, item in results_of(calls, begun, as_lists=stage.supports_batch_processing()):
            if isinstance(item, Publish):
                remove_unpublished(item)
    except Exception as error:  # noqa: BLE001 - whatever a stage raises is the answer
        failure = failure_of(stage.name, error)
        return Failure(failure.stage, failure.error, failure.frames, kind=failure.kind)
    return None


if __name__ == "__main__":
    main()
