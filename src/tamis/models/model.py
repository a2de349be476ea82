"""A model: where its files are, how they get there, and whether they are what they should be.

A model is named by a folder or by a name on the Hugging Face hub. It is looked for in ``TAMIS_MODELS_DIR``, where
``tamis models bundle`` puts models for machines without a network, then in the hub's cache, then on the hub. Only files
that hold no code are fetched and loaded, unless the user says otherwise.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import logging
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis.errors import MissingExtraError, ModelError

__all__ = ["LOCK", "Model", "bundled_folder"]

LOCK = "tamis-model.json"
"""The file of a bundled model that names its files with their sizes and hashes."""

_PLAIN = ("*.json", "*.txt", "*.model", "*.safetensors", "*.tiktoken", "*.onnx", "*.md", "*.jinja", "*.npz")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_CODE = ("*.py",)
_WEIGHTS = ("*.safetensors", "*.onnx", "*.npz", *_PICKLED)
_POOLER = "pooler"
_LEAST_HEADER = 8
_SHA256_DIGITS = 64


@dataclass(frozen=True)
class Model:
    """A model on the hub or in a folder.

    Args:
        name: A name on the Hugging Face hub, ``"organisation/name"``, or the path of a folder.
        revision: The commit, branch or tag on the hub. A commit never changes.
        cache_dir: Where the hub's files are kept; by default where all programs keep them.
        token: The user's token, for models that need one.
        trust_remote_code: Whether Python code that comes with the model may run.
        allow_pickle: Whether weights may come in pickled files, which can run any code when they are loaded.

    >>> Model("./no-such-folder").folder()
    Traceback (most recent call last):
    tamis.errors.ModelError: there is no model folder ./no-such-folder
    """

    name: str
    revision: str | None = None
    cache_dir: str | None = None
    token: str | None = field(default=None, repr=False)
    trust_remote_code: bool = False
    allow_pickle: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether the name is that of a folder, not one on the hub."""
        return os.path.isdir(self.name) or self.name.startswith((".", "~", os.sep)) or self.name.count("/") > 1

    def folder(self) -> str:
        """The folder with the model's files, without using the network. Raises ``ModelError`` if it is not there."""
        if self.is_folder:
            path = os.path.expanduser(self.name)
            if not os.path.isdir(path):
                raise ModelError(f"there is no model folder {self.name}")
            return path
        bundled = bundled_folder(self.name, self.revision)
        if bundled is not None:
            return bundled
        return self._from_hub(local_only=True)

    def fetch(self, *, weights: bool = True) -> str:
        """The folder with the model's files; they are fetched from the hub if they are not on this machine.

        Args:
            weights: Whether the weights are needed, or only the files beside them, such as those of the tokenizer.
        """
        try:
            folder = self.folder()
        except ModelError:
            if self.is_folder:
                raise
        else:
            if self.is_folder or not weights or self.has_weights():
                return folder
        folder = self._from_hub(local_only=False, weights=weights)
        if weights and not self.has_weights():
            allowed = (
                "" if self.allow_pickle else ", or its weights are in pickled files, which allow_pickle=True allows"
            )
            raise ModelError(
                f"the model {self.name} is in {folder} without its weights: the hub could not be reached for them"
                f"{allowed}"
            )
        return folder

    def has_weights(self) -> bool:
        """Whether weights are there, and all parts of them: a snapshot of the hub may hold the small files only."""
        folder = Path(self.folder())
        is_safe = any(folder.rglob("*.safetensors"))
        for index in folder.rglob("*.index.json"):
            if is_safe and not index.name.endswith(".safetensors.index.json"):
                continue  # of the same weights in pickled files, which are not fetched
            parts = _parts_named(index)
            if any(not (index.parent / part).exists() for part in parts):
                return False
        return any(next(folder.rglob(pattern), None) is not None for pattern in _WEIGHTS)

    def check(self) -> None:
        """Raise ``ModelError`` if files of the model are missing, cut off or changed.

        Files that a lock names are compared with it, and those in the cache of the hub with the hashes that it keeps
        them under; weights as safetensors must be as long as their header says, and no part of them may be missing.
        """
        folder = Path(self.folder())
        for path, size, digest in _locked(folder):
            _check_file(folder / path, size, digest)
        weights = [path for path in folder.rglob("*.safetensors") if path.is_file()]
        for file in weights:
            _check_safetensors(file)
            _check_cached(file)
        for index in folder.rglob("*.safetensors.index.json"):
            missing = sorted(part for part in _parts_named(index) if not (index.parent / part).exists())
            if missing:
                raise ModelError(f"{index.parent / missing[0]} is missing: fetch or bundle the model again")
        if not weights and not self.allow_pickle:
            pickled = [path.name for pattern in _PICKLED for path in folder.rglob(pattern)]
            if pickled:
                raise ModelError(
                    f"the model {self.name} has its weights only in {pickled[0]}, a pickled file, which could run any "
                    "code. Convert it to safetensors, or allow it with Model(..., allow_pickle=True)"
                )
        if not self.has_weights():
            raise ModelError(f"the model {self.name} has no weights in {folder}: fetch or bundle the model again")

    def bundle(self, directory: str) -> str:
        """Copy the model to a folder below ``directory``, for a machine without a network; returns that folder.

        There it is found if ``TAMIS_MODELS_DIR`` is the directory. A lock with the hashes of its files is written.
        """
        source = Path(self.fetch())
        self.check()
        target = Path(directory) / _folder_name(self.name if not self.is_folder else source.name, self.revision)
        partial = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)
        files: dict[str, Any] = {}
        for path in self._wanted(source):
            copy = partial / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, copy)
            files[path.as_posix()] = {"size": copy.stat().st_size, "sha256": _sha256(copy)}
        lock = {"name": self.name, "revision": self.revision, "files": files}
        (partial / LOCK).write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        return str(target)

    def load(self, kind: str = "AutoModel", *, folder: str | None = None, whole: bool = False, **settings: Any) -> Any:
        """The model itself, as ``transformers`` loads it, ready to compute.

        Args:
            kind: The class of ``transformers`` that loads it.
            folder: The folder to load, where it is not the model's own, such as one below it.
            whole: Whether the files must have all the weights of that class, which ``transformers`` otherwise fills in
                with numbers by chance. If false, those of a pooler may be missing, which many encoders do not have.
            settings: More arguments of ``from_pretrained``, such as ``dtype``.
        """
        try:
            import transformers
        except ImportError as error:
            raise MissingExtraError(f"the model {self.name}", package="transformers", extra="models") from error
        folder = folder or self.folder()
        options = {"trust_remote_code": self.trust_remote_code, "local_files_only": True, **settings}
        if not self.allow_pickle:
            options["use_safetensors"] = True
        try:
            with _without_load_report():
                loaded = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True, **options)
        except ImportError:  # the model asks for a package; the message says which
            raise
        except Exception as error:  # safetensors raises a class of its own for whatever is wrong with a file
            raise ModelError(f"the model {self.name} cannot be loaded: {error}") from error
        network, found = loaded
        lacking = sorted({*map(str, found.get("missing_keys", ())), *map(str, found.get("mismatched_keys", ()))})
        if not whole:
            lacking = [name for name in lacking if _POOLER not in name.split(".")]
        if lacking:
            raise ModelError(
                f"the model {self.name} cannot be loaded as {kind}: its files lack {len(lacking)} weights, such as "
                f"{lacking[0]}"
            )
        return network.eval()

    def _from_hub(self, *, local_only: bool, weights: bool = True) -> str:
        try:
            import huggingface_hub as hub
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
        except ImportError as error:
            raise MissingExtraError(f"the model {self.name}", package="huggingface_hub", extra="models") from error
        patterns = self._patterns() if weights else [name for name in self._patterns() if name not in _WEIGHTS]
        try:
            return str(
                hub.snapshot_download(
                    self.name,
                    revision=self.revision,
                    cache_dir=self.cache_dir,
                    token=self.token,
                    allow_patterns=patterns,
                    local_files_only=local_only,
                )
            )
        except (LocalEntryNotFoundError, FileNotFoundError) as error:
            reached = (
                "it is not on this machine"
                if local_only
                else "it is not on this machine, and the hub cannot be reached"
            )
            raise ModelError(
                f"the model {self.name}: {reached}. `tamis models fetch {self.name}` fetches it. For a machine without "
                f"a network, run `tamis models bundle {self.name} FOLDER` elsewhere, and set TAMIS_MODELS_DIR=FOLDER"
            ) from error
        except (HfHubHTTPError, OSError) as error:
            raise ModelError(f"the model {self.name} cannot be fetched: {error}") from error
        except ValueError as error:
            raise ModelError(f"{self.name!r} is neither a folder nor the name of a model: {error}") from error

    def _patterns(self) -> list[str]:
        return [*_PLAIN, *(_PICKLED if self.allow_pickle else ()), *(_CODE if self.trust_remote_code else ())]

    def _wanted(self, folder: Path) -> Iterator[Path]:
        patterns = self._patterns()
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != LOCK and any(fnmatch.fnmatch(path.name, p) for p in patterns):
                yield path.relative_to(folder)


@contextlib.contextmanager
def _without_load_report() -> Iterator[None]:
    """Keep ``transformers`` from warning of tensors that a class has no use for; those that are missing are errors."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def bundled_folder(name: str, revision: str | None = None) -> str | None:
    """The folder of a model in ``TAMIS_MODELS_DIR``, or ``None``.

    >>> bundled_folder("organisation/no-such-model") is None
    True
    """
    directory = os.environ.get("TAMIS_MODELS_DIR", "")
    path = os.path.join(directory, _folder_name(name, revision))
    return path if directory and name and os.path.isdir(path) else None


def _folder_name(name: str, revision: str | None) -> str:
    return name.replace("/", "--") + (f"@{revision}" if revision else "")


def _parts_named(index: Path) -> set[str]:
    """The files that weights are divided into."""
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged: {error!r}. Fetch or bundle the model again") from None


def _check_cached(path: Path) -> None:
    """Compare a file in the cache of the hub with its name there, which is the hash of what was fetched."""
    stored = Path(os.path.realpath(path))
    if stored.parent.name == "blobs" and len(stored.name) == _SHA256_DIGITS and _sha256(stored) != stored.name:
        raise ModelError(f"{path} is not the file that was fetched: remove {stored}, and fetch the model again")


def _locked(folder: Path) -> Iterator[tuple[str, int, str]]:
    """The files that the lock of a model names, with their sizes and hashes."""
    lock = folder / LOCK
    if not lock.exists():
        return
    try:
        for path, known in json.loads(lock.read_text(encoding="utf-8"))["files"].items():
            yield path, int(known["size"]), str(known["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{lock} is damaged: {error!r}. Bundle the model again") from None


def _check_file(path: Path, size: int, digest: str) -> None:
    if not path.exists():
        raise ModelError(f"{path} is missing: fetch or bundle the model again")
    if path.stat().st_size != size or _sha256(path) != digest:
        raise ModelError(f"{path} is not the file that was bundled: it is damaged or was changed. Bundle it again")


def _check_safetensors(path: Path) -> None:
    """Raise if a file of weights is cut off: its header says how long it is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(_LEAST_HEADER).ljust(_LEAST_HEADER, b"\xff"))
        try:
            header = json.loads(file.read(length)) if length <= size - _LEAST_HEADER else None
            ends = [value["data_offsets"][1] for key, value in (header or {}).items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError):
            header = None
    if header is None or _LEAST_HEADER + length + max(ends, default=0) != size:
        raise ModelError(f"{path} is damaged or cut off ({size:,} bytes): fetch the model again")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
