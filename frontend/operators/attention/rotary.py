"""RotaryEmbedding: features of queries and keys turned by angles that grow with the position of the token.

```
first, second = Split(x)                       halves of a head's features, or its even and its odd ones
y = Concat(first cos - second sin, second cos + first sin)
```

Native code takes the node as these steps. onnxruntime has a kernel for it, which the steps would not make faster: there
it stays.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.ops.elementwise import AddOp, MulOp, SubOp
from ....dialect.ops.movement import ConcatOp, SplitOp
from ....dialect.symbolic_sizes import ONE, Size, SymbolicShape
from ....dialect.tensors import shape_of
from ...folding.known_sizes import is_known, shape_words
from ...folding.rotary_angles import INPUTS
from ..conversion import Conversion, Converter, NotCovered
from .operands import RANK, ROWS_RANK

HEADS_FIRST: Final = 1
"""The axis of heads in [B, heads, S, features]; in rows [B, S, heads features] they come after the tokens."""


def _convert_rotary(conversion: Conversion) -> Sequence[SSAValue]:
    """Turn heads apart, [B, heads, S, features], or those of rows [B, S, heads features]; features may be left over."""
    if not conversion.scope.all_native:
        raise NotCovered("no layer gains by it")
    _refuse_others(conversion)
    x = conversion.tensor(0)
    sizes = conversion.sizes(x)
    rank = len(sizes)
    if rank not in (ROWS_RANK, RANK) or not is_known(sizes[-1]):
        raise NotCovered(f"expected heads apart, or rows of a known number of features, got {shape_words(sizes)}")
    cosines, sines = _angles(conversion, sizes[rank - 2])
    half = shape_of(cosines)[-1]
    if len(shape_of(cosines)) != ROWS_RANK or half < 1 or shape_of(sines) != shape_of(cosines):
        shapes = ", ".join(shape_words(conversion.sizes(one)) for one in (cosines, sines))
        raise NotCovered(f"expected cosines and sines of samples x tokens x angles, got {shapes}")
    heads_axis = HEADS_FIRST if rank == RANK else 2
    if rank == ROWS_RANK:
        x = conversion.reshape(x, _apart(conversion, sizes, half))
    features = shape_of(x)[-1]
    turned = conversion.integer("rotary_embedding_dim", 0) or features
    if turned != 2 * half or turned > features:
        raise NotCovered(f"expected {turned} turned features of {features}, got angles for {2 * half}")
    angles = [_between(conversion, one, heads_axis) for one in (cosines, sines)]
    parts = [x] if turned == features else conversion.emit(SplitOp(x, RANK - 1, [turned, features - turned])).parts
    result = _turned(conversion, parts[0], angles)
    if len(parts) > 1:
        result = conversion.emit(ConcatOp((result, parts[1]), RANK - 1)).result
    return [result if rank == RANK else conversion.reshape(result, sizes)]


def _refuse_others(conversion: Conversion) -> None:
    if conversion.integer("is_packed_batching", 0):
        raise NotCovered("expected is_packed_batching=0, got 1")
    if conversion.number("scale", 1.0) != 1.0:
        raise NotCovered(f"expected scale=1, got {conversion.number('scale', 1.0)}")


def _angles(conversion: Conversion, tokens: Size) -> tuple[SSAValue, SSAValue]:
    """Return cosines and sines [B, S, angles] of each of so many tokens; B is 1 where all texts have the same ones."""
    places = INPUTS[conversion.node.domain, conversion.node.op_type]
    positions = conversion.any_constant(places.positions)
    if positions is not None:
        first, second = (_taken(conversion, place, positions, tokens) for place in (places.cosines, places.sines))
        return first, second
    known = conversion.scope.angles.get(conversion.node)
    if known is not None:
        return conversion.tensor_of(known.cosines), conversion.tensor_of(known.sines)
    if conversion.has_input(places.positions):
        raise NotCovered("expected a position for each token, and tables of two axes, got others")
    return conversion.tensor(places.cosines), conversion.tensor(places.sines)


def _taken(conversion: Conversion, place: int, positions: NDArray[np.generic], tokens: Size) -> SSAValue:
    """Return what a table holds at constant positions: of each token, or of the first one of each text."""
    table, numbers = conversion.constant(place), positions.astype(np.int64)
    if numbers.size == 1 and tokens.constant is not None:
        numbers = np.int64(numbers.flat[0]) + np.arange(int(tokens.constant), dtype=np.int64)[np.newaxis]
    if table is None or table.ndim != 2 or numbers.ndim != 2:
        raise NotCovered("expected a position for each token, and tables of two axes, got others")
    first, last = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if first < 0 or last >= len(table):
        raise NotCovered(f"expected positions 0 to {len(table) - 1}, got {first} to {last}")
    return conversion.emit_constant(table[numbers], "")


def _apart(conversion: Conversion, sizes: SymbolicShape, half: int) -> SymbolicShape:
    """Return the sizes of rows [B, S, heads features] with an axis of heads."""
    features, heads = int(sizes[-1].coefficient), conversion.integer("num_heads", 0)
    # com.microsoft leaves their number out where all features are turned
    heads = heads or features // (2 * half)
    if heads < 1 or features % heads:
        raise NotCovered(f"expected features in heads of one size, got {features} in {heads}")
    return (*sizes[:-1], Size.known(heads), Size.known(features // heads))


def _between(conversion: Conversion, angles: SSAValue, heads_axis: int) -> SSAValue:
    sizes = list(conversion.sizes(angles))
    sizes.insert(heads_axis, ONE)
    return conversion.reshape(angles, tuple(sizes))


def _turned(conversion: Conversion, x: SSAValue, angles: Sequence[SSAValue]) -> SSAValue:
    """Return features [..., 2 angles] turned: pairs are one of each half, or neighbours."""
    sizes, half = conversion.sizes(x), shape_of(x)[-1] // 2
    is_interleaved = conversion.integer("interleaved", 0) == 1
    if is_interleaved:
        pairs = conversion.reshape(x, (*sizes[:-1], Size.known(half), Size.known(2)))
        parts = conversion.emit(SplitOp(pairs, RANK, [1, 1])).parts
        first, second = (conversion.reshape(part, (*sizes[:-1], Size.known(half))) for part in parts)
    else:
        first, second = conversion.emit(SplitOp(x, RANK - 1, [half, half])).parts
    cosines, sines = angles

    def times(one: SSAValue, other: SSAValue) -> SSAValue:
        return conversion.emit(MulOp(one, other)).result

    real = conversion.emit(SubOp(times(first, cosines), times(second, sines))).result
    imaginary = conversion.emit(AddOp(times(second, cosines), times(first, sines))).result
    if not is_interleaved:
        return conversion.emit(ConcatOp((real, imaginary), RANK - 1)).result
    lifted = [conversion.reshape(part, (*conversion.sizes(part), ONE)) for part in (real, imaginary)]
    return conversion.reshape(conversion.emit(ConcatOp(lifted, RANK)).result, sizes)


ROTARY_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](dict.fromkeys(INPUTS, _convert_rotary))
"""(domain, operator) -> converter."""
