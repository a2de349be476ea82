"""Makes imports of ``nemo_curator`` find tamis: a finder at the head of ``sys.meta_path`` while compat is active."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import tamis
from tamis.compat import module_map
from tamis.compat.hints import hint_for
from tamis.errors import NotInTamisError

__all__ = ["NotInTamisError", "activate", "deactivate"]

PEER = "nemo_curator"

_FOR_WORKERS = str(Path(__file__).parent / "for_workers")
"""A directory with a module called ``nemo_curator``: workers get the driver's ``sys.path``, not its finders."""


class Alias(ModuleType):
    """Stands for a module of ``nemo_curator``; its names are the objects of some tamis modules."""

    def __init__(self, name: str, tamis_modules: Sequence[ModuleType]) -> None:
        super().__init__(name, f"{name}, on tamis: {', '.join(m.__name__ for m in tamis_modules) or 'no names'}.")
        self._tamis_modules = tuple(tamis_modules)
        self.__all__ = public_names(tamis_modules)

    def __getattr__(self, name: str) -> Any:
        # Submodules are left to the import system, which asks the finder, so they are aliases, too.
        if name == "__version__" or not name.startswith("__"):
            own_name = module_map.NAMES.get((_without_package(self.__name__), name), name)
            for module in self._tamis_modules:
                if hasattr(module, own_name) and not _is_our_module(found := getattr(module, own_name)):
                    return found
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on tamis", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__all__})

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


class Finder(MetaPathFinder, Loader):
    """Finds the modules of ``nemo_curator`` in tamis; for those that tamis lacks, the error says what to use instead.

    Args:
        hidden: Modules of a real ``nemo_curator`` that were imported before.
    """

    def __init__(self, hidden: dict[str, ModuleType]) -> None:
        self.hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_peers(fullname):
            return None
        if not tamis_modules_for(fullname) and not module_map.is_only_a_parent(_without_package(fullname)):
            raise NotInTamisError(refusal(fullname))
        # Every module is a package: then `from module import name` asks this finder about a missing name.
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Alias(spec.name, tamis_modules_for(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def activate() -> None:
    """Let ``import nemo_curator`` mean tamis, in this process and in the workers it starts.

    If a real ``nemo_curator`` is installed, it is hidden and a warning says so. Calling this again does nothing.
    """
    if _active() is not None:
        return
    hidden = _take_out_modules()
    real = importlib.util.find_spec(PEER)
    if real is not None and not str(real.origin).startswith(_FOR_WORKERS):
        warnings.warn(
            f"{PEER} is installed ({real.origin}); in this process and its workers the name now means tamis "
            f"{tamis.__version__}, until tamis.compat.deactivate()",
            stacklevel=2,
        )
    sys.meta_path.insert(0, Finder(hidden))
    sys.path.insert(0, _FOR_WORKERS)


def deactivate() -> None:
    """Undo :func:`activate`: ``nemo_curator`` is again what it was before, or nothing."""
    finder = _active()
    if finder is None:
        return
    sys.meta_path.remove(finder)
    if _FOR_WORKERS in sys.path:
        sys.path.remove(_FOR_WORKERS)
    _take_out_modules()
    sys.modules.update(finder.hidden)


def tamis_modules_for(fullname: str) -> list[ModuleType]:
    """The tamis modules that have the names of a module of ``nemo_curator``."""
    names = [name for name in module_map.candidates(_without_package(fullname)) if _exists(name)]
    return [importlib.import_module(name) for name in dict.fromkeys(names)]


def public_names(modules: Iterable[ModuleType]) -> list[str]:
    """The public names of several modules."""
    offered = (getattr(m, "__all__", None) or [n for n in vars(m) if not n.startswith("_")] for m in modules)
    return sorted({name for names in offered for name in names})


def refusal(fullname: str) -> str:
    """The message that tamis does not have a name of ``nemo_curator``, and what to use instead."""
    return f"{fullname} is not in tamis {tamis.__version__}. {_advice(fullname)}"


def _advice(fullname: str) -> str:
    from tamis.pipeline.catalogue import catalogue  # imports every stage: only for a message

    parent, _, name = fullname.rpartition(".")
    known = catalogue()
    if name in known:
        return f"Import it from its place in tamis: from {_home(known[name].cls)} import {name}"
    hint = hint_for(_without_package(fullname))
    if hint:
        return hint
    modules = tamis_modules_for(parent)
    names = [*public_names(modules), *_submodules(modules)]
    # Stricter than elsewhere: a missing name is more often missing in tamis than misspelt.
    close = difflib.get_close_matches(name, [*names, *known], n=1, cutoff=0.8)
    if close:
        return f"Did you mean {close[0]!r}?"
    listed = f"{parent} has {', '.join(sorted(set(names)))}; " if names and parent != PEER else ""
    return f"{listed}`tamis stages` lists all stages"


def _home(cls: type) -> str:
    """The shortest module path below ``tamis`` from which a class can be imported."""
    parts = cls.__module__.split(".")
    for length in range(2, len(parts)):
        package = ".".join(parts[:length])
        if getattr(importlib.import_module(package), cls.__name__, None) is cls:
            return package
    return cls.__module__


def _submodules(modules: Iterable[ModuleType]) -> list[str]:
    return [found.name for m in modules for found in pkgutil.iter_modules(getattr(m, "__path__", []))]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent does not exist, or is not a package
        return False


def _is_our_module(thing: object) -> bool:
    return isinstance(thing, ModuleType) and thing.__name__.startswith("tamis.")


def _active() -> Finder | None:
    return next((f for f in sys.meta_path if isinstance(f, Finder)), None)


def _take_out_modules() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_peers(name)}


def _is_peers(fullname: str) -> bool:
    return fullname == PEER or fullname.startswith(f"{PEER}.")


def _without_package(fullname: str) -> str:
    return fullname.partition(".")[2]
