"""Readers and writers under the names of NeMo Curator; they live in :mod:`tamis.stages.io`."""
