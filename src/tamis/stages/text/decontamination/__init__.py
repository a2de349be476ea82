"""Find documents that contain what models are tested with, and leave them out."""

from tamis.stages.text.decontamination.benchmarks import Benchmark
from tamis.stages.text.decontamination.stage import Decontaminate

__all__ = ["Benchmark", "Decontaminate"]
