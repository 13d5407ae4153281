"""Scores of an attention: the nodes between its first product and the weights, read from the last one to the first.

See `redpebble.frontend.operators.attention.products` for their forms. Factors behind a rounding are moved before it:
what is rounded to multiples of s, and then halved, is halved and rounded to multiples of s / 2.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.attention import Roundings, Weighting
from ...folding.score_masks import hidden_scores, mask_of_constant
from ..conversion import Conversion
from ..patterns import ADD, CAST, IS_NAN, MATMUL, SOFTMAX, WHERE, Hole, Match, Once, Pattern, That, is_read, matched
from ..row_steps import Rounding, RowSteps, number_of_value, rounded, scaled
from .operands import RANK

MOST_MASKS: Final = 3
"""Masks behind each other that are added up."""

Mask = onnx_ir.Value | NDArray[np.float32]


class Scores(NamedTuple):
    """Parts that the weights of an attention are made of."""

    weighting: Weighting
    masks: tuple[Mask, ...]
    queries: RowSteps
    keys: RowSteps
    nodes: tuple[onnx_ir.Node, ...]
    """The nodes that the attention stands for, beside the last product."""


def scores_of(conversion: Conversion, weights: onnx_ir.Value) -> Scores | None:
    """Return what the weights of an attention are made of; None where they are no such."""
    match = matched(conversion, WEIGHTS, weights)
    if match is None:
        return None
    queries, keys = (RowSteps.of(conversion, match.get(name, onnx_ir.Value)) for name in ("queries", "keys"))
    scale = match.get("factor", float) * queries.factor * keys.factor
    of_product, of_scores, first, last = (
        match.items(name, ActivationAttr) for name in ("product", "scores", "softmax", "weights")
    )
    # what was rounded is a number
    roundings = Roundings(of_product, of_scores, (*first, *last))
    weighting = Weighting(scale, nan_as_zero="kept" in match.holes and not first, roundings=roundings)
    return Scores(weighting, _masks_of(match), queries, keys, tuple(match.nodes))


def _masks_of(match: Match) -> tuple[Mask, ...]:
    return cast("tuple[Mask, ...]", match.holes.get("masks", ()))


@dataclass(frozen=True)
class _Scaled(Pattern):
    """A value that numbers multiply one after the other, rounded to codes between them."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value, factor = match.behind(value), 1.0
        roundings: list[ActivationAttr] = []
        while True:
            if (found := rounded(match.conversion, value, 1)) is not None:
                scale, zero = found.rounding.values
                roundings.append(ActivationAttr.of("quantize", float(np.float32(scale * factor)), zero))
                match.nodes += found.nodes
                value = found.before
            elif (product := scaled(match.conversion, value)) is not None and is_read(value):
                match.nodes.append(product.node)
                value, factor = product.before, factor * product.factor
                # codes of values that change their sign are others
                if roundings and factor <= 0.0:
                    raise match.mismatch("a positive factor behind a rounding", value)
            else:
                break
        match.bind("factor", factor)
        match.bind("product", tuple(reversed(roundings)))
        Once(self.inside).meet(value, match)


@dataclass(frozen=True)
class _AnyMask(Pattern):
    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        match.holes["masks"] = (match.behind(value), *_masks_of(match))


@dataclass(frozen=True)
class _Hidden(Pattern):
    """Scores that a Where hides, as a mask that is added to them: a value of the graph, or numbers."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        scope, node = match.conversion.scope, match.behind(value).producer()
        hidden = None if node is None else hidden_scores(node, scope.ir_version)
        if node is None or hidden is None:
            raise match.mismatch("Where with a number that hides", value)
        seen = match.constant(node.inputs[0])
        mask = scope.score_masks.get(node) if seen is None else mask_of_constant(seen, hidden)
        if mask is None:
            raise match.mismatch("Where with a mask", value)
        match.nodes.append(node)
        match.holes["masks"] = (mask, *_masks_of(match))
        self.inside.meet(node.inputs[hidden.scores], match)


@dataclass(frozen=True)
class _Uncast(Pattern):
    """A value before casts to float, which it is already, as what it is made of is."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        uncast = Once(CAST(_Uncast(self.inside), to=int(onnx_ir.DataType.FLOAT)))
        made = match.behind(value).producer()
        (uncast if made is not None and made.op_type == "Cast" else self.inside).meet(value, match)


def _masked(most: int) -> Pattern:
    """Return the pattern of a product that at most so many masks hide."""
    product = _Scaled(MATMUL(Hole("queries"), Hole("keys")))
    if not most:
        return product
    fewer = _masked(most - 1)
    masked = _Hidden(fewer) | ADD(fewer, _AnyMask())
    # sums of several masks are rounded once, behind the last one
    return product | (Rounding("scores", masked) if most == MOST_MASKS else Once(masked))


SHARES: Final = SOFTMAX(_masked(MOST_MASKS), axis=[-1, RANK - 1])
ZERO: Final = That("0", lambda conversion, value: number_of_value(conversion, value) == 0.0)
GUARDED: Final = WHERE(Once(IS_NAN(Hole("kept"))), ZERO, Hole("kept", Rounding("softmax", SHARES, readers=2)))
WEIGHTS: Final = _Uncast(Rounding("weights", GUARDED | _Uncast(Rounding("softmax", SHARES))))
