"""Loads native kernels, and has them compiled where that has not been done.

A kernel is machine code behind a C function: loading it takes some milliseconds and no Numba.
An installed tamis brings its kernels along, compiled when it was built (see ``hatch_build.py``). Where it does not, as
after a change to their source code, a process in the background compiles them into a cache, once per machine and in
some seconds. Until then :func:`load` gives ``None`` and callers use the plain definition, which gives the same results.

The cache is ``$TAMIS_CACHE_DIR/kernels`` (by default under ``~/.cache/tamis``), with one folder for each combination of
tamis version, source code, compiler and processor. The file that came with tamis is named after the source code too.
So neither is ever stale.

``TAMIS_KERNELS=wait`` makes :func:`load` wait for the compiler; ``TAMIS_KERNELS=off`` does without kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
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
]

ENTRY = "tamis_kernel"
"""The symbol of a kernel in its object file."""

NAMES = ("heuristics", "json_census", "json_rows", "suspects", "cleaning", "needles")
"""Every kernel there is: the modules of :mod:`tamis.kernels.sources` that have one."""

BASELINE = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3"}
"""The processor that packaged kernels are made for, by machine: one of 2013 or later; elsewhere a general one."""

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
            if compiled_file(name) is None:
                _see_to_it(name, wait=mode == "wait")
            file = compiled_file(name)
            if file is not None:
                _LOADED[name] = Kernel(name, file.read_bytes())
        return _LOADED.get(name)


def compiled_file(name: str) -> Path | None:
    """Where the compiled kernel is, if it is there."""
    packaged, cached = packaged_file(name), cached_file(name)
    if packaged.exists() and _suits_baseline():
        return packaged
    return cached if cached.exists() else None


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
    return _cache_root() / "kernels" / _fingerprint()


def _see_to_it(name: str, wait: bool) -> None:
    """Have the kernel compiled by another process, once; look what became of it later on."""
    compiler = _COMPILERS.get(name)
    if compiler is None:
        if failure_file(name).exists():
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
        _give_up(name, f"see {failure_file(name)}")


def _give_up(name: str, why: str) -> None:
    _GIVEN_UP.add(name)
    _LOG.warning("the kernel %r cannot be compiled here (%s): plain Python does its work, far slower", name, why)


def _cache_root() -> Path:
    chosen = os.environ.get("TAMIS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tamis"


@functools.cache
def _fingerprint() -> str:
    """Changes with anything that changes what the compiler of this machine makes."""
    import llvmlite
    import llvmlite.binding as llvm

    import tamis

    parts = [platform.system(), platform.machine(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    parts += [llvmlite.__version__, metadata.version("numba"), _sources_digest()]
    return f"{tamis.__version__}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:20]}"


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

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
