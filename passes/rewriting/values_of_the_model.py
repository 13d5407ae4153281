"""Move reshapes into sparse networks beside them, where only what is beyond the reshape is a value of the model.

```mlir
%0 = pebble.reshape %heads to <[d0, d1, 256]> : (tensor<?x?x4x64xf32>) -> tensor<?x?x256xf32>
%y = pebble.sparse_network %0 dims [["d0", "d1", "256"]] ... {
^bb0(%a : tensor<?x?x256xf32>):
// ->
%y = pebble.sparse_network %heads dims [["d0", "d1", "4", "64"]] ... {
^bb0(%b : tensor<?x?x4x64xf32>):
  %a = pebble.reshape %b to <[d0, d1, 256]> : (tensor<?x?x4x64xf32>) -> tensor<?x?x256xf32>
```

A model has rows of two axes there, [tokens, 256], whose sizes do not tell how many texts there are. A result that is
only reshaped to what the model has, such rows, moves in the same way.
"""

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import OpResult
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.ops.movement import ReshapeOp, copied
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.tensors import DYNAMIC, shape_of
from .replacing import pass_on


def read_and_yield_what_the_model_has(module: ModuleOp) -> None:
    """Let sparse networks read and yield values that have an ONNX name, where reshapes are between."""
    for network in [op for op in module.walk() if isinstance(op, SparseNetworkOp)]:
        after = [_only_reshape_of(result) for result in network.outputs]
        if any(after):
            _take_results(network, after)
    for network in [op for op in module.walk() if isinstance(op, SparseNetworkOp)]:
        for index, value in enumerate(network.inputs):
            reshape = value.owner
            if isinstance(reshape, ReshapeOp) and not value_name(value) and reshape.x not in network.inputs:
                _move_inside(network, index, reshape)


def _move_inside(network: SparseNetworkOp, index: int, reshape: ReshapeOp) -> None:
    """Let a network read what a reshape reads as its input `index`, unless a size of that is known by no name."""
    dims = list(network.dims.data)
    words = _words_before(reshape, [word.data for word in dims[index]])
    if words is None:
        return
    block = network.body.block
    inside = reshape.clone({reshape.x: block.insert_arg(reshape.x.type, index)})
    argument = block.args[index + 1]
    block.insert_ops_before([inside], next(iter(block.ops)))
    argument.replace_all_uses_with(inside.result)
    block.erase_arg(argument)
    network.operands[index] = reshape.x
    dims[index] = ArrayAttr([StringAttr(word) for word in words])
    network.dims = ArrayAttr(dims)
    if not reshape.result.uses.get_length():
        Rewriter.erase_op(reshape)


def _only_reshape_of(result: OpResult) -> ReshapeOp | None:
    """Return the reshape to a value of the model that alone reads a result which is none."""
    reader = next((use.operation for use in result.uses), None)
    if value_name(result) or result.uses.get_length() != 1 or not isinstance(reader, ReshapeOp):
        return None
    return reader if value_name(reader.result) else None


def _take_results(network: SparseNetworkOp, after: Sequence[ReshapeOp | None]) -> None:
    """Let a network yield what reshapes make of its results, where there is one."""
    end = network.body.block.last_op
    assert isinstance(end, YieldOp)
    yielded = list(network.yielded)
    for index, reshape in enumerate(after):
        if reshape is not None:
            inside = reshape.clone({reshape.x: yielded[index]})
            network.body.block.insert_op_before(inside, end)
            yielded[index] = inside.result
    Rewriter.replace_op(end, YieldOp(yielded))
    dims = [[word.data for word in axes] for axes in network.dims]
    new = SparseNetworkOp(network.inputs, dims, [value.type for value in yielded], network.detach_region(network.body))
    new.reason, new.image_us, new.dense_image_us = network.reason, network.image_us, network.dense_image_us
    results = [old if reshape is None else reshape.result for old, reshape in zip(network.outputs, after, strict=True)]
    set_provenance(new, origin_of(network), [value_name(result) for result in results])
    Rewriter.insert_op(new, InsertPoint.before(network))
    pass_on(results, new.outputs)
    for reshape in filter(None, after):
        Rewriter.erase_op(reshape)
    Rewriter.erase_op(network)


def _words_before(reshape: ReshapeOp, words: Sequence[str]) -> list[str] | None:
    """Return a word for each axis that a reshape reads, given those of what it yields; None where one has none."""
    by_axis = dict(zip(reshape.target.entries, words, strict=True))
    sizes = shape_of(reshape.x)
    found = [by_axis.get(copied(axis), "") if size == DYNAMIC else str(size) for axis, size in enumerate(sizes)]
    return found if all(found) else None
