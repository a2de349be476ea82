"""Loads native kernels, and has them compiled where that has not been done.

A kernel is machine code behind a C function: loading it takes some milliseconds and no Numba.
An installed tamis brings its kernels along, compiled when it was built (see ``hatch_build.py``). Where it does not, as
after a change to their source code, a process in the background compiles them into a cache, once per machine and in
some seconds. Until then :func:`load` gives ``None`` and callers use the plain definition, which gives the same results.

The cache is ``$TAMIS_CACHE_DIR/kernels`` (by default under ``~/.cache/tamis``), with one folder for each combination of
tamis version, source code, compiler and processor. The file that came with tamis is named after the source code too.
So neither is ever stale. Where the cache cannot be written to, a folder of the user's among the temporary files serves.

``TAMIS_KERNELS=wait`` makes :func:`load` wait for the compiler; ``TAMIS_KERNELS=off`` does without kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "BASELINE",
    "ENTRY",
    "NAMES",
    "Kernel",
    "cache_folder",
    "cached_file",
    "compiled_file",
    "failure_file",
    "load",
    "packaged_file",
    "store_code",
    "stored_code",
]

ENTRY = "tamis_kernel"
"""The symbol of a kernel in its object file."""

NAMES = ("heuristics", "json_census", "json_rows", "json_text", "suspects", "cleaning", "needles")
"""Every kernel there is: the modules of :mod:`tamis.kernels.sources` that have one."""

BASELINE = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3"}
"""The processor that packaged kernels are made for, by machine: one of 2013 or later; elsewhere a general one."""

_SEAL_BYTES = hashlib.sha256().digest_size
_NEEDED_FEATURES = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")  # x86-64-v3

Argument: TypeAlias = "np.ndarray[Any, Any] | int"

_LOG = logging.getLogger("tamis")
_GUARD = threading.Lock()
_LOADED: dict[str, Kernel] = {}
_GIVEN_UP: set[str] = set()
_COMPILERS: dict[str, subprocess.Popen[bytes]] = {}


class Kernel:
    """A compiled kernel: a function of numbers and arrays that gives a number, and runs without Python's lock.

    Args:
        name: Its name.
        code: Its object file.
    """

    def __init__(self, name: str, code: bytes) -> None:
        import llvmlite.binding as llvm

        self.name = name
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._address = self._engine.get_function_address(ENTRY)

    def __call__(self, *arguments: Argument) -> int:
        """Call it. An array must be contiguous, of the type the kernel knows, and stays in place while it runs."""
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        function = _function_type(len(arguments))(self._address)
        function(ctypes.byref(result), ctypes.byref(error), *map(_address, arguments))
        return result.value


def load(name: str) -> Kernel | None:
    """The kernel of that name; ``None`` as long as it is not compiled, which a call sees to."""
    kernel = _LOADED.get(name)
    if kernel is not None or name in _GIVEN_UP:
        return kernel
    mode = os.environ.get("TAMIS_KERNELS", "")
    if mode == "off":
        return None
    with _GUARD:
        if name not in _LOADED:
            try:
                code = _compiled_code(name)
                if code is None:
                    _see_to_it(name, wait=mode == "wait")
                    code = _compiled_code(name)
                if code is not None:
                    _LOADED[name] = Kernel(name, code)
            except (ImportError, OSError, RuntimeError) as error:
                _give_up(name, repr(error))
        return _LOADED.get(name)


def compiled_file(name: str) -> Path | None:
    """Where the compiled kernel is, if it is there."""
    return next((file for file in _candidates(name) if stored_code(file) is not None), None)


def store_code(file: Path, code: bytes) -> None:
    """Write an object file, all of it or nothing, with a seal by which :func:`stored_code` knows that it is whole."""
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_bytes(code + hashlib.sha256(code).digest())
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def stored_code(file: Path) -> bytes | None:
    """An object file, if it is there and whole: over half of one LLVM ends the process."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    code, seal = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    return code if hashlib.sha256(code).digest() == seal else None


def packaged_file(name: str) -> Path:
    """Where the kernel is that came with tamis, if it is what its source code says."""
    return Path(__file__).parent / "objects" / f"{name}-{platform.system()}-{platform.machine()}-{_sources_digest()}.o"


def cached_file(name: str) -> Path:
    """Where the compiler of this machine puts the kernel."""
    return cache_folder() / f"{name}.o"


def failure_file(name: str) -> Path:
    """Where it is said why the kernel cannot be compiled here, if it cannot."""
    return cache_folder() / f"{name}.failed"


def cache_folder() -> Path:
    """The folder for the kernels of this version, source code, compiler and processor."""
    chosen = _chosen_folder()
    return chosen if _is_writable(chosen) else _spare_folder() or chosen


def _compiled_code(name: str) -> bytes | None:
    return next((code for code in map(stored_code, _candidates(name)) if code is not None), None)


def _candidates(name: str) -> Iterator[Path]:
    """Where the compiled kernel may be."""
    if _suits_baseline():
        yield packaged_file(name)
    yield _chosen_folder() / f"{name}.o"  # also one that may only be read, as in an image
    yield cached_file(name)


def _see_to_it(name: str, wait: bool) -> None:
    """Have the kernel compiled by another process, once; look what became of it later on."""
    compiler = _COMPILERS.get(name)
    if compiler is None:
        if os.path.exists(failure_file(name)):  # Path.exists() raises in a folder that must not be looked into
            _give_up(name, f"see {failure_file(name)}")
            return
        command = [sys.executable, "-m", "tamis.kernels.compiler", name]
        try:
            # A session of its own: Ctrl-C ends a run, not the compiler, so that the next run finds its work done.
            compiler = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            _give_up(name, str(error))
            return
        _COMPILERS[name] = compiler
    if wait:
        compiler.wait()
    if compiler.poll() is not None and compiled_file(name) is None:
        has_said_why = os.path.exists(failure_file(name))
        _give_up(name, f"see {failure_file(name)}" if has_said_why else f"exit status {compiler.returncode}")


def _give_up(name: str, why: str) -> None:
    _GIVEN_UP.add(name)
    _LOG.warning("the kernel %r cannot be compiled here (%s): plain Python does its work, far slower", name, why)


def _cache_root() -> Path:
    chosen = os.environ.get("TAMIS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # Of a user without a home "~" is left. No folder of that name is made wherever the process happens to be.
    return Path(base if os.path.isabs(base) else os.devnull) / "tamis"


def _chosen_folder() -> Path:
    return _cache_root() / "kernels" / _fingerprint()


def _spare_folder() -> Path | None:
    """A folder among the temporary files that nobody else can write to: what is in it will be run."""
    user = os.getuid() if sys.platform != "win32" else 0
    root = Path(tempfile.gettempdir()) / f"tamis-{user}"
    folder = root / "kernels" / _fingerprint()
    if not _is_writable(folder):
        return None
    about = os.lstat(root)
    is_ours = stat.S_ISDIR(about.st_mode) and (sys.platform == "win32" or about.st_uid == user)
    return folder if is_ours and (sys.platform == "win32" or not about.st_mode & 0o022) else None


@functools.cache
def _is_writable(folder: Path) -> bool:
    """Whether files can be put into a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@functools.cache
def _fingerprint() -> str:
    """Changes with anything that changes what the compiler of this machine makes."""
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
    beside = os.listdir(Path(found.origin).parents[1])
    installed = [name for name in beside if name.startswith("numba-") and name.endswith((".dist-info", ".egg-info"))]
    if installed:
        return " ".join(sorted(installed))
    from importlib import metadata  # takes long to import

    try:
        return metadata.version("numba")
    except metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def _sources_digest() -> str:
    """Of all source code there is: a kernel is made of several modules, and which ones may change."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for source in sorted(here.rglob("*.py")):
        digest.update(
            f"{source.relative_to(here).as_posix()} {hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode()
        )
    return digest.hexdigest()[:20]


@functools.cache
def _suits_baseline() -> bool:
    if platform.machine() not in BASELINE:
        return True
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return all(features.get(feature, False) for feature in _NEEDED_FEATURES)


@functools.cache
def _function_type(arguments: int) -> Any:
    # As Numba calls functions: a place for the result, one for an exception, the arguments; it returns a status.
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * arguments)


def _address(argument: Argument) -> int:
    return argument if isinstance(argument, int) else argument.ctypes.data


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """One process at a time; the system frees it when a process dies."""
    with open(path, "a+b") as file:  # noqa: PTH123 - a plain file of the cache
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            with contextlib.suppress(OSError):  # some network file systems have no locks: then two may do the same work
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
