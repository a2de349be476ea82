"""The same pipeline in streaming mode, all stages at once, and in batch mode, one stage after the other."""

import time

from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage


@processing_stage(name="first")
def first(task: DocumentBatch) -> DocumentBatch:
    print(f"first   {task.data['n'].to_pylist()}")
    time.sleep(0.01)
    return task


@processing_stage(name="second")
def second(task: DocumentBatch) -> DocumentBatch:
    print(f"  second {task.data['n'].to_pylist()}")
    return task


batches = [DocumentBatch({"n": [n]}) for n in range(3)]
pipeline = Pipeline(name="modes", stages=[first, second])

rows = {}
for mode in ("streaming", "batch"):
    print(f"{mode}:")
    executor = LocalExecutor(workers=0, execution_mode=mode)  # no workers: in this thread, so that prints are in order
    rows[mode] = [row for task in pipeline.run(executor, batches, progress="off") for row in task.data.to_pylist()]

print(f"the same rows in the same order: {rows['streaming'] == rows['batch']}")
