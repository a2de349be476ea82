"""The parameters of each native kernel. Its compiled code and the check of every call are made from this description.

The parameters are those of the function ``kernel`` in the module of :mod:`tamis.kernels.sources` with the kernel's
name, which explains them.
"""

from __future__ import annotations

from typing import Final

from tamis.kernels.arguments import Signature
from tamis.kernels.signatures.duplicate_signatures import DUPLICATE_SIGNATURES
from tamis.kernels.signatures.image_signatures import IMAGE_SIGNATURES
from tamis.kernels.signatures.model_signatures import MODEL_SIGNATURES
from tamis.kernels.signatures.parameter_kinds import PADDING, longest_near_end, longest_text, most_shingles
from tamis.kernels.signatures.text_signatures import TEXT_SIGNATURES

__all__ = ["PADDING", "SIGNATURES", "longest_near_end", "longest_text", "most_shingles"]

SIGNATURES: Final[dict[str, Signature]] = {
    **TEXT_SIGNATURES,
    **MODEL_SIGNATURES,
    **DUPLICATE_SIGNATURES,
    **IMAGE_SIGNATURES,
}
"""All kernels by name."""
