"""Kernels are compiled once, never stale, and done without until they are there."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tamis
from tamis.kernels import cache, native

PACKAGE = Path(tamis.__file__).parent

TOY = """
from tamis.kernels.sources.toy_helper import answer

def kernel(number):
    return number + answer()
"""
TOY_SIGNATURE = """
from tamis.kernels.arguments import Number

SIGNATURES["toy"] = Signature(number=Number())
"""
TOY_HELPER = """
from tamis.kernels.sources.primitives import helper

@helper
def answer():
    return {answer}
"""


@pytest.fixture
def own_package(tmp_path: Path) -> Path:
    """A copy of the kernels with one more, small one; not compiled."""
    root = tmp_path / "tamis"
    shutil.copytree(PACKAGE / "kernels", root / "kernels", ignore=shutil.ignore_patterns("objects", "__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", root / "__init__.py")
    (root / "kernels" / "sources" / "toy.py").write_text(TOY, encoding="utf-8")
    (root / "kernels" / "sources" / "toy_helper.py").write_text(TOY_HELPER.format(answer=1), encoding="utf-8")
    with (root / "kernels" / "signatures" / "__init__.py").open("a", encoding="utf-8") as signatures:
        signatures.write(TOY_SIGNATURE)
    return tmp_path


def python(where: Path, code: str, kernels: str = "wait", cache: str = "", temporary: str = "") -> str:
    """What a program prints that imports the package in a folder, with a cache beside it."""
    environment = os.environ | {
        "PYTHONPATH": str(where),
        "PYTHONSAFEPATH": "1",
        "TAMIS_CACHE_DIR": cache or str(where / "cache"),
        "TAMIS_KERNELS": kernels,
        "TMPDIR": temporary or str(where),
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.strip()


USE_TOY = "from tamis.kernels import native; print(native.load('toy')(41))"


def test_a_changed_helper_in_another_file_is_compiled_anew(own_package: Path) -> None:
    assert python(own_package, USE_TOY) == "42"
    helper = own_package / "tamis" / "kernels" / "sources" / "toy_helper.py"
    helper.write_text(TOY_HELPER.format(answer=2), encoding="utf-8")
    assert python(own_package, USE_TOY) == "43"
    helper.write_text(TOY_HELPER.format(answer=1), encoding="utf-8")
    assert python(own_package, USE_TOY) == "42"
    assert len(list((own_package / "cache" / "kernels").iterdir())) == 2


def test_what_comes_with_the_package_is_used_only_if_it_is_of_its_sources(own_package: Path) -> None:
    where = python(own_package, "from tamis.kernels import cache; print(cache.packaged_file('toy'))")
    Path(where).parent.mkdir()
    assert python(own_package, USE_TOY) == "42"
    (compiled,) = (own_package / "cache").rglob("toy.o")
    compiled.rename(where)
    assert python(own_package, USE_TOY) == "42"
    assert not list((own_package / "cache").rglob("toy.o"))
    helper = own_package / "tamis" / "kernels" / "sources" / "toy_helper.py"
    helper.write_text(TOY_HELPER.format(answer=2), encoding="utf-8")
    assert python(own_package, USE_TOY) == "43"


def test_several_processes_compile_a_kernel_once(own_package: Path) -> None:
    code = f"""
        import subprocess, sys
        use = {USE_TOY!r}
        workers = [subprocess.Popen([sys.executable, "-c", use], stdout=subprocess.PIPE) for _ in range(3)]
        print([int(w.communicate()[0]) for w in workers])
        """
    assert python(own_package, code) == "[42, 42, 42]"
    (compiled,) = (own_package / "cache").rglob("toy.o")
    assert not list(compiled.parent.glob("*.tmp"))


def test_no_numba_where_a_kernel_is_only_used(own_package: Path) -> None:
    python(own_package, USE_TOY)
    assert python(own_package, f"{USE_TOY}; import sys; print('numba' in sys.modules)").split() == ["42", "False"]


def test_a_kernel_that_cannot_be_compiled_is_done_without(own_package: Path) -> None:
    toy = own_package / "tamis" / "kernels" / "sources" / "toy.py"
    toy.write_text(TOY.replace("number + answer()", "open('x')"), encoding="utf-8")
    code = "from tamis.kernels import native; print(native.load('toy'), native.load('toy'))"
    assert python(own_package, code) == "None None"
    assert python(own_package, code) == "None None"
    (failure,) = (own_package / "cache").rglob("toy.failed")
    assert "open" in failure.read_text(encoding="utf-8")


@pytest.mark.parametrize("damage", [b"", b"\x7fELF and no more", b"\0" * 5000])
def test_a_damaged_file_in_the_cache_is_compiled_anew(own_package: Path, damage: bytes) -> None:
    where = Path(python(own_package, "from tamis.kernels import cache; print(cache.cached_file('toy'))"))
    where.write_bytes(damage)
    assert python(own_package, USE_TOY) == "42"
    assert python(own_package, USE_TOY, kernels="") == "42"


def test_a_cache_that_cannot_be_written_to_is_done_without(own_package: Path) -> None:
    assert python(own_package, USE_TOY, cache=f"{os.devnull}/cache") == "42"
    (compiled,) = own_package.glob("tamis-*/**/toy.o")  # among the temporary files
    shutil.copytree(compiled.parent.parent, own_package / "image" / "kernels")
    shutil.rmtree(own_package / compiled.relative_to(own_package).parts[0])
    assert python(own_package, USE_TOY, kernels="", cache=str(own_package / "image")) == "42"


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="files have owners and modes on POSIX systems")
LOAD = "from tamis.kernels import native; print(native.load('toy') is not None)"


@POSIX
@pytest.mark.parametrize("depth", range(4), ids=["the cache", "kernels", "the folder of this version", "the file"])
def test_kernels_that_others_can_have_written_are_not_run(own_package: Path, depth: int) -> None:
    assert python(own_package, LOAD) == "True"
    (compiled,) = (own_package / "cache").rglob("toy.o")
    assert python(own_package, LOAD, kernels="") == "True"
    folder = [*reversed(compiled.relative_to(own_package).parents), compiled.relative_to(own_package)][1 + depth]
    (own_package / folder).chmod(0o775)
    # It is neither run nor written to: another folder takes its place, in which the kernel is compiled first.
    before = compiled.stat().st_mtime_ns
    assert python(own_package, LOAD, kernels="") == "False"
    assert python(own_package, LOAD) == "True"
    if depth < 3:
        assert compiled.stat().st_mtime_ns == before
        assert len(list(own_package.glob("tamis-*/**/toy.o"))) == 1


@POSIX
@pytest.mark.parametrize("name", ["cache", "spare"])
def test_a_folder_that_is_refused_is_named(own_package: Path, name: str) -> None:
    folder = own_package / ("cache" if name == "cache" else f"tamis-{os.getuid()}")
    folder.mkdir()
    folder.chmod(0o777)
    cache = "" if name == "cache" else f"{os.devnull}/cache"
    code = "import logging, sys; logging.basicConfig(stream=sys.stdout); " + LOAD
    said = python(own_package, code, cache=cache)
    assert f"{folder} is not used for compiled kernels, because other users can write to it" in said
    assert said.endswith("True" if name == "cache" else "False")


@POSIX
@pytest.mark.skipif(sys.platform != "win32" and os.getuid() != 0, reason="only root can give files away")
def test_kernels_of_another_user_are_not_run(own_package: Path) -> None:
    assert python(own_package, LOAD) == "True"
    os.chown(own_package / "cache", 12345, -1)
    code = "import logging, sys; logging.basicConfig(stream=sys.stdout); " + LOAD
    assert "because it belongs to the user 12345" in python(own_package, code, kernels="")


def test_off_means_off() -> None:
    code = "from tamis.kernels import native; print(native.load('heuristics'))"
    assert python(PACKAGE.parent, code, kernels="off") == "None"


def test_the_name_of_a_compiled_kernel_changes_with_every_module_it_is_made_of() -> None:
    kernels = PACKAGE / "kernels"
    known = {f"sources/{file.name}" for file in (kernels / "sources").glob("*.py")} | set(cache.COMPILED_FROM)
    for file in known - {"compiler.py"}:  # which uses other modules, but not for what it makes
        for node in ast.walk(ast.parse((kernels / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tamis"):
                parent = (node.module or "").removeprefix("tamis.kernels").replace(".", "/").lstrip("/")
                package = f"{parent}/__init__.py" if (kernels / parent).is_dir() else f"{parent}.py"
                modules = (
                    [package]
                    if parent and parent != "sources"
                    else [f"{parent}/{name.name}.py".lstrip("/") for name in node.names]
                )
                assert set(modules) <= known, file


def test_every_kernel_is_named() -> None:
    sources = {file.stem: file.read_text() for file in (PACKAGE / "kernels" / "sources").glob("*.py")}
    with_kernel = {name for name, code in sources.items() if "\ndef kernel(" in code or '__all__ = ["kernel"]' in code}
    assert set(native.NAMES) == with_kernel


def test_plain_definitions_serve_until_the_kernel_is_there(tmp_path: Path) -> None:
    code = """
        import pyarrow as pa
        from tamis.kernels import cache, native
        from tamis.stages.text.filters import RepeatingTopNGramsFilter, ScoreFilter, WordCountFilter
        from tamis.tasks import DocumentBatch

        cache.packaged_file = lambda name: cache.Path("nowhere")  # as if it had not come with the package
        texts = [f"word {n} " * n for n in range(60)]
        stage = ScoreFilter([WordCountFilter(30, 80), RepeatingTopNGramsFilter(2, 0.9)], score_field=["words", "top"])

        def results():
            made = stage.process(DocumentBatch({"text": texts}))
            return made.data.to_pydict(), [(drop.rows.tolist(), drop.scores.to_pylist()) for drop in made.dropped]

        plain = results()
        assert not native._LOADED
        native._COMPILERS["heuristics"].wait()
        compiled = results()
        assert native._LOADED
        print(plain == compiled)
        """
    environment = os.environ | {"TAMIS_CACHE_DIR": str(tmp_path), "TAMIS_KERNELS": ""}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")
