# What scripts for NeMo Curator do with images by hand: make batches of pixels, change scores, save what is left.
import json
import os
import sys

import numpy as np
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.image.io.image_reader import ImageReaderStage
from nemo_curator.tasks import FileGroupTask, ImageObject
from nemo_curator.tasks.image import ImageBatch
from PIL import Image


class Brightness(ProcessingStage[ImageBatch, ImageBatch]):
    """Scores images by their pixels, drops dark ones, and makes the others grey."""

    name = "brightness"

    def inputs(self):
        return ["data"], []

    def outputs(self):
        return ["data"], ["aesthetic_score"]

    def process(self, task: ImageBatch) -> ImageBatch:
        kept = []
        for image in task.data:
            if image.image_data is None:
                continue
            image.aesthetic_score = float(image.image_data.mean())
            if image.aesthetic_score >= 60:
                image.image_data = np.repeat(image.image_data.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8)
                image.metadata["seen"] = True
                kept.append(image)
        task.data = kept
        return task


def save(batches: list[ImageBatch], folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    for batch in batches:
        for image in batch.data:
            Image.fromarray(image.image_data).save(os.path.join(folder, f"{image.image_id}.png"))
            facts = {"id": image.image_id, "aesthetic_score": image.aesthetic_score, "seen": image.metadata["seen"]}
            with open(os.path.join(folder, f"{image.image_id}.json"), "w", encoding="utf-8") as file:
                json.dump(facts, file)


shards, folder = sys.argv[1:3]
tasks = [FileGroupTask(task_id="0", dataset_name="sample", data=[os.path.join(shards, n)]) for n in os.listdir(shards)]
pipeline = Pipeline(name="by_hand", stages=[ImageReaderStage(dali_batch_size=10), Brightness()])
results = list(pipeline.run(initial_tasks=tasks))
save(results, folder)

white = ImageObject(image_path="", image_id="white", image_data=np.full((4, 6, 3), 255, np.uint8))
batch = ImageBatch(data=[white], dataset_name="made")
print(len(results), "batches;", batch.data[0].image_data.shape, batch.num_items)
