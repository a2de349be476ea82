"""The executor for one machine."""

from tamis.backends.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]
