"""Executors under the names that scripts for NeMo Curator import."""
