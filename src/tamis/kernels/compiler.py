"""Compiles kernels: ``python -m tamis.kernels.compiler NAME ...`` (all kernels if none is named).

Numba turns a module of :mod:`tamis.kernels.sources` into LLVM code, LLVM turns that into an object file for this
processor, and the file goes into the cache. Other code only loads object files, which needs no Numba.
"""

from __future__ import annotations

import importlib
import inspect
import platform
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tamis.kernels import cache
from tamis.kernels.native import ENTRY, NAMES
from tamis.kernels.object_file import check_object
from tamis.kernels.signatures import SIGNATURES

__all__ = ["compile_kernel", "main"]


def compile_kernel(name: str, portable: bool = False) -> bytes:
    """The object file of the kernel in a module of :mod:`tamis.kernels.sources`.

    Args:
        name: The name of the module.
        portable: Whether to compile for all common processors instead of this one.
    """
    import llvmlite.binding as llvm

    from tamis.kernels.sources.primitives import compiled_for

    function = importlib.import_module(f"tamis.kernels.sources.{name}").kernel
    signature = SIGNATURES[name]
    if list(inspect.signature(function).parameters) != list(signature.parameters):
        raise TypeError(f"the parameters of the kernel {name!r} are not those of its signature")
    dispatcher = compiled_for(signature, function)
    (compiled,) = dispatcher.overloads.values()
    module = llvm.parse_assembly(dispatcher.inspect_llvm(dispatcher.signatures[0]))
    module.get_function(compiled.fndesc.llvm_func_name).name = ENTRY
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != ENTRY:
            value.linkage = "internal"  # nothing else is called from outside
    code: bytes = _target_machine(portable).emit_object(module)
    check_object(code, ENTRY)
    return code


def compile_for_package() -> list[Path]:
    """Compile all kernels into the package, to ship with it."""
    files = {name: cache.packaged_file(name) for name in NAMES}
    folder = files[NAMES[0]].parent
    folder.mkdir(exist_ok=True)
    missing = [name for name, file in files.items() if cache.stored_code(file) is None]
    with ProcessPoolExecutor() as processes:
        for name, code in zip(missing, processes.map(_portable_code, missing), strict=True):
            cache.store_code(files[name], code)
    for other in {*folder.glob("*.o")} - {*files.values()}:
        other.unlink()
    return [*files.values()]


def _portable_code(name: str) -> bytes:
    return compile_kernel(name, portable=True)


def compile_into_cache(name: str) -> None:
    """Compile a kernel unless another process has done so; waits for one that is doing it now."""
    final = cache.cached_file(name)
    with cache.lock(final.with_suffix(".lock")):
        if cache.stored_code(final, must_be_own=True) is not None:
            return
        try:
            cache.store_code(final, compile_kernel(name))
        except (OSError, MemoryError):
            raise  # it may work another time
        except Exception:
            cache.failure_file(name).write_text(traceback.format_exc(), encoding="utf-8")
            raise


def main(names: list[str]) -> None:
    """Compile these kernels."""
    for name in names or NAMES:
        compile_into_cache(name)


def _target_machine(portable: bool) -> Any:
    """The machine that LLVM compiles for.

    The linker that loads an object file may put its code gigabytes away from its constants and from the C library. So
    addresses have all 64 bits, which is what the code model "jitdefault" means. With it, x86-64 and 64-bit ARM need no
    position-independent code, since the linker knows all addresses. Other machines use LLVM's default.
    """
    import llvmlite.binding as llvm

    has_wide_addresses = platform.machine() in ("x86_64", "aarch64") and sys.platform.startswith("linux")
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cache.BASELINE.get(platform.machine(), "generic") if portable else llvm.get_host_cpu_name(),
        features="" if portable else llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if has_wide_addresses else "default",
        codemodel="jitdefault",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
