"""Drop dead neurons between quantized layers, and merge those that always have the same code.

```mlir
%y = pebble.quantized_layers %x, %w, %b, %m, %v, %c, %n codes [#a, #d] ... :
    (tensor<?x4xf32>, tensor<4x3xf32>, ..., tensor<3x2xf32>, tensor<2xf32>, ...) -> tensor<?x2xf32>
// -> row 0 of %v is zero, or column 1 of %w is, or columns 1 and 2 of %w are equal, with their biases and multipliers
%y = pebble.quantized_layers %x, %w_2, %b_2, %m_2, %v_2, %c_2, %n codes [#a, #d] ... :
    (tensor<?x4xf32>, tensor<4x2xf32>, ..., tensor<2x2xf32>, tensor<2xf32>, ...) -> tensor<?x2xf32>
```

All of it is exact: a neuron without incoming connections has one code, that of its bias, whose products are integers
that join the biases of the next layer. Such a neuron stays behind an activation other than relu, whose values are
rounded before they become codes. So does whatever would make biases or weights greater than layers may have. One neuron
stays at least.
"""

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.ops.quantized_layers import QuantizedLayersOp
from ..rewriting.erase_unused import erase_unused
from ..rewriting.units import layers_of_codes
from .drop_dead_units import drop_dead
from .merge_equal_units import merge_equal


class ReduceQuantizedLayers(ModulePass):
    """Drop and merge neurons between quantized layers."""

    name = "pebble-reduce-quantized-layers"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for chain in [found for found in op.walk() if isinstance(found, QuantizedLayersOp)]:
            layers, before = layers_of_codes(chain), {*chain.parameters}
            # both, as sums of equal neurons may be zero
            while sum(drop_dead(layer) + merge_equal(layer) for layer in layers):
                pass
            # constants stand in the order in which the chain reads them, whatever changed last
            for value in chain.parameters:
                if value not in before and isinstance(value.owner, Operation):
                    value.owner.detach()
                    Rewriter.insert_op(value.owner, InsertPoint.before(chain))
        erase_unused(op.body)
