"""The ``tamis`` command."""

from tamis.cli.arguments import main

__all__ = ["main"]
