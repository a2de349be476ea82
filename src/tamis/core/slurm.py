"""How the nodes of a Slurm job find each other: variables of Slurm, and a file with the head's address."""

from __future__ import annotations

import json
import os
from pathlib import Path


def count(variable: str) -> int | None:
    """The number in a variable of Slurm; ``None`` if it is not set."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdigit() else None


def broadcast_file() -> Path:
    """The file with the head's address; every node must see it."""
    folder = os.environ.get("RAY_PORT_BROADCAST_DIR") or os.environ.get("SLURM_SUBMIT_DIR") or os.getcwd()
    return Path(folder, f"ray_head_port_{os.environ['SLURM_JOB_ID']}")


def announce_address(address: str) -> None:
    """Write the head's address for the other nodes."""
    file = broadcast_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"address": address, "launch": _launch()}), encoding="utf-8")
    unfinished.replace(file)


def announced_address() -> str | None:
    """The head's address; ``None`` if it is not written yet, or was removed."""
    try:
        content = json.loads(broadcast_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("launch") != _launch():
        return None  # of another start, or not written by tamis
    return str(content.get("address", ""))


def _launch() -> str:
    """An id of this start: differs from earlier steps of the job, and from before the job was requeued."""
    return f"{os.environ.get('SLURM_STEP_ID', '')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
