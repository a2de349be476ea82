"""What the nodes of a Slurm job know of each other: a few variables, and a file with the head's address."""

from __future__ import annotations

import json
import os
from pathlib import Path


def count(variable: str) -> int | None:
    """A number that Slurm gives; ``None`` when it does not."""
    told = os.environ.get(variable, "")
    return int(told) if told.isdigit() else None


def broadcast_file() -> Path:
    """Where the head tells its address; every node must see it."""
    folder = os.environ.get("RAY_PORT_BROADCAST_DIR") or os.environ.get("SLURM_SUBMIT_DIR") or os.getcwd()
    return Path(folder, f"ray_head_port_{os.environ['SLURM_JOB_ID']}")


def tell_address(address: str) -> None:
    """Tell the other nodes where the head is."""
    file = broadcast_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"address": address, "launch": _launch()}), encoding="utf-8")
    unfinished.replace(file)


def told_address() -> str | None:
    """The head's address; ``None`` if it has not told it yet, or has taken it back."""
    try:
        told = json.loads(broadcast_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict) or told.get("launch") != _launch():
        return None  # of another start, or not ours at all
    return str(told.get("address", ""))


def _launch() -> str:
    """What tells this start from an earlier one of the same job: a step before, or before it was put back in line."""
    return f"{os.environ.get('SLURM_STEP_ID', '')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
