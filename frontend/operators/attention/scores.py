"""Scores of an attention: the nodes between its first product and the weights, read from the last one to the first.

See `redpebble.frontend.operators.attention.products` for their forms. Factors behind a rounding are moved before it:
what is rounded to multiples of s, and then halved, is halved and rounded to multiples of s / 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.attention import Roundings, Weighting
from ...folding.score_masks import HiddenScores, hidden_scores, mask_of_constant
from ..conversion import Conversion
from ..row_steps import Rounded, RowSteps, number_of_value, rounded, scaled
from .past_keys import RANK

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
    return _Reader(conversion).scores_of(weights)


class _Product(NamedTuple):
    """A product of queries with keys, what it is multiplied by, and rounded to after that."""

    queries: onnx_ir.Value
    keys: onnx_ir.Value
    factor: float
    roundings: tuple[ActivationAttr, ...]
    nodes: tuple[onnx_ir.Node, ...]


class _Masked(NamedTuple):
    """A product, the masks that are added to it, what the sum is rounded to, and the nodes that do so."""

    product: _Product
    masks: tuple[Mask, ...] = ()
    roundings: tuple[ActivationAttr, ...] = ()
    nodes: tuple[onnx_ir.Node, ...] = ()


@dataclass
class _Reader:
    """Facts of the nodes before the one that is converted."""

    conversion: Conversion
    nodes: list[onnx_ir.Node] = field(default_factory=list[onnx_ir.Node])
    """The nodes that were gone through."""

    def scores_of(self, weights: onnx_ir.Value) -> Scores | None:
        """Return what the weights of an attention are made of; None where they are no such."""
        weights, last = self._unrounded(self._uncast(weights))
        kept = self._without_guard(weights)
        uses = 1 if kept is weights else 2
        unrounded, first = self._unrounded(self._uncast(kept), uses)
        softmax = self._producer(unrounded, "Softmax", 1 if first else uses)
        if softmax is None or not self._is_last_axis(softmax) or softmax.inputs[0] is None:
            return None
        masked = self._masked(softmax.inputs[0], MOST_MASKS)
        if masked is None:
            return None
        product = masked.product
        queries, keys = (RowSteps.of(self.conversion, one) for one in (product.queries, product.keys))
        scale = product.factor * queries.factor * keys.factor
        roundings = Roundings(product.roundings, masked.roundings, (*first, *last))
        # what was rounded is a number
        weighting = Weighting(scale, nan_as_zero=uses == 2 and not first, roundings=roundings)
        return Scores(weighting, masked.masks, queries, keys, (*self.nodes, *masked.nodes, *product.nodes))

    def _producer(self, value: onnx_ir.Value, operator: str, uses: int = 1) -> onnx_ir.Node | None:
        """Return the node that yields a value, if it has that operator and nothing else reads it, and note it."""
        node = _only_producer(value, operator, uses)
        if node is not None:
            self.nodes.append(node)
        return node

    def _unrounded(self, value: onnx_ir.Value, uses: int = 1) -> tuple[onnx_ir.Value, tuple[ActivationAttr, ...]]:
        """Return a value before it is rounded, as it is nowhere else, and to what it is."""
        roundings: list[ActivationAttr] = []
        while (found := _rounded_once(self.conversion, value, uses)) is not None:
            roundings.append(found.rounding)
            self.nodes += found.nodes
            value, uses = found.before, 1
        return value, tuple(reversed(roundings))

    def _uncast(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return a value before casts to float, which it is already, as what it is made of is."""
        while (cast := value.producer()) is not None and cast.op_type == "Cast" and cast.inputs[0] is not None:
            to_float = cast.attributes.get_int("to", 0) == onnx_ir.DataType.FLOAT
            if not to_float or self._producer(value, "Cast") is None:
                return value
            value = cast.inputs[0]
        return value

    def _without_guard(self, weights: onnx_ir.Value) -> onnx_ir.Value:
        """Return the weights before `Where(IsNaN(weights), 0, weights)`."""
        where = weights.producer()
        if where is None or where.op_type != "Where" or None in where.inputs:
            return weights
        condition, zero, kept = where.inputs
        assert condition is not None
        assert zero is not None
        assert kept is not None
        test = condition.producer()
        if (
            test is None
            or test.op_type != "IsNaN"
            or test.inputs[0] is not kept
            or number_of_value(self.conversion, zero) != 0.0
        ):
            return weights
        if self._producer(weights, "Where") is None or self._producer(condition, "IsNaN") is None:
            return weights
        return kept

    def _is_last_axis(self, softmax: onnx_ir.Node) -> bool:
        default = -1 if self.conversion.opset >= 13 else 1
        axis = softmax.attributes.get("axis")
        return (default if axis is None else axis.as_int()) in (-1, RANK - 1)

    def _masked(self, scores: onnx_ir.Value, most: int) -> _Masked | None:
        """Return the product that at most so many masks hide; None where there is none."""
        product = self._product(scores)
        if product is not None:
            return _Masked(product)
        outside = _Reader(self.conversion)
        scores, roundings = outside._unrounded(scores)
        node = scores.producer()
        if node is None or most == 0 or _only_producer(scores, node.op_type) is None:
            return None
        for before, mask in self._masks(node):
            masked = self._masked(before, most - 1)
            # sums of several masks are rounded once, behind the last one
            if masked is not None and not masked.roundings:
                nodes = (*masked.nodes, *outside.nodes, node)
                return _Masked(masked.product, (*masked.masks, mask), roundings, nodes)
        return None

    def _product(self, scores: onnx_ir.Value) -> _Product | None:
        """Return the product of queries with keys that scores are before a mask; None where they are none."""
        outside, factor = _Reader(self.conversion), 1.0
        roundings: list[ActivationAttr] = []
        while True:
            before, found = outside._unrounded(scores)
            for one in reversed(found):
                scale, zero = one.values
                roundings.append(ActivationAttr.of("quantize", float(np.float32(scale * factor)), zero))
            product = scaled(self.conversion, before)
            if product is None or outside._producer(before, product.operator) is None:
                break
            scores, factor = product.before, factor * product.factor
            # codes of values that change their sign are others
            if roundings and factor <= 0.0:
                return None
        node = outside._producer(before, "MatMul")
        if node is None or None in node.inputs:
            return None
        queries, keys = node.inputs
        assert queries is not None
        assert keys is not None
        return _Product(queries, keys, factor, tuple(reversed(roundings)), tuple(outside.nodes))

    def _masks(self, node: onnx_ir.Node) -> Iterator[tuple[onnx_ir.Value, Mask]]:
        """Yield the inputs of a node that may be scores and a mask."""
        version = self.conversion.scope.ir_version
        hidden = hidden_scores(node, version)
        if hidden is not None and (scores := node.inputs[hidden.scores]) is not None:
            mask = self._mask_of_where(node, hidden)
            if mask is not None:
                yield scores, mask
        if node.op_type == "Add" and len(node.inputs) == 2:
            for one, other in (node.inputs, node.inputs[::-1]):
                if one is not None and other is not None:
                    yield one, other

    def _mask_of_where(self, where: onnx_ir.Node, hidden: HiddenScores) -> Mask | None:
        """Return the mask that may be added instead of a Where: a value of the graph, or numbers."""
        condition = where.inputs[0]
        seen = None if condition is None else self.conversion.scope.constant_of(condition)
        return self.conversion.scope.score_masks.get(where) if seen is None else mask_of_constant(seen, hidden)


def _only_producer(value: onnx_ir.Value, operator: str, uses: int = 1) -> onnx_ir.Node | None:
    """Return the node that yields a value, if it has that operator and nothing else reads it."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type != operator:
        return None
    return node if len(value.uses()) == uses and not value.is_graph_output() else None


def _rounded_once(conversion: Conversion, value: onnx_ir.Value, uses: int) -> Rounded | None:
    """Return a value before it was rounded to codes, where nothing else reads these."""
    found = rounded(conversion, value)
    if found is None or len(value.uses()) != uses or value.is_graph_output():
        return None
    codes = found.nodes[1].outputs[0]
    return found if len(codes.uses()) == 1 and not codes.is_graph_output() else None
