"""Linear layers on a CPU, with weights in the order that oneDNN multiplies fastest.

PyTorch multiplies 32-bit matrices with MKL, which is half as fast as oneDNN on processors of other makers than Intel's,
and oneDNN arranges the weights anew at each call unless they were arranged once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["pack_linears"]

_ROWS: Final = 1024
"""How many tokens the order of weights is chosen for; any number of them can be multiplied."""


def pack_linears(network: Any, dtype: torch.dtype) -> int:
    """Replace the linear layers of a network on a CPU by packed ones, in place; returns how many.

    Args:
        network: The network, with 32-bit numbers.
        dtype: The numbers that are multiplied: ``float32``, or ``bfloat16``, of which sums are still 32 bits and which
            changes only the linear layers: all else stays as it is.
    """
    import torch

    mkldnn: Any = torch.backends.mkldnn
    if not mkldnn.is_available():
        return 0
    packed_layer = _layer_class()
    count = 0
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and child.weight.dtype == torch.float32:
                setattr(module, name, packed_layer(child, dtype))
                count += 1
    return count


def _layer_class() -> Any:
    import torch

    class PackedLinear(torch.nn.Module):
        """A linear layer with packed weights."""

        def __init__(self, layer: torch.nn.Linear, dtype: torch.dtype) -> None:
            super().__init__()
            self.in_features, self.out_features = layer.in_features, layer.out_features
            self.numbers = dtype
            with torch.inference_mode():
                self.weight: Any = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(dtype), _ROWS)
            self.bias: Any = None if layer.bias is None else layer.bias.detach().to(dtype)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            given = values.to(self.numbers)
            made = torch.ops.mkldnn._linear_pointwise(given, self.weight, self.bias, "none", [], "")
            result: torch.Tensor = made.to(values.dtype)
            return result

    return PackedLinear
