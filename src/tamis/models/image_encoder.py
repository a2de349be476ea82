"""Vision models: CLIP and SigLIP, from images of one size to vectors of length 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError
from tamis.models.encoder import load_torch, number_type, shared_network
from tamis.models.image_preprocessing import read_preprocessing
from tamis.models.model import Model
from tamis.models.open_clip import is_open_clip, load_text_tower, load_vision_tower
from tamis.models.packed_linear import pack_linears

__all__ = ["ImageEncoder", "ImageRows", "TextTower"]

_BUFFERS: Final = 2
"""How many batches are on their way to a GPU at a time: one is filled while the other is copied."""


@dataclass(frozen=True)
class ImageRows:
    """Images of one size, for a :class:`~tamis.models.batch_runner.BatchRunner`.

    Args:
        pixels: Images, height, width, and three channels of uint8, for each row.
        present: Which of the rows have an image.

    >>> rows = ImageRows.of(pa.array([bytes(12), None], pa.binary(12)), 2, 2)
    >>> rows.pixels.shape, rows.lengths.tolist()
    ((2, 2, 2, 3), [1, 0])
    """

    pixels: NDArray[np.uint8]
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray, height: int, width: int) -> ImageRows:
        """The images of a column of bytes of fixed size; one chunk is not copied."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        size = height * width * 3
        arrays, present = [np.zeros((0, height, width, 3), np.uint8)], [np.zeros(0, np.bool_)]
        for chunk in chunks:
            flat = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size)
            arrays.append(flat.reshape(-1, height, width, 3))
            present.append(np.asarray(chunk.is_valid()))
        whole = arrays[1] if len(chunks) == 1 else np.concatenate(arrays)
        return cls(whole, np.concatenate(present))

    def __len__(self) -> int:
        return len(self.present)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """1 for each image, 0 for a row without one: a batch is measured in images."""
        return self.present.astype(np.int64)

    def take(self, rows: NDArray[np.int64]) -> ImageRows:
        """Some of the rows; a run of rows that follow each other is not copied."""
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            return ImageRows(self.pixels[part], self.present[part])
        return ImageRows(self.pixels[rows], self.present[rows])

    def sample(self) -> ImageRows:
        """A grey image."""
        return ImageRows(np.full((1, *self.pixels.shape[1:]), 128, np.uint8), np.ones(1, np.bool_))

    def too_large(self, memory: str) -> str:
        """What to say when one image does not fit into the memory of a device."""
        return f"the model with a single image does not fit into the memory of the {memory}: give the worker more of it"


class ImageEncoder:
    """Turns images into vectors of length 1: those of ``get_image_features`` of CLIP or SigLIP.

    Args:
        model: The model: as ``transformers`` saves it (both towers, or the one for images), or as open_clip does.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: The model's numbers: ``"auto"`` for 16 bits (bfloat16) on a GPU and 32 on a CPU, or a type of PyTorch by
            name.

    Attributes:
        preprocessing: What the model is given of an image.
    """

    def __init__(self, model: Model, device: str = "cpu", dtype: str = "auto") -> None:
        torch = load_torch(f"the model {model.name}")
        self.preprocessing = read_preprocessing(model.folder(), model.name)
        self.device, self._name, self._torch = device, model.name, torch
        self._numbers = number_type(torch, dtype, device)
        if device == "cpu":
            settings = ("images", str(self._numbers), model.allow_pickle)
            network = shared_network(model.folder(), settings, lambda: self._prepared(_vision_network(model)))
        else:
            network = self._prepared(_vision_network(model))
        sizes = getattr(network.config, "image_size", self.preprocessing.height)
        if {self.preprocessing.height, self.preprocessing.width} != {sizes}:
            raise ModelError(
                f"the model {model.name} sees images of {sizes} x {sizes} pixels, but its preprocessing makes "
                f"{self.preprocessing.height} x {self.preprocessing.width}"
            )
        self.network = network
        scale = np.float32(self.preprocessing.scale) / np.array(self.preprocessing.std, np.float32)
        shift = -np.array(self.preprocessing.mean, np.float32) / np.array(self.preprocessing.std, np.float32)
        self._scale, self._shift = (torch.tensor(each).view(3, 1, 1).to(device) for each in (scale, shift))
        self._buffers: list[tuple[Any, Any]] = []
        self._turn = 0

    def __call__(self, images: ImageRows) -> Any:
        """A vector for each image, as a tensor. On a GPU the call returns before they are computed."""
        torch = self._torch
        with torch.inference_mode():
            pixels = self._on_device(images.pixels).permute(0, 3, 1, 2).float()
            values = torch.addcmul(self._shift, pixels, self._scale).to(self._numbers)
            made = self.network(pixel_values=values)
            vectors = made.image_embeds if hasattr(made, "image_embeds") else made.pooler_output
            vectors = vectors.float()
            # A vector of zeros has no direction: it becomes NaN, and the row fails.
            return vectors / vectors.norm(dim=1, keepdim=True)

    def _prepared(self, network: Any) -> Any:
        network = network.to(self.device, self._numbers).requires_grad_(requires_grad=False)
        if self.device == "cpu" and self._numbers == self._torch.float32:
            pack_linears(network, self._torch.float32)
        return network

    def _on_device(self, pixels: NDArray[np.uint8]) -> Any:
        """Images on the device. They go to a GPU through memory that it can read by itself."""
        torch = self._torch
        if self.device == "cpu":
            given = pixels if pixels.flags.writeable else pixels.copy()  # PyTorch wants no memory it cannot write to
            return torch.from_numpy(np.ascontiguousarray(given))
        if not self._buffers or len(self._buffers[0][0]) < len(pixels):
            self._drop_buffers()
            self._buffers = [
                (torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=True), torch.cuda.Event())
                for _ in range(_BUFFERS)
            ]
        self._turn = (self._turn + 1) % _BUFFERS
        buffer, is_copied = self._buffers[self._turn]
        is_copied.synchronize()
        part = buffer[: len(pixels)]
        np.copyto(part.numpy(), pixels)
        there = part.to(self.device, non_blocking=True)
        is_copied.record()
        return there

    def _drop_buffers(self) -> None:
        for _, is_copied in self._buffers:
            is_copied.synchronize()
        self._buffers = []


class TextTower:
    """Turns rows of tokens into vectors of length 1 that can be compared with those of the images of the same model.

    Args:
        model: The model, with both towers.
        device, dtype: As for :class:`ImageEncoder`.

    Attributes:
        dim: The length of a vector.
    """

    def __init__(self, model: Model, device: str = "cpu", dtype: str = "auto") -> None:
        torch = load_torch(f"the model {model.name}")
        self._torch, self._name, self.device = torch, model.name, device
        numbers = number_type(torch, dtype, device)

        def load() -> Any:
            return _text_network(model).to(device, numbers).requires_grad_(requires_grad=False)

        settings = ("texts", str(numbers), model.allow_pickle)
        self.network = shared_network(model.folder(), settings, load) if device == "cpu" else load()
        self._is_siglip = self.network.config.model_type == "siglip_text_model"
        config = self.network.config
        self._pad = int(getattr(config, "pad_token_id", None) or 0)
        self.most_tokens = int(config.max_position_embeddings)
        self.dim = int(config.projection_size if self._is_siglip else config.projection_dim)

    def __call__(self, tokens: Any) -> Any:
        """A vector, as a tensor, for each row of a :class:`~tamis.models.token_batches.TokenBatch`."""
        torch = self._torch
        if tokens.longest > self.most_tokens:
            raise ModelError(
                f"a text has {tokens.longest:,} tokens, and the model {self._name} reads {self.most_tokens}: give "
                f"max_seq_length={self.most_tokens}, or less"
            )
        with torch.inference_mode():
            ids, mask = tokens.padded(self._pad)
            if self._is_siglip:  # trained on texts that are filled up to the limit, and it sees what with
                ids = torch.nn.functional.pad(ids, (0, self.most_tokens - ids.shape[1]), value=self._pad)
                vectors = self.network(input_ids=ids).pooler_output
            else:
                vectors = self.network(input_ids=ids, attention_mask=mask.long()).text_embeds
            vectors = vectors.float()
            return vectors / vectors.norm(dim=1, keepdim=True)


def _config(model: Model) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(f"the model {model.name}", package="transformers", extra="models") from error
    folder = model.folder()
    if not (Path(folder) / "config.json").exists():
        raise ModelError(f"the model {model.name} has neither config.json nor open_clip_config.json in {folder}")
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"the model {model.name} has a config.json that cannot be read: {error}") from error


def _vision_network(model: Model) -> Any:
    """The part of a model that sees images."""
    if is_open_clip(model.folder()):
        return load_vision_tower(model)
    config = _config(model)
    kind = config.model_type
    if kind == "clip":
        tower = config.vision_config
        tower.projection_dim = config.projection_dim  # that of the whole counts
        return model.load("CLIPVisionModelWithProjection", config=tower, whole=True)
    if kind == "clip_vision_model":
        has_projection = any("Projection" in str(each) for each in config.architectures or ())
        return model.load("CLIPVisionModelWithProjection" if has_projection else "CLIPVisionModel", whole=True)
    if kind in ("siglip", "siglip_vision_model"):
        tower = config.vision_config if kind == "siglip" else config
        if not getattr(tower, "vision_use_head", True):
            raise ModelError(f"the model {model.name} has no head that makes one vector of an image")
        return model.load("SiglipVisionModel", config=tower, whole=True)
    raise ModelError(
        f"the model {model.name} is of the kind {kind!r}: images are embedded by models of the kinds clip, "
        "clip_vision_model, siglip, siglip_vision_model, and those of open_clip"
    )


def _text_network(model: Model) -> Any:
    """The part of a model that reads texts."""
    if is_open_clip(model.folder()):
        return load_text_tower(model)
    config = _config(model)
    if config.model_type == "clip":
        tower = config.text_config
        tower.projection_dim = config.projection_dim
        return model.load("CLIPTextModelWithProjection", config=tower, whole=True)
    if config.model_type == "siglip":
        return model.load("SiglipTextModel", config=config.text_config, whole=True)
    raise ModelError(
        f"the model {model.name} is of the kind {config.model_type!r}, without a part that reads texts: take a folder "
        "of the kind clip or siglip"
    )
