"""Pipelines: what a user builds and runs."""

from tamis.pipeline.pipeline import Pipeline

__all__ = ["Pipeline"]
