"""Lets scripts that import ``nemo_curator`` run on tamis.

``python -m tamis.compat script.py`` runs a script unchanged. In your own program, call :func:`activate` before the
imports:

>>> from tamis import compat
>>> compat.activate()
>>> from nemo_curator.stages.base import ProcessingStage
>>> import tamis
>>> ProcessingStage is tamis.ProcessingStage
True
>>> compat.deactivate()
"""

from tamis.compat.finder import NotInTamisError, activate, deactivate

__all__ = ["NotInTamisError", "activate", "deactivate"]
