"""Input, output and data between stages on an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")

import s3fs
from moto.server import ThreadedMotoServer

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.exchange import Exchange
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.mixing import GlobalShuffle, Sample
from tamis.tasks import DocumentBatch


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on a server of this machine, which workers find by the environment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir(f"bucket-{port}")
    yield f"s3://bucket-{port}"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


class Longest(Exchange[DocumentBatch, DocumentBatch]):
    key, partitions, makes_rows = "site", 3, "same"

    def reduce(self, rows: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(rows.to_polars().sort("n", descending=True).unique("site", maintain_order=True))


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_everything_on_s3(bucket: str, tmp_path: Path, substrate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fs = s3fs.S3FileSystem()
    for number in range(4):
        rows = [{"text": f"t{n % 11}", "n": n + 20 * number, "site": f"s{n % 5}"} for n in range(20)]
        fs.pipe_file(f"{bucket}/in/{number}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())

    def ran(output: str, name: str, scratch: str | None) -> list[str]:
        stages = [
            JsonlReader(f"{bucket}/in", files_per_partition=1),
            GlobalShuffle(partitions=3, partition_bytes=2000),
            Sample(rows=60),
            ExactDeduplication(partitions=2),
            Longest(),
            JsonlWriter(output, shard_bytes="64KiB" if substrate == "threads" else None),
        ]
        where: Any = substrate if scratch else "threads"
        executor = LocalExecutor(workers=2, substrate=where)
        result = Pipeline("p", stages=stages).run(
            executor, run_dir=str(tmp_path / name), scratch=scratch, progress="off"
        )
        assert result.stage("ExactDeduplication").dropped == {"exact duplicate": 49}
        assert not list((tmp_path / name).glob("scratch/**/*.task"))
        return [path for task in result for path in task.data]

    on_s3 = ran(f"{bucket}/out", "s3", f"{bucket}/scratch")
    local = ran(str(tmp_path / "out"), "local", None)
    assert [fs.cat_file(path) for path in on_s3] == [Path(path).read_bytes() for path in local]
    assert not fs.find(f"{bucket}/scratch")
    assert not list(tmp_path.glob("s3:*"))  # an address was not taken for a local path
