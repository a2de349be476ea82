"""Loads native kernels, and compiles them if needed.

A kernel is machine code with one C function: loading it takes some milliseconds and no Numba. An installed tamis has
its kernels compiled (see ``hatch_build.py``). If a compiled kernel is missing, as after a change to the source code, a
background process compiles it into a cache, once per machine and in some seconds: see :mod:`tamis.kernels.cache`. Until
then :func:`load` returns ``None``, and callers use the plain definition, which has the same results.

``TAMIS_KERNELS=wait`` makes :func:`load` wait for the compiler; ``TAMIS_KERNELS=off`` turns kernels off.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import threading

from tamis.kernels import cache
from tamis.kernels.arguments import Argument
from tamis.kernels.object_file import check_object
from tamis.kernels.signatures import SIGNATURES

__all__ = ["ENTRY", "NAMES", "Kernel", "load"]

ENTRY = "tamis_kernel"
"""The symbol of a kernel in its object file."""

NAMES = tuple(SIGNATURES)
"""All kernels: the modules of :mod:`tamis.kernels.sources` that have one."""

_LOG = logging.getLogger("tamis")
_GUARD = threading.Lock()
_LOADED: dict[str, Kernel] = {}
_GIVEN_UP: set[str] = set()
_COMPILERS: dict[str, subprocess.Popen[bytes]] = {}


class Kernel:
    """A compiled kernel: a function of numbers and arrays that returns a number, and releases the GIL.

    Args:
        name: Its name.
        code: Its object file.
    """

    def __init__(self, name: str, code: bytes) -> None:
        import llvmlite.binding as llvm

        self.name = name
        self._signature = SIGNATURES[name]
        check_object(code, ENTRY)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        # Numba's calling convention: a place for the result, one for an exception, the arguments; returns a status.
        parameters = [ctypes.c_int64] * len(self._signature.parameters)
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *parameters)
        self._function = function(self._engine.get_function_address(ENTRY))

    def __call__(self, *arguments: Argument) -> int:
        """Call it. Raises ``TypeError`` or ``ValueError`` if an argument does not match its signature."""
        passed, _tables = self._signature.check(self.name, arguments)  # the tables must live until the kernel is done
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        self._function(ctypes.byref(result), ctypes.byref(error), *passed)
        return result.value


def load(name: str) -> Kernel | None:
    """A kernel by name; ``None`` until it is compiled, which the first call starts."""
    kernel = _LOADED.get(name)
    if kernel is not None or name in _GIVEN_UP:
        return kernel
    mode = os.environ.get("TAMIS_KERNELS", "")
    if mode == "off":
        return None
    with _GUARD:
        if name not in _LOADED:
            try:
                code = cache.compiled_code(name)
                if code is None:
                    _compile_in_background(name, wait=mode == "wait")
                    code = cache.compiled_code(name)
                if code is not None:
                    _LOADED[name] = Kernel(name, code)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                _give_up(name, str(error) or repr(error))
        return _LOADED.get(name)


def _compile_in_background(name: str, wait: bool) -> None:
    """Start a process that compiles the kernel, once; later calls check whether it has failed."""
    failure = cache.failure_file(name)
    compiler = _COMPILERS.get(name)
    if compiler is None:
        if os.path.exists(failure):
            _give_up(name, f"see {failure}")
            return
        command = [sys.executable, "-m", "tamis.kernels.compiler", name]
        # In a new session, so that Ctrl-C ends the run, but not the compiler.
        compiler = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        _COMPILERS[name] = compiler
    if wait:
        compiler.wait()
    if compiler.poll() is not None and cache.compiled_file(name) is None:
        _give_up(name, f"see {failure}" if os.path.exists(failure) else f"exit status {compiler.returncode}")


def _give_up(name: str, why: str) -> None:
    _GIVEN_UP.add(name)
    _LOG.warning("the kernel %r cannot be compiled or loaded (%s): plain Python does its work, far slower", name, why)
