"""A group as a stage of Xenna. This module is imported only where cosmos-xenna is installed."""

from __future__ import annotations

from typing import Any

from cosmos_xenna.pipelines.v1 import CondaEnv, NodeInfo, Resources, RuntimeEnv, Stage
from cosmos_xenna.pipelines.v1 import WorkerMetadata as XennaWorker

from tamis.backends.external.operator import Operator, OperatorSpec, Parcel
from tamis.backends.external.ray_session import Slot
from tamis.stages.base import WorkerMetadata


class XennaStage(Stage):  # type: ignore[misc,type-arg]  # Xenna need not know the types of its input and output
    """Runs an operator in a worker of Xenna.

    Args:
        spec: The operator.
        slot: Takes records to the driver.
        cpus, gpus: What one worker needs.
        runtime_env: The runtime environment of its process.
    """

    def __init__(self, spec: OperatorSpec, slot: Slot, cpus: float, gpus: float, runtime_env: dict[str, Any]) -> None:
        self._spec, self._slot, self._runtime_env = spec, slot, runtime_env
        self._needs = Resources(cpus=cpus, gpus=int(gpus) if gpus >= 1 else gpus)
        self._operator: Operator | None = None

    @property
    def required_resources(self) -> Resources:
        """What one worker needs."""
        return self._needs

    @property
    def env_info(self) -> RuntimeEnv:
        """The environment of its process, with Xenna's log turned off."""
        conda = self._runtime_env.get("conda")
        variables = {"PYTHON_LOG": "off", **self._runtime_env.get("env_vars", {})}
        return RuntimeEnv(conda=CondaEnv(conda) if conda else None, extra_env_vars=variables)

    def setup_on_node(self, node_info: NodeInfo, worker_metadata: XennaWorker) -> None:
        """Nothing to do: the executor has called it before the run."""

    def setup(self, worker_metadata: XennaWorker) -> None:
        """Create the operator and set its stages up."""
        gpu_ids = tuple(gpu.index for gpu in worker_metadata.allocation.gpus)
        self._slot.check_in()
        worker = WorkerMetadata(worker_metadata.worker_id, self._spec.places.scratch, gpu_ids)
        self._operator = Operator(self._spec, self._slot, worker)
        self._operator.set_up()

    def process_data(self, in_data: list[Parcel]) -> list[Parcel]:
        """Process parcels. Errors of stages are reported to the driver, not raised."""
        assert self._operator is not None
        return [made for parcel in in_data for made in self._operator.work(parcel)]

    def destroy(self) -> None:
        """Tear the stages down. Xenna calls it since version 0.4."""
        if self._operator is not None:
            self._operator.close()
