"""Attention: each query is answered by a mean of values, weighted by how well their keys fit it."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, UnitAttr, f64, i64
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..tensors import DENSE_TENSOR, DYNAMIC, Shape, f32_tensor, shape_of, shape_text
from .axis_maps import Axes, AxisMap, HasAxisMap, RowMajor, own_axes

MASK_RANK = 4


class Heads(NamedTuple):
    """Numbers of heads: those of queries, and those of keys and values, which several of the former may share."""

    queries: int
    keys: int


class Roundings(NamedTuple):
    """Roundings to codes of eight bits, one after the other, at three places of an attention; see `AttentionOp`."""

    products: tuple[ActivationAttr, ...] = ()
    scores: tuple[ActivationAttr, ...] = ()
    weights: tuple[ActivationAttr, ...] = ()


class Weighting(NamedTuple):
    """Steps from scores to weights; see `AttentionOp`."""

    scale: float
    causal: bool = False
    nan_as_zero: bool = False
    roundings: Roundings = Roundings()


class _AttentionAxes(HasAxisMap):
    """Samples stay apart; lengths and features have an order that the op relies on."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        assert isinstance(op, Attention)
        operands: list[Axes] = [("b", "s", "q"), ("b", "t", "k"), ("b", "t", "v")]
        if op.mask is not None:
            operands.append(own_axes(op.mask, "m"))
        if op.past:
            operands += [("b", "h", "p", "d"), ("b", "h", "p", "e")]
        return AxisMap.in_order(operands, [("b", "s", "o")], "b")


class Attention(IRDLOperation):
    """The operands, numbers and checks that attention with keys of the past and without them share."""

    q = operand_def(DENSE_TENSOR)
    k = operand_def(DENSE_TENSOR)
    v = operand_def(DENSE_TENSOR)
    mask = opt_operand_def(DENSE_TENSOR)
    heads = prop_def(IntegerAttr.constr(i64))
    kv_heads = prop_def(IntegerAttr.constr(i64))
    scale = prop_def(FloatAttr.constr(f64))
    causal = opt_prop_def(UnitAttr)
    nan_as_zero = opt_prop_def(UnitAttr)
    products = opt_prop_def(ArrayAttr[ActivationAttr])
    scores = opt_prop_def(ArrayAttr[ActivationAttr])
    weights = opt_prop_def(ArrayAttr[ActivationAttr])
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _AttentionAxes(), RowMajor())

    def __init__(
        self,
        operands: tuple[SSAValue, SSAValue, SSAValue],
        mask: SSAValue | None,
        heads: Heads,
        weighting: Weighting,
        past: Sequence[SSAValue] = (),
    ) -> None:
        """Make an attention of queries, keys and values, and of the past if the op has one."""
        q, _, v = (shape_of(operand) for operand in operands)
        features = heads.queries * (v[-1] // heads.keys) if v and v[-1] != DYNAMIC and heads.keys > 0 else DYNAMIC
        roundings = {name: ArrayAttr(ones) if ones else None for name, ones in weighting.roundings._asdict().items()}
        super().__init__(
            operands=[*operands, mask, *past],
            properties={
                "heads": IntegerAttr(heads.queries, i64),
                "kv_heads": IntegerAttr(heads.keys, i64),
                # in single precision, as ONNX keeps it: the network that a node holds is this one
                "scale": FloatAttr(float(np.float32(weighting.scale)), f64),
                "causal": UnitAttr() if weighting.causal else None,
                "nan_as_zero": UnitAttr() if weighting.nan_as_zero else None,
                **roundings,
            },
            result_types=[f32_tensor((*q[:-1], features))],
        )

    @property
    def past(self) -> tuple[SSAValue, ...]:
        """Keys and values of the past, if the op has them."""
        return ()

    @property
    def head_counts(self) -> Heads:
        """The numbers of heads."""
        return Heads(self.heads.value.data, self.kv_heads.value.data)

    @property
    def weighting(self) -> Weighting:
        """Steps from scores to weights."""
        known = (tuple(ones or ()) for ones in (self.products, self.scores, self.weights))
        return Weighting(
            self.scale.value.data, self.causal is not None, self.nan_as_zero is not None, Roundings(*known)
        )

    @property
    def key_size(self) -> int:
        """Features of a key, and of a query, of one head."""
        return shape_of(self.k)[-1] // self.kv_heads.value.data

    @property
    def value_size(self) -> int:
        """Features of a value of one head."""
        return shape_of(self.v)[-1] // self.kv_heads.value.data

    def verify_(self) -> None:
        heads, kv_heads = self.head_counts
        if kv_heads < 1 or heads < 1 or heads % kv_heads:
            raise VerifyException(
                f"expected positive numbers of heads, a multiple of those of keys, got {heads} and {kv_heads}"
            )
        _verify_roundings(self.weighting)
        shapes = {"queries": shape_of(self.q), "keys": shape_of(self.k), "values": shape_of(self.v)}
        for word, shape in shapes.items():
            _verify_features(word, shape, heads if word == "queries" else kv_heads)
        queries, keys, values = shapes.values()
        if queries[2] // heads != keys[2] // kv_heads:
            raise VerifyException(f"queries have {queries[2] // heads} features a head, keys {keys[2] // kv_heads}")
        for axis, word, left, right in (
            (0, "samples", queries, keys),
            (0, "samples", keys, values),
            (1, "keys", keys, values),
        ):
            if DYNAMIC not in (left[axis], right[axis]) and left[axis] != right[axis]:
                raise VerifyException(f"expected the same number of {word}, got {left[axis]} and {right[axis]}")
        scored = keys[1]
        if self.past:
            scored = DYNAMIC if DYNAMIC in (scored, past := self._past_length(queries[0])) else scored + past
        if self.mask is not None:
            _verify_mask(shape_of(self.mask), (queries[0], heads, queries[1], scored))
        expected = (*queries[:2], heads * (values[2] // kv_heads))
        if shape_of(self.result) != expected:
            raise VerifyException(f"expected result {shape_text(expected)}, got {shape_text(shape_of(self.result))}")

    def _past_length(self, samples: int) -> int:
        """Return the keys of the past.

        Raises:
            VerifyException: their shapes do not fit the op's own keys and values.
        """
        kv_heads, expected = self.head_counts.keys, (self.key_size, self.value_size)
        lengths: list[int] = []
        for value, features in zip(self.past, expected, strict=True):
            shape = shape_of(value)
            fits = len(shape) == MASK_RANK and shape[1] == kv_heads and shape[3] == features
            if not fits or (DYNAMIC not in (shape[0], samples) and shape[0] != samples):
                known = shape_text((samples, kv_heads, DYNAMIC, features))
                raise VerifyException(f"expected past {known}, got {shape_text(shape)}")
            lengths.append(shape[2])
        if DYNAMIC not in lengths and lengths[0] != lengths[1]:
            raise VerifyException(f"expected as many keys as values of the past, got {lengths[0]} and {lengths[1]}")
        return lengths[0]


class _Past(IRDLOperation):
    """The operands that stand behind those of any attention: fields of a class come before those of its bases."""

    past_k = operand_def(DENSE_TENSOR)
    past_v = operand_def(DENSE_TENSOR)


@irdl_op_definition
class AttentionOp(Attention):
    """softmax(scale q k^T + mask) v of each head.

    Queries [B, S, heads d], keys [B, T, kv_heads d] and values [B, T, kv_heads e] give [B, S, heads e]. Heads lie side
    by side in the features; query head h reads key head `h * kv_heads / heads`. The mask is broadcast to
    [B, heads, S, T]. With `causal`, query i reads the keys up to number i alone. With `nan_as_zero`, weights that are
    NaN count as 0, as exporters write it for masks of -inf that hide every key of a query. In a quantized network
    `products` are what scale q k^T is rounded to before the mask is added, `scores` what it is rounded to then, and
    `weights` what the softmax is rounded to, after NaN counted as 0.

    ```mlir
    %y = pebble.attention %q, %k, %v mask %m heads 12 kv_heads 12 scale 1.25e-01
        products [#pebble.activation<quantize(0.05, 128.0)>] weights [#pebble.activation<quantize(0.004, 0.0)>]
        : (tensor<?x?x768xf32>, tensor<?x?x768xf32>, tensor<?x?x768xf32>, tensor<?x1x1x?xf32>) -> tensor<?x?x768xf32>
    ```
    """

    name = "pebble.attention"

    assembly_format: ClassVar = (
        "$q `,` $k `,` $v (`mask` $mask^)? `heads` $heads `kv_heads` $kv_heads `scale` $scale "
        "(`causal` $causal^)? (`nan_as_zero` $nan_as_zero^)? (`products` $products^)? (`scores` $scores^)? "
        "(`weights` $weights^)? attr-dict `:` functional-type(operands, results)"
    )


@irdl_op_definition
class PastAttentionOp(Attention, _Past):
    """The same for the step of a decoder, whose own keys and values stand behind those of the past.

    Keys [B, kv_heads, P, d] and values [B, kv_heads, P, e] of the past come first, and the mask is for P + T keys. With
    `causal`, query i reads all of the past, and the op's own keys up to number i.

    ```mlir
    %y = pebble.past_attention %q, %k, %v past %pk, %pv heads 12 kv_heads 12 scale 1.25e-01
        : (tensor<?x1x768xf32>, tensor<?x1x768xf32>, tensor<?x1x768xf32>, tensor<?x12x?x64xf32>, tensor<?x12x?x64xf32>)
        -> tensor<?x1x768xf32>
    ```
    """

    name = "pebble.past_attention"

    assembly_format: ClassVar = (
        "$q `,` $k `,` $v (`mask` $mask^)? `past` $past_k `,` $past_v `heads` $heads `kv_heads` $kv_heads "
        "`scale` $scale (`causal` $causal^)? (`nan_as_zero` $nan_as_zero^)? (`products` $products^)? "
        "(`scores` $scores^)? (`weights` $weights^)? attr-dict `:` functional-type(operands, results)"
    )

    @property
    @override
    def past(self) -> tuple[SSAValue, ...]:
        return self.past_k, self.past_v


def _verify_roundings(weighting: Weighting) -> None:
    """Check that all roundings are to codes, and those of scores behind a mask alone."""
    for one in (one for some in weighting.roundings for one in some):
        if one.kind != "quantize":
            raise VerifyException(f"expected a rounding by quantize, got {one.kind}")
    if weighting.causal and weighting.roundings.scores:
        raise VerifyException("expected roundings of the products alone of causal scores, got roundings of scores")


def _verify_features(word: str, shape: Shape, heads: int) -> None:
    """Check that there are a rank of 3 and as many features for each head."""
    if len(shape) != 3 or shape[2] == DYNAMIC or shape[2] < 1 or shape[2] % heads:
        raise VerifyException(f"expected {word} of rank 3 and a multiple of {heads} features, got {shape_text(shape)}")


def _verify_mask(shape: Shape, scores: Shape) -> None:
    """Check that a mask can be broadcast to the scores."""
    fits = len(shape) == MASK_RANK and all(
        size in (1, DYNAMIC) or score in (size, DYNAMIC) for size, score in zip(shape, scores, strict=True)
    )
    if not fits:
        raise VerifyException(f"expected a mask that is broadcast to {shape_text(scores)}, got {shape_text(shape)}")
