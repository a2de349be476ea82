"""Pipelines on cosmos-xenna."""

from tamis.backends.xenna.executor import XennaExecutor

__all__ = ["XennaExecutor"]
