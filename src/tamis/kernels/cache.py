"""Where the object files of native kernels are kept, and which of them may be run.

Object files that came with tamis are in the package, named after a digest of the source code. Those that this machine
compiled are in ``$TAMIS_CACHE_DIR/kernels`` (by default under ``~/.cache/tamis``), with one folder for each combination
of tamis version, source code, compiler and processor. So they are never stale.

The code in a cache is run, so only the user and root may be able to write to it: a folder or file of another owner, or
one that the group or others may write to, is refused. If the cache is refused or cannot be written to, the folder
``tamis-<user id>`` in the system's temporary directory is used instead.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "BASELINE",
    "COMPILED_FROM",
    "cache_folder",
    "cached_file",
    "compiled_code",
    "compiled_file",
    "failure_file",
    "lock",
    "packaged_file",
    "store_code",
    "stored_code",
]

BASELINE = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3"}
"""The processor that packaged kernels are made for, by machine: from 2013 or later; on other machines a generic one."""

_NEEDED_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")  # x86-64-v3
_SEAL_BYTES = hashlib.sha256().digest_size
_FOLDER_MODE = 0o700

COMPILED_FROM = (
    "arguments.py",
    "compiler.py",
    "hashed_words_definition.py",
    "image_sums.py",
    "measures.py",
    "minhash_definition.py",
    "operations.py",
    "signatures/__init__.py",
    "signatures/duplicate_signatures.py",
    "signatures/image_signatures.py",
    "signatures/model_signatures.py",
    "signatures/parameter_kinds.py",
    "signatures/text_signatures.py",
    "span_constants.py",
    "token_styles.py",
    "unit_length.py",
)
"""The modules outside of ``sources`` that compiled kernels depend on."""

_LOG = logging.getLogger("tamis")
_WARNED: set[Path] = set()


def compiled_code(name: str) -> bytes | None:
    """The object file of a kernel, if there is one that may be run on this machine."""
    return next((code for _, code in _stored(name)), None)


def compiled_file(name: str) -> Path | None:
    """The path of that object file."""
    return next((file for file, _ in _stored(name)), None)


def packaged_file(name: str) -> Path:
    """The path of the kernel that came with tamis, if it was compiled from the current source code."""
    return Path(__file__).parent / "objects" / f"{name}-{platform.system()}-{platform.machine()}-{_sources_digest()}.o"


def cached_file(name: str) -> Path:
    """The path of the kernel that this machine compiles."""
    return cache_folder() / f"{name}.o"


def failure_file(name: str) -> Path:
    """The file that says why this machine cannot compile the kernel."""
    return cache_folder() / f"{name}.failed"


def cache_folder() -> Path:
    """The folder for kernels that this process compiles; created if missing.

    Raises ``OSError`` if neither the cache nor the temporary folder can be used.
    """
    problems = []
    for root in _roots():
        problem = _problem(root) or _problem_writing(root)
        if problem is None:
            return _folder(root)
        problems.append(problem)
    raise OSError(f"there is no folder for compiled kernels: {'; '.join(problems)}")


def store_code(file: Path, code: bytes) -> None:
    """Write an object file atomically, with a digest that :func:`stored_code` checks."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as sink:
            sink.write(code + hashlib.sha256(code).digest())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def stored_code(file: Path, must_be_own: bool = False) -> bytes | None:
    """An object file, if it exists and is complete: LLVM ends the process when it loads an incomplete one.

    Args:
        file: The file.
        must_be_own: Whether only the user and root may have been able to write it.
    """
    try:
        with open(file, "rb") as source:  # noqa: PTH123 - the open file is checked, then read
            if must_be_own and _other_writers(os.fstat(source.fileno())) is not None:
                return None
            content = source.read()
    except OSError:
        return None
    code, seal = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    return code if hashlib.sha256(code).digest() == seal else None


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Let one process at a time continue; the system frees the lock when a process dies."""
    with open(path, "a+b") as file:  # noqa: PTH123 - a plain file of the cache
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            with contextlib.suppress(OSError):  # without locks, as on some network file systems, work may be done twice
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stored(name: str) -> Iterator[tuple[Path, bytes]]:
    """The object files of a kernel that may be run, the best one first."""
    if _suits_baseline():
        code = stored_code(packaged_file(name))
        if code is not None:
            yield packaged_file(name), code
    for root in _roots():  # including read-only ones, as in a container image
        file = _folder(root) / f"{name}.o"
        code = stored_code(file, must_be_own=True) if _problem(root) is None else None
        if code is not None:
            yield file, code


def _roots() -> Iterator[Path]:
    """The folders that a cache may be in, the preferred one first."""
    chosen = os.environ.get("TAMIS_CACHE_DIR")
    if chosen:
        yield Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        if os.path.isabs(base):  # for a user without a home, "~" remains
            yield Path(base) / "tamis"
    yield Path(tempfile.gettempdir()) / f"tamis-{_user()}"


def _folder(root: Path) -> Path:
    return root / "kernels" / _fingerprint()


def _problem(root: Path) -> str | None:
    """Why nothing in a folder may be run, which is also logged; ``None`` if it may."""
    for folder in (root, root / "kernels", _folder(root)):
        try:
            reason = _other_writers(os.stat(folder))
        except OSError:
            return None  # it does not exist or cannot be read
        if reason is not None:
            problem = f"{folder} is not used for compiled kernels, because {reason}"
            if folder not in _WARNED:
                _WARNED.add(folder)
                _LOG.warning("%s: change that, or set TAMIS_CACHE_DIR to a folder that you own", problem)
            return problem
    return None


@functools.cache
def _problem_writing(root: Path) -> str | None:
    """Why a cache cannot be written to; ``None`` if it can. Creates its folder if missing."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (root, root / "kernels", _folder(root)):
            folder.mkdir(exist_ok=True, mode=_FOLDER_MODE)
        with tempfile.TemporaryFile(dir=_folder(root)):
            pass
    except OSError as error:
        return str(error)
    return _problem(root)


def _other_writers(about: os.stat_result) -> str | None:
    """Why other users could have written a file or folder; ``None`` if only the user and root can."""
    if sys.platform == "win32":
        return None
    if about.st_uid not in (0, _user()):
        return f"it belongs to the user {about.st_uid}"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it"
    return None


def _user() -> int:
    return os.getuid() if sys.platform != "win32" else 0


@functools.cache
def _fingerprint() -> str:
    """An id that changes with everything that affects the code this machine compiles."""
    import llvmlite
    import llvmlite.binding as llvm

    import tamis

    parts = [platform.system(), platform.machine(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    parts += [llvmlite.__version__, _numba_version(), _sources_digest()]
    return f"{tamis.__version__}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:20]}"


def _numba_version() -> str:
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        return "none"  # only the compiler needs it
    packages = os.listdir(Path(found.origin).parents[1])
    installed = [name for name in packages if name.startswith("numba-") and name.endswith((".dist-info", ".egg-info"))]
    if installed:
        return " ".join(sorted(installed))
    from importlib import metadata  # takes long to import

    try:
        return metadata.version("numba")
    except metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def _sources_digest() -> str:
    """A digest of all source code that kernels are compiled from."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for source in sorted([*(here / "sources").glob("*.py"), *(here / name for name in COMPILED_FROM)]):
        digest.update(
            f"{source.relative_to(here).as_posix()} {hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode()
        )
    return digest.hexdigest()[:20]


@functools.cache
def _suits_baseline() -> bool:
    """Whether this processor can run packaged kernels."""
    if platform.machine() not in BASELINE:
        return True
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return all(features.get(feature, False) for feature in _NEEDED_FEATURES)
