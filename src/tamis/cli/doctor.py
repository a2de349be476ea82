"""``tamis doctor``."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import Final

import tamis
from tamis.cli.output import print_json, show
from tamis.core.host import Machine, this_machine
from tamis.errors import install
from tamis.printable import printable

# What each extra is for; one that is not here is shown with its packages.
_PURPOSES: Final = {
    "pandas": "pandas frames in your own stages",
    "s3": "files on Amazon S3 and stores like it (s3://)",
    "gcs": "files on Google Cloud Storage (gs://)",
    "http": "files from the web (https://)",
    "hf": "files on the Hugging Face hub (hf://)",
    "unicode": "repair of broken text (UnicodeReformatter)",
    "language": "language identification, fastText models (AddLanguage, FastTextLangId, ...)",
    "segmentation": "words of Chinese, Japanese and Thai",
    "code": "HTML and SentencePiece models (HTMLBoilerplateFilter, TokenizerFertilityFilter)",
    "tokenize": "tokens (TokenCount, Tokenize, MegatronTokenizerWriter, ...)",
    "transformers": "tokenizers without a tokenizer.json",
    "gpu": "MinHash signatures on an NVIDIA GPU",
    "ray": "many machines",
    "metrics": "a Prometheus endpoint (run(metrics_port=...), tamis run --metrics-port)",
    "traces": "OpenTelemetry traces of runs",
    "dev": "work on tamis itself",
}
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_PYTHON: Final = re.compile(r"python_version\s*(<=|>=|<|>|==)\s*['\"](\d+)\.(\d+)['\"]")


@dataclass(frozen=True)
class Package:
    """A package that tamis uses: its version here, or ``None`` where it is missing."""

    name: str
    version: str | None


def run(arguments: argparse.Namespace) -> int:
    """Show what this machine and this installation have."""
    machine, disk = this_machine(), shutil.disk_usage(os.getcwd())
    core, extras = packages()
    ray = Package("ray", _version("ray"))
    if arguments.json:
        print_json(
            {
                "tamis": tamis.__version__,
                "python": machine.python,
                "executable": sys.executable,
                "machine": asdict(machine),
                "disk": {"free_bytes": disk.free, "total_bytes": disk.total},
                "kernels": _kernels(),
                "packages": {package.name: package.version for package in core},
                "extras": {
                    extra: {
                        "purpose": _purpose(extra, members),
                        "installed": all(member.version for member in members),
                        "packages": {member.name: member.version for member in members},
                    }
                    for extra, members in extras.items()
                },
                "ray": ray.version,
            }
        )
        return 0
    _show(machine, disk.free, core, extras, ray)
    return 0


def _kernels() -> str:
    """Whether the native kernels are compiled, and if not, why."""
    from tamis.kernels.cache import compiled_file, failure_file, packaged_file
    from tamis.kernels.native import NAMES

    if os.environ.get("TAMIS_KERNELS") == "off":
        return "off (TAMIS_KERNELS=off): plain Python, far slower"
    missing = [name for name in NAMES if compiled_file(name) is None]
    try:
        failed = [name for name in missing if failure_file(name).exists()]
    except OSError as error:
        return f"{', '.join(missing)} cannot be compiled: {error}"
    if failed:
        return f"{', '.join(failed)} cannot be compiled here, see {failure_file(failed[0])}: plain Python, far slower"
    if missing:
        return f"{', '.join(missing)} not compiled yet: the first run does it, or python -m tamis.kernels.compiler"
    packaged = all(compiled_file(name) == packaged_file(name) for name in NAMES)
    return "came with the package" if packaged else "compiled on this machine"


def packages() -> tuple[list[Package], dict[str, list[Package]]]:
    """The packages that tamis needs, and those of each extra, from its own metadata.

    >>> "pyarrow" in [package.name for package in packages()[0]]
    True
    """
    core: list[Package] = []
    extras: dict[str, list[Package]] = {}
    distribution = importlib.metadata.distribution("tamis")
    for extra in distribution.metadata.get_all("Provides-Extra") or []:
        extras[extra] = []
    for requirement in distribution.requires or []:
        condition = requirement.partition(";")[2]
        name, extra_match = _REQUIREMENT.match(requirement), _EXTRA.search(condition)
        if name is None or not _fits_python(condition):
            continue
        members = extras.setdefault(extra_match[1], []) if extra_match else core
        members.append(Package(name[1], _version(name[1])))
    return sorted(core, key=lambda p: p.name), extras


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _fits_python(condition: str) -> bool:
    """Whether a condition such as ``python_version < '3.14'`` holds here."""
    match = _PYTHON.search(condition)
    if match is None:
        return True
    here, there = sys.version_info[:2], (int(match[2]), int(match[3]))
    holds = {"<": here < there, "<=": here <= there, ">": here > there, ">=": here >= there, "==": here == there}
    return holds[match[1]]


def _purpose(extra: str, members: list[Package]) -> str:
    return _PURPOSES.get(extra) or ", ".join(member.name for member in members)


def _show(
    machine: Machine, disk_free: int, core: list[Package], extras: dict[str, list[Package]], ray: Package
) -> None:
    from tamis.runs.figures import size

    memory = f"{size(machine.memory.total_bytes)}, {size(machine.memory.available_bytes)} available"
    _section(
        "Machine",
        [
            ("tamis", tamis.__version__),
            ("Python", f"{machine.python} ({sys.executable})"),
            ("platform", machine.platform),
            ("kernels", _kernels()),
            ("cores", f"{machine.cores:g}"),
            ("memory", memory),
            ("disk", f"{size(disk_free)} free in {os.getcwd()}"),
            *((f"GPU {gpu.index}", f"{gpu.name}, {gpu.memory_gb:g} GB, driver {gpu.driver}") for gpu in machine.gpus),
            *([] if machine.gpus else [("GPU", "none found")]),
        ],
    )
    _section("Packages", [(package.name, package.version or f"missing: {install()}") for package in core])
    _section("Extras", [(extra, _extra_state(extra, members)) for extra, members in extras.items()])
    _section("Cluster", [("Ray", ray.version or "not installed; needed only for more than one machine")])


def _extra_state(extra: str, members: list[Package]) -> str:
    missing = [member.name for member in members if member.version is None]
    state = install(extra) if missing else "installed"
    return f"{state:<32} {_purpose(extra, members)}"


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=12, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(printable(value)))
    show(Text(title, style="bold"), table, Text())
