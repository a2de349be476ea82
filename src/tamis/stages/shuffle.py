"""The same name as in :mod:`tamis.stages.exchange`, where it is defined."""

from tamis.stages.exchange import ShuffleStage

__all__ = ["ShuffleStage"]
