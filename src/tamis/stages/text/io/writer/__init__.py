"""The same names as in :mod:`tamis.stages.io`, and the writer of token ids."""

from tamis.stages.io import JsonlWriter, ParquetWriter
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter

__all__ = ["JsonlWriter", "MegatronTokenizerWriter", "ParquetWriter"]
