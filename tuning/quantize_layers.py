"""Let sparse layers compute with integers of eight bits, by ranges of their inputs that samples show.

```mlir
%y = pebble.linear %x, %w bias %b : ...
// ->
%y = pebble.quantized_layers %x, %v, %c, %m codes [#pebble.codes<u8 scale 0.031 zero 121>] activations [unit] ... : ...
```

Inputs have one scale and zero each, by the range, clipped or not, whose rounding changes the samples least. Weights
have a scale for each output, and zeros stay zeros. A layer whose results change by more than a share stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import InterpretationError, PassFailedException

from redpebble.dialect.attributes.codes import LEAST_SCALE, CodesAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.quantized_layers import GREATEST_BIAS, QuantizedLayer, QuantizedLayersOp
from redpebble.dialect.provenance import copy_provenance, node_name
from redpebble.dialect.semantics.interpreter import Foreign, Observed, evaluate, observe
from redpebble.dialect.tensors import shape_of
from redpebble.kernels.byte_times import gains
from redpebble.passes.rewriting.erase_unused import erase_unused
from redpebble.passes.simplify.join_quantized_layers import join_layers
from redpebble.sparse.csr import CscMatrix

Floats = NDArray[np.float32]

QUANTIZED: Final = "pebble.quantized"
"""The attribute of a module that says what was quantized, and what its results lost."""

CLIPPED: Final = (0.0, 1e-4, 1e-3, 1e-2)
"""Shares of the samples at either end that a range may leave out."""

MOST_CHANGE: Final = 0.1
"""Root mean square of what a layer's results change by, as a share of their own, above which it stays as it is."""

GREATEST_CODE: Final = 127


@dataclass(frozen=True)
class QuantizeLayers(ModulePass):
    """Quantize sparse layers by samples of the inputs of the model: an array [samples, ...] for each."""

    name = "pebble-quantize-layers"

    samples: Mapping[str, NDArray[Any]]
    foreign: Foreign | None = None
    """Runner of nodes that were left as they are."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = [one for one in op.walk() if isinstance(one, LinearOp) and _is_candidate(one)]
        try:
            before = observe(op, self.samples, self.foreign)
            chosen = [one for one in layers if _quantize(one, before)]
            join_layers(op)
            change = change_of(before.results, observe(op, self.samples, self.foreign).results)
        except (InterpretationError, ValueError) as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        erase_unused(op.body)
        text = f"{len(chosen)} of {len(layers)} sparse layers compute with integers, results change by {change:.2%}"
        op.attributes[QUANTIZED] = StringAttr(text)


def text_on(module: ModuleOp, name: str) -> str:
    """Return an attribute of a module that is text; empty where there is none."""
    text = module.attributes.get(name)
    return text.data if isinstance(text, StringAttr) else ""


def _is_candidate(op: LinearOp) -> bool:
    weight = op.weight.owner
    if not isinstance(weight, SparseConstantOp) or len(shape_of(op.x)) < 2:
        return False
    return gains(weight.weight) and (op.bias is None or isinstance(op.bias.owner, ConstantOp))


def _quantize(op: LinearOp, observed: Observed) -> bool:
    """Let a layer compute with integers, unless its results change too much; return whether it does."""
    x, y = (np.asarray(observed.values[value], np.float32) for value in (op.x, op.result))
    codes = _codes(x)
    quantized = None if codes is None else _layer(op, codes)
    if codes is None or quantized is None:
        return False
    constants, made = quantized
    operands = [x, *(_array(value) for value in made.parameters)]
    (result,) = evaluate(made, operands, np.float32)
    block = op.parent
    assert block is not None
    if change_of([y], [result]) > MOST_CHANGE:
        made.drop_all_references()
        return False
    for one in (*constants, made):
        block.insert_op_before(one, op)
    copy_provenance(op, made)
    made.result.name_hint = op.result.name_hint
    observed.values[made.result] = y
    op.result.replace_all_uses_with(made.result)
    op.detach()
    op.erase()
    return True


def _layer(op: LinearOp, codes: CodesAttr) -> tuple[Sequence[ConstantOp | SparseConstantOp], QuantizedLayersOp] | None:
    """Return a layer of integers in the place of another one, and its constants; None where a bias is too large."""
    assert isinstance(op.weight.owner, SparseConstantOp)
    weight = op.weight.owner.weight
    largest = np.zeros(weight.shape[1], np.float32)
    np.maximum.at(largest, weight.columns, np.abs(weight.values))
    scale = np.where(largest > 0, largest / GREATEST_CODE, 1).astype(np.float32)
    multiplier = np.float32(codes.scale) * scale
    bias = np.zeros(weight.shape[1]) if op.bias is None else np.rint(_array(op.bias) / multiplier)
    if not np.all(np.isfinite(scale)) or np.abs(bias).max(initial=0) > GREATEST_BIAS:
        return None
    values = np.rint(weight.values / scale[weight.columns]).astype(np.float32)
    integers = CscMatrix(weight.shape, weight.pointers, weight.rows, values)
    constants = (SparseConstantOp(integers), ConstantOp(bias.astype(np.float32)), ConstantOp(multiplier))
    w, b, m = (constant.results[0] for constant in constants)
    return constants, QuantizedLayersOp(op.x, [QuantizedLayer(node_name(op), w, b, m, codes, op.activation)])


def _codes(x: Floats) -> CodesAttr | None:
    """Return the codes whose rounding changes samples least; None where there is no range."""
    candidates = list(_candidates(x))
    return min(candidates, key=lambda codes: _rounding(x, codes)) if candidates else None


def _candidates(x: Floats) -> Iterator[CodesAttr]:
    for share in CLIPPED:
        ends = np.quantile(x, [share, 1 - share]) if x.size else np.zeros(2)
        low, high = min(0.0, float(ends[0])), max(0.0, float(ends[1]))
        scale = np.float32((high - low) / 255)
        if np.isfinite(scale) and scale >= LEAST_SCALE:
            yield CodesAttr.of("u8", float(scale), int(np.clip(np.rint(-low / scale), 0, 255)))


def _rounding(x: Floats, codes: CodesAttr) -> float:
    scale = np.float32(codes.scale)
    return float(np.mean(np.square(codes.steps(x / scale) * scale - x)))


def _array(value: SSAValue) -> Floats:
    array = constant_array(value)
    assert array is not None
    return array


def change_of(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> float:
    """Return the root mean square of what arrays change by, as a share of their own: the largest of all."""
    shares = [0.0]
    for old, new in zip(before, after, strict=True):
        size, change = (float(np.sqrt(np.mean(np.square(one)))) if one.size else 0.0 for one in (old, new - old))
        shares.append(change / size if size else 0.0)
    return max(shares)
