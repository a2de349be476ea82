"""A stage that really uses a GPU."""

from __future__ import annotations

import os
import time

from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.tasks import DocumentBatch


class Square(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Squares numbers on the GPU and says where it ran."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        import torch

        assert worker_metadata is not None
        self.gpu_ids = worker_metadata.gpu_ids
        self.weight = torch.ones(1, device="cuda")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import torch

        time.sleep(0.02)  # so that one worker alone does not do it all
        numbers = torch.tensor(task.data["n"].to_pylist(), device="cuda")
        return DocumentBatch(
            {
                "n": (numbers * numbers * self.weight).cpu().tolist(),
                "visible": [os.environ["CUDA_VISIBLE_DEVICES"]],
                "gpus": [torch.cuda.device_count()],
                "given": [list(self.gpu_ids)],
                "pid": [os.getpid()],
            }
        )
