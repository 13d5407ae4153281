"""Sums over the edges of a graph that no step of training changes: those of an argument become an argument.

```mlir
func.func @main(%x: tensor<9x4xf32>) {
  %h = pebble.linear %x, %w : ...
  %y = pebble.aggregate %h, %a bias %b activation <relu> : ...
// ->
func.func @main(%x: tensor<9x4xf32>, %s: tensor<9x4xf32>) {      // %s is the sum of x over the edges of %a
  %y = pebble.linear %s, %w bias %b activation <relu> : ...
```

So A (X W) is (A X) W where X comes from outside, and A X is computed once for all steps.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.ops.graphs import AggregateOp
from ...dialect.ops.layers import LinearOp
from ...dialect.symbolic_sizes import NAME
from ...sparse.csr import CscMatrix
from ..rewriting.erase_unused import erase_unused

ENDING: Final = "_over_edges"
"""The suffix of an argument that holds a sum: the name of the summed argument stands before it."""


@dataclass(frozen=True)
class CachedAggregate:
    """An argument that is the sum of another over the edges of a graph [sources, targets]."""

    name: str
    source: str
    graph: CscMatrix

    def sums(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sums [targets, features] of x [sources, features]."""
        graph, targets = self.graph, self.graph.shape[1]
        columns = [np.bincount(graph.columns, graph.values * one[graph.rows], targets) for one in x.T]
        return np.stack(columns, axis=1).astype(np.float32)


def cache_aggregates(func: FuncOp) -> list[CachedAggregate]:
    """Make the sums of arguments over constant graphs arguments of the function, and return these new arguments."""
    for op in [op for op in func.body.block.ops if isinstance(op, AggregateOp)]:
        _put_first(op)
    arguments: list[SSAValue] = [*func.args]
    known = dict[tuple[SSAValue, SSAValue], BlockArgument]()
    found = list[CachedAggregate]()
    for op in [op for op in func.body.block.ops if isinstance(op, AggregateOp)]:
        if op.of_call or not op.is_plain or op.x not in arguments:
            continue
        key = op.x, op.graph
        if key not in known:
            number = arguments.index(op.x)
            source = _name(func, number)
            known[key] = func.body.block.insert_arg(op.result.type, len(func.args))
            found.append(CachedAggregate(f"{source}{ENDING}{len(found)}", source, op.edges))
        op.result.replace_all_uses_with(known[key])
        Rewriter.erase_op(op)
    names = [DictionaryAttr({NAME: StringAttr(one.name)}) for one in found]
    before = list(func.arg_attrs.data) if func.arg_attrs is not None else [DictionaryAttr({})] * len(arguments)
    func.arg_attrs = ArrayAttr([*before, *names])
    func.update_function_type()
    erase_unused(func.body)
    return found


def _put_first(op: AggregateOp) -> None:
    """Turn A (X W) into (A X) W where X is an argument and nothing else reads X W."""
    layer = op.x.owner
    if op.of_call or op.maximum is not None or not isinstance(layer, LinearOp):
        return
    if (
        not isinstance(layer.x, BlockArgument)
        or layer.bias is not None
        or layer.activation is not None
        or not layer.result.has_one_use()
    ):
        return
    block, summed = op.parent_block(), AggregateOp(layer.x, op.graph)
    assert block is not None
    turned = LinearOp(summed.result, layer.weight, op.bias, activation=op.activation)
    block.insert_ops_before([summed, turned], op)
    op.result.replace_all_uses_with(turned.result)
    Rewriter.erase_op(op)
    Rewriter.erase_op(layer)


def _name(func: FuncOp, number: int) -> str:
    """Return the name of an argument."""
    entry = None if func.arg_attrs is None else func.arg_attrs.data[number].data.get(NAME)
    return entry.data if isinstance(entry, StringAttr) else str(number)
