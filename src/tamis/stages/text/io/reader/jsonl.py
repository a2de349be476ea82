"""The same names as in :mod:`tamis.stages.io.jsonl`."""

from tamis.stages.io.jsonl import JsonlReader, JsonlReaderStage

__all__ = ["JsonlReader", "JsonlReaderStage"]
