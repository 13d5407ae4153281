"""Keys and values of the past as inputs of an operator that is attention, and as outputs with its own behind them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from xdsl.ir import SSAValue

from ....dialect.ops.attention import Heads
from ....dialect.ops.movement import ConcatOp, SplitOp
from ....dialect.symbolic_sizes import ONE, Size
from ...folding.known_sizes import is_known, shape_words
from ..conversion import Conversion, NotCovered
from .operands import LENGTH, RANK
from .products import HEADS_LAST

Pair = tuple[SSAValue, SSAValue]


class PastInputs(NamedTuple):
    """Inputs that hold keys and values of the past, [B, kv_heads, P, features] each; one input where both are in it."""

    indices: tuple[int, ...]

    def of(self, conversion: Conversion) -> tuple[SSAValue, ...]:
        """Return keys and values, or nothing where the node has no past.

        Raises:
            NotCovered: one of the two is left out, or they have other axes.
        """
        given = [index for index in self.indices if conversion.has_input(index)]
        if not given:
            return ()
        if len(given) < len(self.indices):
            raise NotCovered("expected keys and values of the past, or neither, got one of them")
        values = [conversion.tensor(index) for index in given]
        if len(values) == 1:
            values = _halves(conversion, values[0])
        for value in values:
            if len(conversion.sizes(value)) != RANK:
                raise NotCovered(f"expected a past of four axes, got {shape_words(conversion.sizes(value))}")
        return tuple(values)


NO_PAST: Final = PastInputs(())


def _halves(conversion: Conversion, both: SSAValue) -> list[SSAValue]:
    """Return keys and values of [2, B, heads, P, features]."""
    sizes = conversion.sizes(both)
    if len(sizes) != RANK + 1 or sizes[0] != Size.known(2):
        raise NotCovered(f"expected a past of 2 x samples x heads x keys x features, got {shape_words(sizes)}")
    parts = conversion.emit(SplitOp(both, 0, [1, 1])).parts
    return [conversion.reshape(part, sizes[1:]) for part in parts]


def present(conversion: Conversion, rows: Pair, past: Sequence[SSAValue], heads: Heads) -> list[SSAValue]:
    """Return keys and values [B, kv_heads, P + T, features] where the node is asked for them, else nothing.

    `rows` are the node's own ones, [B, T, kv_heads features].

    Raises:
        NotCovered: their features are not known.
    """
    if not any(output.uses() or output.is_graph_output() for output in conversion.node.outputs[1:]):
        return []
    found: list[SSAValue] = []
    for index, value in enumerate(rows):
        samples, length, features = conversion.sizes(value)
        if not is_known(features):
            raise NotCovered(f"expected a known number of features, got rows of {features}")
        count = Size.known(heads.keys)
        apart = conversion.reshape(value, (samples, length, count, features / count))
        own = conversion.transpose(apart, HEADS_LAST)
        found.append(conversion.emit(ConcatOp((past[index], own), LENGTH)).result if past else own)
    return found


def in_one(conversion: Conversion, parts: Sequence[SSAValue]) -> list[SSAValue]:
    """Return keys and values as one, [2, B, kv_heads, P + T, features]; nothing where there are none."""
    if not parts:
        return []
    lifted = [conversion.reshape(part, (ONE, *conversion.sizes(part))) for part in parts]
    return [conversion.emit(ConcatOp(lifted, 0)).result]
