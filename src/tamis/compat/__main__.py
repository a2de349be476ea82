"""``python -m tamis.compat script.py [arguments]``: run a script that imports ``nemo_curator`` on tamis."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tamis import compat

USAGE = """\
usage: python -m tamis.compat script.py [arguments]
       python -m tamis.compat -m module [arguments]

Runs a script or module as python itself would, with `import nemo_curator` meaning tamis."""


def main(arguments: list[str]) -> None:
    """Run the script or module named first; the rest are its own arguments."""
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{USAGE}\n")
        return
    as_module = arguments[:1] == ["-m"]
    target, *rest = (arguments[1:] if as_module else arguments) or [""]
    if not target or not (as_module or Path(target).exists()):
        sys.exit(f"python -m tamis.compat: there is no file {target!r}\n{USAGE}" if target else USAGE)
    sys.argv = [target, *rest]
    if not as_module and not sys.flags.safe_path:
        sys.path[0] = str(Path(target).resolve().parent)  # as python does; -m has put the current directory there
    compat.activate()
    if as_module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(target, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
