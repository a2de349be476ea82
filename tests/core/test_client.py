"""A Ray cluster is started, used, shared and ended: with real heads, real scripts, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tamis.backends.streaming.cluster_view import Cluster
from tamis.core import reach
from tamis.core.client import RayClient
from tamis.core.ports import DefaultPort, Reservations, choose_port, holder_of
from tamis.errors import ClusterError, MissingExtraError

SMALL = "num_cpus=1, include_dashboard=False, object_store_memory='100MB'"


@pytest.fixture(autouse=True)
def no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayClient]:
    """A cluster that runs; what starting it did to this process's environment is undone, as for another process."""
    before = dict(os.environ)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE"):
        os.environ.pop(name, None)
    metrics = tmp_path_factory.mktemp("metrics")
    client = RayClient(num_cpus=1, include_dashboard=False, object_store_memory="100MB", metrics_dir=str(metrics))
    try:
        client.start()
        os.environ.pop("RAY_ADDRESS")
        yield client
        client.stop()
        assert list(metrics.iterdir()) == []
    finally:
        os.environ.clear()
        os.environ.update(before)


def address_of(client: RayClient) -> str:
    assert client.address is not None
    return client.address


def session_of(client: RayClient) -> int:
    assert client._started is not None
    assert client._started.node is not None
    return client._started.node.process.pid


def in_session(leader: int) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def wait_until_empty(leader: int) -> None:
    deadline = time.monotonic() + 40
    while left := in_session(leader):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def script(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_script_finds_the_cluster_and_runs_on_it(head: RayClient) -> None:
    code = """
        import ray
        ray.init(log_to_driver=False)
        double = ray.remote(lambda n: 2 * n)
        print(ray.cluster_resources()["CPU"], ray.get(double.remote(21)))
    """
    out, err = script(code, RAY_ADDRESS=address_of(head)).communicate(timeout=120)
    assert out.split() == ["1.0", "42"], err


def test_starting_twice_changes_nothing(head: RayClient) -> None:
    before = session_of(head), head.address
    head.start()
    assert (session_of(head), head.address) == before


@pytest.mark.parametrize("how", ["address", "RAY_ADDRESS"])
def test_an_existing_cluster_is_used_and_keeps_running(
    head: RayClient, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", address_of(head))
    before = os.environ.get("RAY_ADDRESS")
    with RayClient(address=head.address if how == "address" else None) as guest:
        assert os.environ["RAY_ADDRESS"] == guest.address == head.address
    guest.stop()
    assert os.environ.get("RAY_ADDRESS") == before
    assert "raylet" in in_session(session_of(head))


def test_the_address_is_reset_if_clients_stop_in_another_order(
    head: RayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")
    outer, inner = RayClient(address=head.address), RayClient()
    outer.start()
    inner.start()
    outer.stop()
    inner.stop()
    assert os.environ["RAY_ADDRESS"] == ""


def test_using_a_cluster_leaves_the_environment_as_it_was(head: RayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with RayClient(address=head.address):
        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_MODE" not in os.environ


def test_a_connected_process_gets_no_second_cluster(head: RayClient) -> None:
    code = """
        import os, ray
        from tamis.backends.streaming import StreamingExecutor
        from tamis.backends.streaming.cluster_view import Cluster
        from tamis.core.client import RayClient
        ray.init(log_to_driver=False, logging_level="ERROR")
        del os.environ["RAY_ADDRESS"]
        with RayClient(num_cpus=1) as client:
            print(client.address)
        print(ray.is_initialized(), "RAY_ADDRESS" in os.environ)
        Cluster(client.address).close()
        Cluster("127.0.0.2:1")
    """
    out, err = script(code, RAY_ADDRESS=address_of(head)).communicate(timeout=120)
    assert out.split() == [address_of(head), "True", "False"], err
    assert f"is connected to the cluster at {head.address}, not to 127.0.0.2:1" in err


def test_an_executor_does_not_wait_for_another_program_on_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "REACH_S", 1.0)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ClusterError, match="does not answer as a Ray"):
        Cluster(f"127.0.0.1:{other.getsockname()[1]}")


def test_an_executor_whose_run_is_refused_disconnects(head: RayClient, tmp_path: Path) -> None:
    code = """
        import ray
        from tamis import DocumentBatch, Pipeline, processing_stage
        from tamis.backends.streaming import StreamingExecutor
        from tamis.errors import TamisError

        @processing_stage(name="same")
        def same(task: DocumentBatch) -> DocumentBatch:
            return task

        for settings in ({}, {"ignore_head_node": True}):
            try:
                executor = StreamingExecutor(**settings)
                Pipeline("p", stages=[same]).run(executor, [DocumentBatch({"n": [1]})], run_dir=FILE)
            except TamisError as error:
                words = str(error)
            del executor
            print(words, ray.is_initialized(), sep=": ")
    """
    (tmp_path / "file").touch()
    code = code.replace("FILE", repr(str(tmp_path / "file")))
    out, err = script(code, RAY_ADDRESS=address_of(head)).communicate(timeout=120)
    first, second = out.splitlines()
    assert "cannot be made" in first, err
    assert "leaves no machine" in second
    assert first.endswith(": False")
    assert second.endswith(": False")


def test_files_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"Ray's files cannot be written: .*file"):
        RayClient(num_cpus=1, ray_stdouterr_capture_file=str(tmp_path / "file" / "log")).start()
    assert "RAY_ADDRESS" not in os.environ


def test_prometheus_finds_the_metrics(head: RayClient) -> None:
    (file,) = Path(head.metrics_dir or "").iterdir()
    (target,) = json.loads(file.read_text())
    assert target["targets"] == [f"{socket.gethostname()}:{head.ray_metrics_port}"]


def test_a_port_that_was_given_and_is_taken_is_refused(head: RayClient) -> None:
    with pytest.raises(ClusterError, match=rf"ray_port={head.ray_port}: the port is in use by .*process \d+"):
        RayClient(ray_port=int(head.ray_port)).start()


def test_a_taken_default_port_is_replaced() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        found = choose_port("ray_port", DefaultPort(port))
        assert found > port
        assert found == choose_port("ray_port", found)  # it can be replaced again
        assert isinstance(found, DefaultPort)
        assert f"(process {os.getpid()})" in holder_of(port)


def test_ports_of_ray_workers_are_not_chosen() -> None:
    with socket.create_server(("", 10001)) if not holder_of(10001) else socket.socket():
        assert choose_port("ray_client_server_port", DefaultPort(10001)) >= 20000


def test_a_port_that_another_script_has_chosen_is_not_chosen_again() -> None:
    ours = Reservations()
    port = choose_port("ray_port", DefaultPort(23456), (), ours)
    code = "from tamis.core.ports import DefaultPort, Reservations, choose_port\n"
    code += f"print(choose_port('ray_port', DefaultPort({port}), (), Reservations()))"
    theirs, err = script(code).communicate(timeout=60)
    assert int(theirs) > port, err
    ours.release()
    assert int(script(code).communicate(timeout=60)[0]) == port


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"ray_version": "2.9.0", "python_version": "3.11.2"}, "runs Ray 2.9.0, this process has "),
        ({"python_version": "3.8.1"}, "runs Python 3.8.1, this process has "),
    ],
)
def test_other_versions_are_refused(head: RayClient, told: dict[str, str], words: str) -> None:
    from ray._raylet import GcsClient  # type: ignore[attr-defined] # compiled

    gcs = GcsClient(address=address_of(head))
    place = (b"CLUSTER_METADATA", b"cluster")
    before = gcs.internal_kv_get(place[0], namespace=place[1], timeout=10)
    try:
        changed = json.dumps({**json.loads(before), **told}).encode()
        gcs.internal_kv_put(place[0], changed, True, namespace=place[1], timeout=10)
        with pytest.raises(ClusterError, match=words):
            RayClient(address=head.address).start()
    finally:
        gcs.internal_kv_put(place[0], before, True, namespace=place[1], timeout=10)
    assert "RAY_ADDRESS" not in os.environ


def test_the_error_says_that_a_cluster_needs_a_token(head: RayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ClusterError, match=r"asks for a token\. Set RAY_AUTH_MODE=token"):
        RayClient(address=head.address).start()


def test_an_address_without_a_listener_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterError, match=f"no Ray cluster can be reached at 127.0.0.1:{port}: .*refused"):
        RayClient(address=f"127.0.0.1:{port}").start()
    with pytest.raises(ClusterError, match="'nonsense' is not the address of a cluster"):
        RayClient(address="nonsense").start()


def test_an_address_of_another_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "REACH_S", 2.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(ClusterError, match="does not answer as a Ray cluster within 2 s"),
    ):
        RayClient(address=f"127.0.0.1:{server.getsockname()[1]}").start()


def test_other_machines_are_distinguished_from_this_one() -> None:
    assert reach.is_this_machine("127.0.0.1")
    assert not reach.is_this_machine("203.0.113.7")


def test_the_error_shows_the_output_of_ray() -> None:
    with pytest.raises(ClusterError, match=r"(?s)Ray did not start. The end of .*ray_start.*object store"):
        RayClient(num_cpus=1, include_dashboard=False, object_store_memory=1000).start()
    assert "RAY_ADDRESS" not in os.environ


def test_a_start_that_takes_too_long_is_an_error_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = []
    wait = subprocess.Popen.wait

    def remember(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        sessions.append(self.pid)
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", remember)
    with pytest.raises(ClusterError, match=r"not ready after 0.8 s"):
        RayClient(num_cpus=1, include_dashboard=False, start_timeout_s=0.8).start()
    assert sessions
    assert in_session(sessions[0]) == []


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install -e .*\[ray\]"):
        RayClient().start()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"ray_temp_dir": "/tmp/" + "x" * 60}, "65 bytes long, but Ray keeps sockets there"),
        ({"ray_port": 0}, "a port is a number from 1 to 65535"),
        ({"ray_port": "6379"}, "a port is a number from 1 to 65535"),
        ({"num_cpus": -1}, "must be a whole number, and not negative"),
        ({"num_gpus": "1"}, "must be a whole number, and not negative"),
        ({"start_timeout_s": 0}, "must be more than 0"),
        ({"start_timeout_s": float("nan")}, "must be more than 0"),
        ({"object_store_memory": "much"}, "is not a valid size"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RayClient(**parameters)  # type: ignore[arg-type]


BUSY = f"""
    import os, subprocess, sys, ray
    from tamis.core.client import RayClient
    client = RayClient({SMALL})
    client.start()
    ray.init(log_to_driver=False, logging_level="ERROR")

    @ray.remote(num_cpus=0)
    class Busy:
        def start(self):
            return subprocess.Popen(["sleep", "600"]).pid  # as a stage that runs a program

    busy = Busy.remote()
    print(client._started.node.process.pid, ray.get(busy.start.remote()), client._started.temp_dir, flush=True)
"""


def test_a_script_that_is_killed_leaves_no_process() -> None:
    running = script(f"{BUSY}    input()\n    import time; time.sleep(600)")
    assert running.stdout is not None
    said = running.stdout.readline().split()
    assert len(said) == 3, running.communicate(timeout=60)
    leader, _, files = said
    assert {"raylet", "gcs_server", "sleep"} <= set(in_session(int(leader)))
    running.kill()
    running.communicate(timeout=30)
    wait_until_empty(int(leader))
    assert not os.path.exists(files)


def test_a_script_that_fails_leaves_no_process_and_shows_its_own_error() -> None:
    running = script(f"{BUSY}    raise ValueError('of the user')")
    out, err = running.communicate(timeout=120)
    assert running.returncode == 1
    assert err.rstrip().endswith("ValueError: of the user")
    assert in_session(int(out.split()[0])) == []


def test_after_stop_the_script_goes_on_as_before() -> None:
    code = f"""{BUSY}
    client.stop()
    client.stop()
    print(ray.is_initialized(), os.environ.get("RAY_ADDRESS"), client.address)
    """
    out, err = script(code).communicate(timeout=120)
    assert len(out.splitlines()) == 2, err
    first, second = out.splitlines()
    assert second == "False None None", err
    assert in_session(int(first.split()[0])) == []


def test_ctrl_c_during_the_start_leaves_no_process() -> None:
    code = f"""
        import threading, time
        from tamis.core.client import RayClient
        client = RayClient({SMALL})

        def tell():
            while client._started is None or client._started.node is None:
                time.sleep(0.01)
            time.sleep(0.7)
            print(client._started.node.process.pid, flush=True)

        threading.Thread(target=tell, daemon=True).start()
        client.start()
    """
    running = script(code)
    assert running.stdout is not None
    leader = int(running.stdout.readline())
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert in_session(leader) == []


def test_another_process_sends_the_token_that_the_cluster_requires(head: RayClient, tmp_path: Path) -> None:
    """Ray alone does not: a process that is given an address fails unless RAY_AUTH_MODE is set by hand."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        from tamis import DocumentBatch, Pipeline, processing_stage
        from tamis.backends.streaming import StreamingExecutor

        @processing_stage(name="same")
        def same(task: DocumentBatch) -> DocumentBatch:
            return task

        executor = StreamingExecutor(address={head.address!r})
        print(len(Pipeline("token", stages=[same]).run(executor, [DocumentBatch({{"n": [1]}})], progress="off")))
        """)
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "1\n", done.stderr
