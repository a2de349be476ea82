"""Engines of other projects around the same worker-side runner: what they share."""
