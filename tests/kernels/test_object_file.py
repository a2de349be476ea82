"""An object file that LLVM could not link, or would link wrongly, is refused before LLVM sees it."""

from __future__ import annotations

import platform
import sys

import llvmlite.binding as llvm
import pytest

from tamis.kernels import cache, native
from tamis.kernels.object_file import check_object

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="objects of x86-64 Linux are made"
)

GOOD = (
    "define i32 @entry(i8* %0) { call i8* @memcpy(i8* %0, i8* %0, i64 9) ret i32 0 } declare i8* @memcpy(i8*, i8*, i64)"
)
TABLE = """
@table = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
define i32 @entry(i64 %0) {
  %place = getelementptr [4 x i32], [4 x i32]* @table, i64 0, i64 %0
  %value = load i32, i32* %place
  ret i32 %value
}
"""


def compiled(assembly: str, codemodel: str = "jitdefault", reloc: str = "static") -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel=codemodel, reloc=reloc)
    code: bytes = machine.emit_object(llvm.parse_assembly(assembly))
    return code


@pytest.mark.parametrize("assembly", [GOOD, TABLE])
def test_what_kernels_may_use_is_accepted(assembly: str) -> None:
    check_object(compiled(assembly), "entry")


@pytest.mark.parametrize(
    ("code", "entry", "message"),
    [
        (compiled(GOOD.replace("memcpy", "system")), "entry", "needs system, which kernels may not use"),
        (compiled(GOOD), "other", "does not define other"),
        (compiled(GOOD), "memcpy", "does not define memcpy"),
        (compiled(TABLE, codemodel="small"), "entry", "relocations that do not reach every address"),
        (compiled(TABLE, codemodel="small", reloc="pic"), "entry", "relocations that do not reach every address"),
        (compiled(GOOD)[:200], "entry", "the object file is damaged"),
        (b"\x7fELF\x01\x01" + compiled(GOOD)[6:], "entry", "not for a 64-bit little-endian machine"),
    ],
)
def test_anything_else_is_refused(code: bytes, entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_object(code, entry)


@pytest.mark.parametrize("name", native.NAMES)
def test_every_kernel_is_accepted(name: str) -> None:
    assert native.load(name) is not None
    code = cache.compiled_code(name)
    assert code is not None
    check_object(code, native.ENTRY)
