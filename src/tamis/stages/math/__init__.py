"""Stages for mathematical texts."""
