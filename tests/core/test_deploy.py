"""The files in deploy/, as far as they can be checked without a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
RAY = "2.60.0"
COMMAND = "tamis run /data/recipe.yaml --executor streaming"


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def test_ray_up_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private import util

    config = read("ray/cluster.yaml")
    filled = util.prepare_config(config)  # as `ray up` does
    util.validate_config(filled)  # Ray's own schema
    (node_type,) = filled["available_node_types"].values()
    assert node_type["min_workers"] == len(config["provider"]["worker_ips"])
    assert any(f"ray[default]=={RAY}" in command and "tamis[ray]" in command for command in config["setup_commands"])


def cluster_of(name: str) -> Any:
    manifest = read(name)
    assert manifest["apiVersion"] == "ray.io/v1"
    assert manifest["metadata"]["name"]
    spec = manifest["spec"]
    if manifest["kind"] == "RayJob":
        assert spec["entrypoint"] == COMMAND
        assert spec["shutdownAfterJobFinishes"]
        return spec["rayClusterSpec"]
    assert manifest["kind"] == "RayCluster"
    return spec


@pytest.mark.parametrize("name", ["kuberay/raycluster.yaml", "kuberay/rayjob.yaml"])
def test_kuberay_manifests_are_complete(name: str) -> None:
    cluster = cluster_of(name)
    assert cluster["rayVersion"] == RAY
    assert cluster["authOptions"] == {"mode": "token"}
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert len(groups) > 1
    images = set()
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # KubeRay takes no numbers
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        assert container["resources"]["limits"] == container["resources"]["requests"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert len(images) == 1  # versions must not differ
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["workingDir"] == "/data"  # the run directory is made there, and all pods must see it
    ports = head["ports"]
    # The operator looks whether head and workers are ready by itself, as long as these ports have their names.
    assert {p["name"]: p["containerPort"] for p in ports} == {"gcs-server": 6379, "dashboard": 8265, "client": 10001}
    for group in cluster["workerGroupSpecs"]:
        assert group["groupName"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_both_manifests_request_the_same_cluster() -> None:
    assert cluster_of("kuberay/raycluster.yaml") == cluster_of("kuberay/rayjob.yaml")


def test_the_image_has_the_version_that_the_manifests_name() -> None:
    dockerfile = (DEPLOY / "kuberay" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)$", dockerfile, re.MULTILINE) == [f"rayproject/ray:{RAY}-py311"]
    assert f"ray[default]=={RAY}" in dockerfile
    assert "tamis[ray]" in dockerfile
