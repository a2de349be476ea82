"""Stages that run a model over texts: tokenise, infer, add columns."""
