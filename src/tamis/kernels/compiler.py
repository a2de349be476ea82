"""Compiles kernels: ``python -m tamis.kernels.compiler NAME ...`` (all of them if none is named).

Everything else only loads what it left behind.

Numba turns a module of :mod:`tamis.kernels.sources` into LLVM code, LLVM into an object file for this processor, and
the file into the cache under its name. The object file needs no Python and no Numba.
"""

from __future__ import annotations

import importlib
import platform
import sys
import traceback
from pathlib import Path
from typing import Any

from tamis.kernels.native import (
    BASELINE,
    ENTRY,
    NAMES,
    cached_file,
    failure_file,
    lock,
    packaged_file,
    store_code,
    stored_code,
)

__all__ = ["compile_kernel", "main"]

_FROM_THE_C_LIBRARY = {"memcpy", "memmove", "memset", "memcmp", "bcmp"}


def compile_kernel(source: Any, portable: bool = False) -> bytes:
    """The object file of a module with a ``kernel`` and its ``SIGNATURE``.

    Args:
        source: The module.
        portable: Whether to make it for any processor that is not too old, instead of just this one.
    """
    import llvmlite.binding as llvm

    from tamis.kernels.sources.primitives import compiled_for

    dispatcher = compiled_for(source.SIGNATURE, source.kernel)
    (compiled,) = dispatcher.overloads.values()
    module = llvm.parse_assembly(dispatcher.inspect_llvm(dispatcher.signatures[0]))
    module.get_function(compiled.fndesc.llvm_func_name).name = ENTRY
    foreign = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    if foreign - _FROM_THE_C_LIBRARY:
        # LLVM ends the process where it cannot find a symbol, so such a file must never come into being.
        raise RuntimeError(f"{source.__name__} needs {', '.join(sorted(foreign))}, which no kernel may need")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=BASELINE.get(platform.machine(), "generic") if portable else llvm.get_host_cpu_name(),
        features="" if portable else llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if sys.platform != "win32" else "default",
        codemodel="jitdefault",
    )
    code: bytes = machine.emit_object(module)
    return code


def compile_for_package() -> list[Path]:
    """Compile all kernels into the package, for it to be shipped with."""
    files = []
    for name in NAMES:
        final = packaged_file(name)
        if stored_code(final) is None:
            final.parent.mkdir(exist_ok=True)
            store_code(final, compile_kernel(_source(name), portable=True))
        files.append(final)
    for other in set(files[0].parent.glob("*.o")) - set(files):
        other.unlink()
    return files


def compile_into_cache(name: str) -> None:
    """Compile a kernel unless another process has done so, or is doing so now and then waited for."""
    final = cached_file(name)
    final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock(final.with_suffix(".lock")):
        if stored_code(final) is not None:
            return
        try:
            store_code(final, compile_kernel(_source(name)))
        except (OSError, MemoryError):
            raise  # another time it may go well
        except Exception:
            failure_file(name).write_text(traceback.format_exc(), encoding="utf-8")
            raise


def main(names: list[str]) -> None:
    """Compile these kernels."""
    for name in names or NAMES:
        compile_into_cache(name)


def _source(name: str) -> Any:
    return importlib.import_module(f"tamis.kernels.sources.{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
