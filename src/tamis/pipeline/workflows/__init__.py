"""Workflows over files: each of their steps is a pipeline with a run directory of its own."""
