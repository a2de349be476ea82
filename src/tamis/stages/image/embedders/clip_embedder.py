"""Add the embedding of each image, computed by CLIP or SigLIP."""

from __future__ import annotations

import copy
import os
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.resize import RESAMPLINGS
from tamis.models.batch_runner import BatchRunner, Rows
from tamis.models.encoder import best_device, torch_threads
from tamis.models.image_preprocessing import OPEN_CLIP_CONFIG, ImagePreprocessing, read_preprocessing
from tamis.models.model import Model
from tamis.stages.base import CompositeStage, NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column
from tamis.stages.image.model_folder import model_in
from tamis.stages.image.present import rows_with_image
from tamis.stages.resources import Resources
from tamis.tasks import ImageBatch

__all__ = ["ImageEmbeddingStage"]

_PIXELS: Final = "_model_pixels"
"""The column with images of the size that the model sees, between the two stages."""

_ROWS_AT_ONCE: Final = 512
"""How many images a call on a GPU is given: then the card waits seldom between calls."""

_OF_IMAGES: Final = ("image_bytes", "image_data", "image_data_shape")


@dataclass(repr=False)
class ImageEmbeddingStage(CompositeStage[ImageBatch, ImageBatch]):
    """Add the embedding of each image: the vector of length 1 that CLIP or SigLIP computes of it.

    It unfolds into two stages: one decodes images on CPUs and makes them as small as the model sees them, the other
    computes on a GPU, or on CPUs where there is none; then both share a worker. The vectors are those that
    ``get_image_features`` of ``transformers`` gives for what the model's own processor (that of Pillow) makes of the
    image, divided by their length.

    A row without an image has null. An image that cannot be decoded, or of which the vector is not finite, fails: the
    run sets that row aside and the others go on.

    Args:
        model_dir: The folder of the model, or a folder that has it below under its name
            (``openai/clip-vit-large-patch14``); else it is where what is fetched from the hub is kept.
        num_gpus_per_worker: The share of a GPU that a worker needs.
        model_inference_batch_size: The most images that the model is given at a time. It is halved when they do not fit
            into the memory of a GPU; the metric ``batches_too_large`` counts that.
        verbose: Accepted for scripts that name it. Progress and metrics are shown by the run.
        remove_image_data: Whether encoded images and pixels are taken off afterwards (``image_bytes``, ``image_data``).
        name: The name of the stage.
        model: The model: a name on the Hugging Face hub, a folder, or a :class:`~tamis.models.model.Model`. It may be
            in the layout of ``transformers`` (CLIP or SigLIP, both towers or the one for images), or of open_clip.
        embedding_field: The column for the vectors, lists of 32-bit numbers of fixed size.
        dtype: The model's numbers: ``"auto"`` for 16 bits (bfloat16) on a GPU and 32 on CPUs, or a type of PyTorch by
            name.
        exact_pixels: Whether images are decoded as a whole before they are made smaller, as the model's own processor
            does. If false, JPEG is decoded at a smaller scale, which is several times as fast; vectors then differ a
            little: see docs/image-embeddings.md.
        decoder: ``"cpu"``, or ``"gpu"``: the worker with the model decodes JPEG on its card and makes it smaller there,
            for machines with few cores for a card. Needs torchvision with CUDA. Without a GPU, CPUs do it.
        resources: What a worker that runs the model needs; one core and ``num_gpus_per_worker`` when not given.

    >>> [stage.name for stage in ImageEmbeddingStage("model-folder").decompose()]
    ['image_embedding pixels', 'image_embedding']
    """

    model_dir: str | None = None
    num_gpus_per_worker: float = 0.25
    model_inference_batch_size: int = 32
    verbose: bool = False
    remove_image_data: bool = False
    name: str = "image_embedding"
    model: Model | str = "openai/clip-vit-large-patch14"
    embedding_field: str = "image_embedding"
    dtype: str = "auto"
    exact_pixels: bool = True
    decoder: str = "cpu"
    resources: Resources | None = None  # type: ignore[assignment]  # None: from num_gpus_per_worker

    def __post_init__(self) -> None:
        if self.model_inference_batch_size < 1:
            raise ValueError(
                f"{self.name}(model_inference_batch_size={self.model_inference_batch_size}): must be at least 1"
            )
        if self.decoder not in ("cpu", "gpu"):
            raise ValueError(f"{self.name}(decoder={self.decoder!r}): give 'cpu' or 'gpu'")
        if self.num_gpus_per_worker < 0:
            raise ValueError(f"{self.name}(num_gpus_per_worker={self.num_gpus_per_worker}): must not be negative")

    @property
    def source(self) -> Model:
        """Where the model is."""
        return model_in(self.model_dir, self.model, ("config.json", OPEN_CLIP_CONFIG))

    def parameters(self) -> dict[str, Any]:
        given = super().parameters()
        # A token is a secret: not for recipes, reports and logs.
        return {key: replace(value, token=None) if isinstance(value, Model) else value for key, value in given.items()}

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [_ImageInference(self)] if self.decoder == "gpu" else [_ModelPixels(self), _ImageInference(self)]

    def with_(self, overrides: dict[str, dict[str, Any]] | None = None, **settings: Any) -> typing.Self:
        """A copy with settings changed: of the inner stages by name; plain keywords are for the one with the model."""
        changed = super().with_(overrides, **({"name": settings.pop("name")} if "name" in settings else {}))
        if "resources" in settings:
            object.__setattr__(changed, "resources", settings.pop("resources"))
        object.__setattr__(changed, "_of_model", {**getattr(self, "_of_model", {}), **settings})
        return changed

    def unfold(self) -> list[ProcessingStage[Any, Any]]:
        *before, inference = super().unfold()
        return [*before, inference.with_(**getattr(self, "_of_model", {}))]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Prepare for :meth:`process`, which is for calls by hand: a pipeline sets up the inner stages."""
        *before, inference = self.unfold()
        self._by_hand = [*before, inference if best_device() != "cpu" else inference.without_gpu()]
        for stage in self._by_hand:
            stage.setup(worker_metadata)

    def process(self, task: ImageBatch) -> ImageBatch:
        """The same for one batch, by hand."""
        if "_by_hand" not in self.__dict__:
            self.setup()
        for stage in self._by_hand:
            (task,) = typing.cast(list[ImageBatch], list(stage.process_batch([copy.copy(task)])))
            for name, value in stage.take_metrics().items():
                self.log_metric(name, value)
        return task


@dataclass(repr=False)
class _ModelPixels(ProcessingStage[ImageBatch, ImageBatch]):
    """Decode images and make them as small as the model sees them, in a column of bytes of fixed size.

    Args:
        stage: The stage with the model.
    """

    stage: ImageEmbeddingStage

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = f"{self.stage.name} pixels"

    def parameters(self) -> dict[str, Any]:
        return self.stage.parameters()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [_PIXELS]

    def adds_columns(self) -> list[str]:
        return [_PIXELS]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.stage.source.fetch(weights=False)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        source = self.stage.source
        self._preprocessing = read_preprocessing(source.fetch(weights=False), source.name)
        # A worker has its cores; by hand all of the machine's may be used.
        self._threads = int(self.resources.cpus) if worker_metadata is not None else os.cpu_count() or 1

    def process(self, task: ImageBatch) -> ImageBatch:
        if not hasattr(self, "_preprocessing"):  # called by hand
            self.setup()
        shape = (task.num_items, self._preprocessing.height, self._preprocessing.width, 3)
        pixels = np.zeros(shape, np.uint8)
        present = rows_with_image(task)
        rows = np.flatnonzero(present)
        _decode(task, rows, pixels, self._preprocessing, self._threads, is_exact=self.stage.exact_pixels)
        size = int(np.prod(shape[1:]))
        valid = pa.py_buffer(np.packbits(present, bitorder="little")) if not present.all() else None
        column = pa.Array.from_buffers(pa.binary(size), len(pixels), [valid, pa.py_buffer(pixels)])
        return task.with_column(_PIXELS, column)


@dataclass(repr=False)
class _ImageInference(ProcessingStage[ImageBatch, ImageBatch]):
    """Run the model over images of the size that it sees.

    Args:
        stage: The stage with the model.
    """

    stage: ImageEmbeddingStage

    gpu_is_optional: ClassVar[bool] = True
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        stage = self.stage
        self.name = stage.name
        self.resources = stage.resources or Resources(cpus=1.0, gpus=stage.num_gpus_per_worker)
        self.overwrite_columns = stage.overwrite_columns
        if self.resources.requires_gpu:
            self.batch_rows = max(_ROWS_AT_ONCE, 8 * stage.model_inference_batch_size)
        self._runner: BatchRunner | None = None

    def parameters(self) -> dict[str, Any]:
        return self.stage.parameters()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [] if self.stage.decoder == "gpu" else [_PIXELS]

    def outputs(self) -> tuple[list[str], list[str]]:
        return self.stage.outputs()

    def adds_columns(self) -> list[str]:
        return self.stage.adds_columns()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        after = super().columns_after(available)
        return None if after is None else after - {_PIXELS, *(_OF_IMAGES if self.stage.remove_image_data else ())}

    def without_gpu(self) -> typing.Self:
        """On CPUs it works on one task at a time, so that it can share a worker with the stage that decodes."""
        changed = super().without_gpu()
        object.__setattr__(changed, "batch_rows", None)
        return changed

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        source = self.stage.source
        source.fetch()
        source.check()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        from tamis.models.image_encoder import ImageEncoder

        device = best_device() if self.resources.requires_gpu else "cpu"
        source = self.stage.source
        source.fetch()
        # By hand, PyTorch has all cores.
        self._threads = max(1, int(self.resources.cpus)) if worker_metadata is not None and device == "cpu" else None
        with torch_threads(self._threads):
            self._encoder = ImageEncoder(source, device, self.stage.dtype)
        self._decoder = self._pixels = None
        if self.stage.decoder == "gpu" and device != "cpu":
            from tamis.models.gpu_decoding import GpuDecoder

            self._decoder = GpuDecoder(self._encoder.preprocessing, device)
        elif self.stage.decoder == "gpu":
            self._pixels = _ModelPixels(self.stage)
            self._pixels.setup(worker_metadata)
        self._runner = BatchRunner(self._infer, device, self.stage.model_inference_batch_size, wants_tensors=False)

    def _infer(self, images: Any) -> dict[str, Any]:
        if self._decoder is not None:
            return {self.stage.embedding_field: self._encoder.of_pixels(self._decoder(images))}
        return {self.stage.embedding_field: self._encoder(images)}

    def _rows(self, tasks: list[ImageBatch]) -> Rows:
        """The images of all tasks, as the model's worker is given them."""
        if self._decoder is not None:
            from tamis.models.gpu_decoding import EncodedImages

            whole = ImageBatch.concat(tasks)
            return EncodedImages(whole, rows_with_image(whole))
        from tamis.models.image_encoder import ImageRows

        seen = self._encoder.preprocessing
        chunks = [chunk for task in tasks for chunk in read_column(task.data, _PIXELS, self.name).chunks]
        return ImageRows.of(pa.chunked_array(chunks, pa.binary(seen.height * seen.width * 3)), seen.height, seen.width)

    def process_batch(self, tasks: list[ImageBatch]) -> Iterator[ImageBatch]:
        if self._runner is None:  # called by hand
            self.setup()
        assert self._runner is not None
        if self._pixels is not None:
            tasks = [self._pixels.process(task) for task in tasks]
        halvings = self._runner.halvings
        with torch_threads(self._threads):
            found = self._runner(self._rows(tasks))[self.stage.embedding_field]
        if self._runner.halvings > halvings:
            self.log_metric("batches_too_large", self._runner.halvings - halvings)
        start = 0
        for task in tasks:
            gone = [_PIXELS, *(_OF_IMAGES if self.stage.remove_image_data else ())]
            kept = task.with_same_rows(task.data.drop_columns([each for each in gone if each in task.get_columns()]))
            yield kept.with_column(self.stage.embedding_field, found.slice(start, task.num_items))
            start += task.num_items

    def teardown(self) -> None:
        self._runner = None
        self.__dict__.pop("_encoder", None)


def _decode(
    batch: ImageBatch,
    rows: NDArray[np.int64],
    into: NDArray[np.uint8],
    preprocessing: ImagePreprocessing,
    threads: int,
    *,
    is_exact: bool,
) -> None:
    """Decode the images of some rows and make them as small as a model sees them."""

    if not len(rows):
        return
    present, side = batch.select(rows), preprocessing.height
    if preprocessing.is_square_crop and preprocessing.resample in RESAMPLINGS:
        images = present.squares(side, preprocessing.resample, is_exact, threads=threads)
    else:
        twice = None if is_exact else 2 * max(side, preprocessing.width, preprocessing.shorter_side or 0)
        images = map(preprocessing.fitted, present.pixels(min_side=twice, threads=threads))
    for row, pixels in zip(rows.tolist(), images, strict=True):
        into[row] = pixels
