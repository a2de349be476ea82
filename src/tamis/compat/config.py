"""``nemo_curator.config.run`` for scripts: pipelines out of a Hydra configuration, with or without Hydra."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.compat.pipeline import Pipeline
from tamis.core.client import RayClient
from tamis.errors import RecipeError
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.filters import DocumentFilter
from tamis.stages.text.modifiers import DocumentModifier

__all__ = ["create_executor_from_yaml", "create_pipeline_from_yaml", "create_ray_client_from_yaml"]

_MADE = (ProcessingStage, DocumentFilter, DocumentModifier, Resources, RayClient)


def create_pipeline_from_yaml(cfg: Any, *, log_config: bool = True) -> Pipeline:
    """The pipeline of a configuration: a mapping (or OmegaConf's ``DictConfig``) with a list of ``stages``.

    Each stage names its class as ``_target_`` and gives its arguments; ``resources`` are applied with ``with_()``.

    Args:
        cfg: The configuration.
        log_config: Accepted; the run's record has every parameter.

    >>> from tamis import compat
    >>> compat.activate()
    >>> stage = {"_target_": "nemo_curator.stages.text.modules.AddId", "id_field": "id", "resources": {"cpus": 2}}
    >>> [made] = create_pipeline_from_yaml({"stages": [stage]}).stages
    >>> made.id_field, made.resources.cpus
    ('id', 2)
    >>> compat.deactivate()
    """
    plain = _plain(cfg)
    if "stages" not in plain:
        has = ", ".join(map(str, plain)) or "nothing"
        raise RecipeError(f"the configuration has no list of stages, only {has}; workflows are not built yet")
    pipeline = Pipeline(name="yaml_pipeline", description="Made of a YAML file")
    for described in plain["stages"]:
        settings = dict(described)
        resources = settings.pop("resources", None)
        stage = _made(settings)
        if resources:
            named = "_target_" in resources
            stage = stage.with_(resources=_made(resources) if named else Resources(**resources))
        pipeline.add_stage(stage)
    return pipeline


def create_ray_client_from_yaml(cfg: Any) -> RayClient:
    """The ``ray_client`` of a configuration; one with default settings if there is none."""
    described = _plain(cfg).get("ray_client")
    client: RayClient = _made(described) if described else RayClient()
    return client


def create_executor_from_yaml(cfg: Any) -> XennaExecutor | RayDataExecutor | None:
    """The executor of a configuration, from ``backend`` and ``execution_mode``; ``None`` if it names neither."""
    plain = _plain(cfg)
    if "backend" not in plain and "execution_mode" not in plain:
        return None
    backend, mode = str(plain.get("backend", "xenna")), str(plain.get("execution_mode", "streaming"))
    if backend == "ray_data":
        return RayDataExecutor()
    if backend != "xenna" or mode not in ("batch", "streaming"):
        raise RecipeError(
            f"backend: {backend}, execution_mode: {mode}: the backend must be xenna or ray_data, "
            "the mode batch or streaming"
        )
    return XennaExecutor(config={"execution_mode": mode})


def _made(described: Any) -> Any:
    """The object that a mapping with ``_target_`` describes, including the objects inside it."""
    if isinstance(described, list):
        return [_made(item) for item in described]
    if not isinstance(described, Mapping):
        return described
    settings = {str(name): _made(value) for name, value in described.items() if name != "_target_"}
    if "_target_" not in described:
        return settings
    target = str(described["_target_"])
    module, _, name = target.rpartition(".")
    found = getattr(importlib.import_module(module), name, None) if module else None
    # A configuration is untrusted: it must not be able to call any function it names.
    if not (isinstance(found, type) and issubclass(found, _MADE)):
        raise RecipeError(f"_target_: {target} is not a stage, a filter, a modifier, Resources or RayClient")
    return found(**settings)


def _plain(cfg: Any) -> dict[str, Any]:
    """The configuration as a dict; OmegaConf's references are resolved."""
    if type(cfg).__module__.partition(".")[0] == "omegaconf":
        from omegaconf import OmegaConf

        cfg = OmegaConf.to_container(cfg, resolve=True)
    return dict(cfg)
