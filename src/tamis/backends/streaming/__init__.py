"""The executor for Ray clusters."""

from tamis.backends.streaming.executor import StreamingExecutor

__all__ = ["StreamingExecutor"]
