"""The same script on two nodes of a Slurm job, here two processes with the variables that Slurm would set."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.core import slurm
from tamis.core.client import SlurmRayClient
from tamis.errors import ClusterError

SBATCH = Path(__file__).parents[2] / "deploy" / "slurm" / "tamis.sbatch"

# What srun does, as far as the script needs it: the command once per node, with the node's number; then their end.
SRUN = """\
#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=0
SLURM_NODEID=1 SLURM_CPUS_ON_NODE=3 "$@" & other=$!
SLURM_NODEID=0 SLURM_CPUS_ON_NODE=2 "$@"; code=$?
wait $other; echo "srun: $code $?"
exit $code
"""

TAMIS = f"""\
#!{sys.executable}
import ray, sys
ray.init(log_to_driver=False, logging_level="ERROR")
print("tamis", *sys.argv[1:], sorted(n["Resources"]["CPU"] for n in ray.nodes()), flush=True)
sys.exit(7)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.startswith(("SLURM_", "RAY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(tmp_path))
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_batch_script_runs_the_command_on_a_cluster_of_all_nodes(job: Path) -> None:
    tools = job / "bin"
    tools.mkdir()
    program(tools / "srun", SRUN)
    program(tools / "tamis", TAMIS)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    # A file of an earlier start of the same job, which was killed and requeued, must be ignored.
    slurm.announce_address("127.0.0.1:1")
    done = subprocess.run(
        ["bash", str(SBATCH), "recipe.yaml", "--quiet"],
        env={**os.environ, "PATH": path, "SLURM_RESTART_COUNT": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "tamis run recipe.yaml --quiet --executor streaming [2.0, 3.0]" in done.stdout, done.stderr
    assert done.stdout.rstrip().endswith("srun: 7 0")  # the command's own code; the other node ended well
    assert done.returncode == 7
    assert not slurm.broadcast_file().exists()


def test_the_batch_script_is_valid() -> None:
    subprocess.run(["bash", "-n", str(SBATCH)], check=True)
    refused = subprocess.run(["bash", str(SBATCH)], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "usage: sbatch" in refused.stderr


def test_a_node_without_a_head_gives_up(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    with pytest.raises(ClusterError, match=rf"no head was found within 0.1 s: .*{job}/ray_head_port_4711"):
        SlurmRayClient(worker_connect_timeout_s=0.1).start()


@pytest.mark.parametrize("told", ["6379", "[1]", '{"launch": ".0"}', '{"launch": ".0", "address": "here"}'])
def test_an_unrelated_file_is_not_taken_as_an_address(job: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    (job / "ray_head_port_4711").write_text(told)
    with pytest.raises(ClusterError, match="no head was found"):
        SlurmRayClient(worker_connect_timeout_s=0.1).start()


def test_a_directory_that_cannot_be_written_is_reported(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job / "file").touch()
    monkeypatch.setenv("RAY_PORT_BROADCAST_DIR", str(job / "file"))
    with pytest.raises(ClusterError, match="Set RAY_PORT_BROADCAST_DIR to a"):
        SlurmRayClient().start()


@pytest.mark.usefixtures("job")
def test_two_tasks_on_a_node_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_LOCALID", "1")
    with pytest.raises(ClusterError, match="--ntasks-per-node=1"):
        SlurmRayClient().start()


def test_the_address_is_valid_only_for_this_start_of_the_job(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_PORT_BROADCAST_DIR", str(job / "elsewhere"))
    assert slurm.announced_address() is None
    slurm.announce_address("192.0.2.1:6379")
    assert slurm.announced_address() == "192.0.2.1:6379"
    assert json.loads((job / "elsewhere" / "ray_head_port_4711").read_text())["address"] == "192.0.2.1:6379"
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    assert slurm.announced_address() is None
