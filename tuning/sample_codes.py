"""Codes of eight bits by samples: of the values of a tensor, and of the weights of a layer."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dialect.attributes.codes import LEAST_SCALE, CodesAttr
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.images import Conv2dOp, Depthwise2dOp
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.quantized_layers import GREATEST_BIAS
from ..dialect.provenance import node_name
from ..dialect.tensors import shape_of
from ..sparse.csr import CscMatrix

Floats = NDArray[np.float32]

CLIPPED: Final = (0.0, 1e-4, 1e-3, 1e-2)
"""Shares of the samples at either end that a range may leave out."""

MOST_CHANGE: Final = 0.1
"""Relative RMS error of a layer's results above which the layer stays in floats."""

GREATEST_CODE: Final = 127


class IntegerParameters(NamedTuple):
    """The constants of a layer of integers: all f32."""

    weight: SparseConstantOp | ConstantOp
    bias: ConstantOp
    multiplier: ConstantOp


NO_RANGE: Final = "has no range of inputs"
NO_INTEGERS: Final = "has a bias or weights that integers do not hold"
"""Reasons why layers stay floats."""


def layer_text(op: LinearOp | Conv2dOp | Depthwise2dOp) -> str:
    """Return how a layer is named: its node, its inputs and outputs."""
    inputs, outputs = shape_of(op.weight)
    return f"{node_name(op) or op.name} ({inputs} -> {outputs})"


def changed_text(change: float) -> str:
    """Return the reason why a layer stays that would change too much."""
    return f"would change by {change:.0%}"


def codes_of(x: Floats) -> CodesAttr | None:
    """Return the codes whose rounding changes samples least; None where there is no range."""
    candidates = list(_candidates(x))
    return min(candidates, key=lambda codes: _rounding(x, codes)) if candidates else None


def _candidates(x: Floats) -> Iterator[CodesAttr]:
    for share in CLIPPED:
        ends = np.quantile(x, [share, 1 - share]) if x.size else np.zeros(2)
        low, high = min(0.0, float(ends[0])), max(0.0, float(ends[1]))
        scale = np.float32((high - low) / 255)
        if np.isfinite(scale) and scale >= LEAST_SCALE:
            yield CodesAttr("u8", float(scale), int(np.clip(np.rint(-low / scale), 0, 255)))


def _rounding(x: Floats, codes: CodesAttr) -> float:
    scale = np.float32(codes.scale)
    return float(np.mean(np.square(codes.steps(x / scale) * scale - x)))


def integer_parameters(
    weight: CscMatrix, bias: Floats | None, codes: CodesAttr, *, is_dense: bool = False
) -> IntegerParameters | None:
    """Return a layer's weight by a scale for each output, zeros staying zeros; None where a bias is too large.

    It is stored without its zeros, unless it `is_dense`.
    """
    largest = np.zeros(weight.shape[1], np.float32)
    np.maximum.at(largest, weight.columns, np.abs(weight.values))
    scale = np.where(largest > 0, largest / GREATEST_CODE, 1).astype(np.float32)
    multiplier = np.float32(codes.scale) * scale
    sums = np.zeros(weight.shape[1]) if bias is None else np.rint(bias / multiplier)
    if not np.all(np.isfinite(scale)) or np.abs(sums).max(initial=0) > GREATEST_BIAS:
        return None
    values = np.rint(weight.values / scale[weight.columns]).astype(np.float32)
    integers = CscMatrix(weight.shape, weight.pointers, weight.rows, values)
    constant = ConstantOp(integers.to_dense()) if is_dense else SparseConstantOp(integers)
    return IntegerParameters(constant, ConstantOp(sums.astype(np.float32)), ConstantOp(multiplier))


def change_of(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> float:
    """Return the root mean square of what arrays change by, as a share of their own: the largest of all.

    It is infinite where results are, or change, beyond all numbers: nothing is known of the share then.
    """
    shares = [0.0]
    for old, new in zip(before, after, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            size, change = (float(np.sqrt(np.mean(np.square(one)))) if one.size else 0.0 for one in (old, new - old))
        if not (math.isfinite(size) and math.isfinite(change)):
            return math.inf
        shares.append(change / size if size else 0.0)
    return max(shares)
