"""Lets scripts that import ``nemo_curator`` run on tamis.

``python -m tamis.compat script.py`` runs a script so, without a change to it. In a program of one's own,
:func:`activate` comes before the imports:

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
