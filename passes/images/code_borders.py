"""Codes at the borders of clusters of image ops: images come and leave as floats.

```mlir
%q = pebble.conv2d %x, ... -> tensor<?x4x8x8x!pebble.codes<#a>>   // in one cluster
%y = pebble.conv2d %q, ...                                         // in another one
// ->
%q = pebble.conv2d %x, ... -> tensor<?x4x8x8x!pebble.codes<#a>>
%f = pebble.convert %q : ... -> tensor<?x4x8x8xf32>                // the way out of the first
%r = pebble.convert %f : ... -> tensor<?x4x8x8x!pebble.codes<#a>>  // the way into the second
%y = pebble.conv2d %r, ...
```

Codes are integers of eight bits that stand for values: value = scale * (code - zero). What is rounded for another
cluster alone is rounded there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.elementwise import ActivateOp, ConvertOp
from ...dialect.ops.images import Conv2dOp, Pool2dOp
from ...dialect.symbolic_sizes import Size
from ..analysis.clusters import Cluster, clusters_of
from ..rewriting.outline import computing_ops
from ..rewriting.replacing import replace

SINGLE_OPS: Final = -1
"""The number of all clusters that are single ops."""


def clusters_of_images(block: Block, counts: dict[Operation, Size]) -> list[Cluster]:
    """Return the clusters of the ops of a block that have counts of images; no codes cross their borders.

    Roundings are inserted where some would, and get counts.
    """
    while True:
        ops = computing_ops(block)
        clusters = clusters_of(ops, counts)
        numbers = {op: index if one.is_joined else SINGLE_OPS for index, one in enumerate(clusters) for op in one.ops}
        found = {op: _readers(op, numbers) for op in ops if op.results and codes_in(op.results[0].type) is not None}
        crossing = {op: readers for op, readers in found.items() if readers}
        if not crossing:
            return clusters
        places = {op: place for place, op in enumerate(ops)}
        for op, readers in crossing.items():
            source = _floats_of(op, counts)
            for group in readers.values():
                _read_floats(sorted(group, key=places.__getitem__), source, op.results[0], counts)
            if not op.results[0].uses.get_length():
                counts.pop(op, None)
                Rewriter.erase_op(op)


def _readers(op: Operation, numbers: Mapping[Operation, int]) -> dict[int, list[Operation]]:
    """Return the image ops that read the codes of one in other clusters, by the numbers of these."""
    readers: dict[int, list[Operation]] = {}
    for use in op.results[0].uses:
        number = numbers.get(use.operation)
        is_image = isinstance(use.operation, Conv2dOp | Pool2dOp | ConvertOp)
        if is_image and number is not None and number != numbers[op]:
            readers.setdefault(number, []).append(use.operation)
    return readers


def _floats_of(op: Operation, counts: dict[Operation, Size]) -> SSAValue:
    """Return the floats that an op rounds, or else those of its codes."""
    if isinstance(op, ConvertOp):
        return op.x
    back = ConvertOp(op.results[0])
    Rewriter.insert_op(back, InsertPoint.after(op))
    _count_as(back, op, counts)
    return back.result


def _read_floats(
    readers: Sequence[Operation], floats: SSAValue, codes: SSAValue, counts: dict[Operation, Size]
) -> None:
    """Let ops read floats instead of their codes: those that make floats of them are gone, others round them again."""
    rounding: ConvertOp | None = None
    for reader in readers:
        if isinstance(reader, ConvertOp):
            counts.pop(reader, None)
            _pass_floats(reader, floats, codes)
            continue
        if rounding is None:
            rounding = ConvertOp(floats, codes_in(codes.type))
            Rewriter.insert_op(rounding, InsertPoint.before(reader))
            _count_as(rounding, reader, counts)
        reader.operands[list(reader.operands).index(codes)] = rounding.result


def _pass_floats(back: ConvertOp, floats: SSAValue, codes: SSAValue) -> None:
    """Replace an op that makes floats of codes, by `floats`: rounded where these are what was rounded to the codes."""
    if not isinstance(codes.owner, ConvertOp):
        Rewriter.replace_op(back, [], [floats])
        return
    replace(back, ActivateOp(floats, back.codes.rounding))


def _count_as(made: Operation, op: Operation, counts: dict[Operation, Size]) -> None:
    if op in counts:
        counts[made] = counts[op]
