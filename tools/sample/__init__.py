"""Rebuilds the sample data of ``tamis quickstart`` from Debian 12 packages: ``python -m tools.sample --help``."""
