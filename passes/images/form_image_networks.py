"""Move convolutions, and what runs on images beside them, into image networks, which are a step of a program each.

```mlir
%h = pebble.conv2d %x, %w window <...> : (tensor<?x4x8x8xf32>, ...) -> tensor<?x2x8x8xf32>
%y = pebble.activate <gelu> %h : ...
// ->
%y = pebble.image_network %x threads 1 predicted_us 1.0e+01 : (tensor<?x4x8x8xf32>) -> tensor<?x2x8x8xf32> {
^bb0(%a : tensor<?x4x8x8xf32>):
  %h = pebble.conv2d %a, %w window <...> : ...
  %v = pebble.activate <gelu> %h : ...
  pebble.yield %v : ...
}
```

Which ops come together: see `redpebble.passes.analysis.clusters`; all have the same images, and one at least is a
convolution, a pooling or a resizing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import ImageLayerOp
from ...dialect.ops.regions import YieldOp
from ...dialect.shape_inference import symbolic_shapes
from ...dialect.symbolic_sizes import Size
from ..analysis.clusters import boundary_of
from ..analysis.dominance import moving_ops
from ..rewriting.outline import computing_ops, outline
from ..rewriting.replacing import pass_on
from .code_borders import clusters_of_images
from .image_layers import image_counts, is_found, network_us, stages_of


@dataclass(frozen=True)
class FormImageNetworks(ModulePass):
    """Move layers on images into image networks."""

    name = "pebble-form-image-networks"

    threads: int = 1
    """Threads that may work on one image."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        with moving_ops(self.name, op) as functions:
            for func in functions:
                if any(isinstance(inner, ImageLayerOp) for inner in func.body.block.ops):
                    self._form(func)

    def _form(self, func: FuncOp) -> None:
        ops = computing_ops(func.body.block)
        counts, stages = image_counts(ops, symbolic_shapes(func)), stages_of(ops)
        counts = {op: count * Size.symbol(f"%stage {stages[op]}") for op, count in counts.items()}

        def network(members: Sequence[Operation]) -> list[Operation] | None:
            if not any(isinstance(op, ImageLayerOp) for op in members):
                return None
            return [_network(members, self.threads)]

        outline(func.body.block, clusters_of_images(func.body.block, counts), network)


def _network(ops: Sequence[Operation], threads: int) -> ImageNetworkOp:
    """Return an image network that computes `ops`; users of their results now read its."""
    inputs, outputs = boundary_of(ops)
    found = tuple(dict.fromkeys(op.operands[0] for op in ops if is_found(op)))
    others = tuple(value for value in inputs if any(value in op.operands for op in ops if not is_found(op)))
    inputs = (*found, *others)
    body = Region(Block(arg_types=[value.type for value in inputs]))
    codes, inner = (
        dict[SSAValue, SSAValue](zip(part, args, strict=True))
        for part, args in ((found, body.block.args[: len(found)]), (others, body.block.args[len(found) :]))
    )
    for op in ops:
        made = op.clone(value_mapper=codes if is_found(op) else inner)
        inner |= zip(op.results, made.results, strict=True)
        body.block.add_op(made)
    body.block.add_op(YieldOp([inner[output] for output in outputs]))
    network = ImageNetworkOp(inputs, [output.type for output in outputs], body, threads, network_us(ops))
    pass_on(outputs, network.outputs)
    return network
