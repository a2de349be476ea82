"""Rebuilds the sample images that ship with tamis: ``python -m tools.sample_images --help``."""
