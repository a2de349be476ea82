"""Stages for images."""
