"""The peers' environments: each its own, since their dependencies do not go together with ours or each other's.

Give an interpreter of an environment that has the peer, or let one be made below ``~/.cache/tamis/peers`` (NeMo
Curator pulls PyTorch and Ray: some gigabytes). By hand:

    python3.11 -m venv nemo && nemo/bin/pip install nemo-curator==1.4.0 tqdm ftfy sentencepiece beautifulsoup4 lxml
    python3.11 -m venv datatrove && datatrove/bin/pip install "datatrove[processing,io]==0.10.1" spacy "xxhash<4"
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["datatrove_python", "nemo_python", "worker"]

# What nemo-curator imports for its text stages and does not declare, or declares in an extra together with packages
# that have no wheels for every Python.
NEMO = ["nemo-curator==1.4.0", "tqdm", "ftfy", "sentencepiece", "beautifulsoup4", "lxml"]
# datatrove 0.10.1 hashes texts with xxhash, whose release 4 takes bytes only.
DATATROVE = ["datatrove[processing,io]==0.10.1", "spacy", "xxhash<4"]


def nemo_python(given: str | None) -> str:
    """The interpreter that has NeMo Curator."""
    return _python(given, "nemo-curator-1.4.0", "nemo_curator", NEMO)


def datatrove_python(given: str | None) -> str:
    """The interpreter that has datatrove."""
    return _python(given, "datatrove-0.10.1", "datatrove", DATATROVE)


def worker(name: str) -> str:
    """The path of a script of this folder, which runs in a peer's environment."""
    return str(Path(__file__).with_name(name))


def _python(given: str | None, folder: str, module: str, packages: list[str]) -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tamis" / "peers"
    python = Path(given) if given else cache / folder / "bin" / "python"
    if given is None and not _has(python, module):
        print(f"making an environment with {packages[0]} in {cache / folder}; this takes minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(cache / folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    if not _has(python, module):
        raise SystemExit(f"{python} cannot import {module}; make an environment with: pip install {' '.join(packages)}")
    return str(python)


def _has(python: Path, module: str) -> bool:
    if not python.exists():
        return False
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([str(python), "-c", found], check=False, capture_output=True).returncode == 0
