"""Exchanges: bring rows with the same key together, across all tasks."""

from tamis.stages.exchange.exchange import Exchange, ShuffleStage
from tamis.stages.exchange.map_side import hash_rows
from tamis.stages.exchange.rounds import Rounds

__all__ = ["Exchange", "Rounds", "ShuffleStage", "hash_rows"]
