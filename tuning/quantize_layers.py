"""Let sparse layers compute with integers of eight bits, by ranges of their inputs that samples show.

```mlir
%y = pebble.linear %x, %w bias %b : ...
// ->
%q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.031 zero 121>>
%y = pebble.linear %q, %v bias %c times %m : ...
```

Inputs have one scale and zero each, by the range, clipped or not, whose rounding changes the samples least. Weights
have a scale for each output, and zeros stay zeros. A layer whose results change by more than a share stays as
it is, and is named.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import InterpretationError, PassFailedException

from ..dialect.attributes.codes import CodesAttr
from ..dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ..dialect.ops.elementwise import ConvertOp
from ..dialect.ops.layers import LinearOp
from ..dialect.ops.quantized_layers import QuantizedLayer
from ..dialect.provenance import node_name
from ..dialect.semantics.interpreter import Foreign, Observed, evaluate
from ..dialect.tensors import shape_of
from ..kernels.byte_times import gains
from ..kernels.machine import Machine
from ..passes.images.fuse_convolutions import FuseConvolutions
from ..passes.images.image_layers import is_sparse_convolution
from ..passes.rewriting.erase_unused import erase_unused
from ..passes.rewriting.replacing import replace
from ..passes.simplify.fuse_codes import fuse_codes
from .gaining_convolutions import convolutions_of
from .quantize_convolutions import quantize_convolutions
from .sample_codes import (
    MOST_CHANGE,
    NO_INTEGERS,
    NO_RANGE,
    Floats,
    IntegerParameters,
    change_of,
    changed_text,
    codes_of,
    integer_parameters,
    layer_text,
)
from .samples import Samples, batches_of, observe_batches

MOST_IMAGES: Final = 32
"""Samples of networks with convolutions that are looked at: all their values are held at once."""

QUANTIZED: Final = "pebble.quantized"
"""The attribute of a module that says what was quantized, and what its results lost."""


@dataclass(frozen=True)
class QuantizeLayers(ModulePass):
    """Quantize sparse layers by samples of the inputs of the model: an array [samples, ...] for each."""

    name = "pebble-quantize-layers"

    samples: Samples
    foreign: Foreign | None = None
    """Runner of nodes that were left as they are."""
    machine: Machine = field(default_factory=Machine)
    """The machine by whose prices layers of integers are chosen."""
    takes_all: bool = True
    """Whether convolutions that are not sparse may be quantized, too: depthwise ones, and dense ones beside others."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = [one for one in op.walk() if isinstance(one, LinearOp) and _is_candidate(one, self.machine)]
        convolutions = convolutions_of(op, takes_all=self.takes_all)
        count = sum(map(is_sparse_convolution, convolutions))
        batches = batches_of(op, self.samples, MOST_IMAGES if convolutions else None)
        try:
            before = observe_batches(op, batches, self.foreign)
            left = [text for one in layers if (text := _left(one, before))]
            outcome = quantize_convolutions(convolutions, before, self.machine)
            fuse_codes(op)
            FuseConvolutions().apply(ctx, op)
            change = change_of(before.results, observe_batches(op, batches, self.foreign).results)
        except (InterpretationError, ValueError) as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        erase_unused(op.body)
        done, found = len(layers) - len(left) + outcome.sparse, len(layers) + count
        some = f"{done} of {found} sparse layers" + _others_text(outcome.others)
        some += f" compute with integers, results change by {change:.2%}"
        op.attributes[QUANTIZED] = StringAttr("; ".join([some, *left, *outcome.left]))


def _others_text(count: int) -> str:
    return f" and {count} other{'s' * (count > 1)}" if count else ""


def text_on(module: ModuleOp, name: str) -> str:
    """Return an attribute of a module that is text; empty where there is none."""
    text = module.attributes.get(name)
    return text.data if isinstance(text, StringAttr) else ""


def _is_candidate(op: LinearOp, machine: Machine) -> bool:
    weight = op.weight.owner
    if not isinstance(weight, SparseConstantOp) or len(shape_of(op.x)) < 2 or op.times is not None:
        return False
    return gains(weight.weight, machine) and (op.bias is None or isinstance(op.bias.owner, ConstantOp))


def _left(op: LinearOp, observed: Observed) -> str:
    """Let a layer compute with integers; return the reason why another one is left as it is."""
    x, y = (np.asarray(observed.values[value], np.float32) for value in (op.x, op.result))
    codes = codes_of(x)
    if codes is None:
        return f"{layer_text(op)} {NO_RANGE}"
    quantized = _layer(op, codes)
    if quantized is None:
        return f"{layer_text(op)} {NO_INTEGERS}"
    constants, rounding, made = quantized
    (rounded,) = evaluate(rounding, [x], np.float32)
    (result,) = evaluate(made, [rounded, *(_array(value) for value in made.operands[1:])], np.float32)
    change = change_of([y], [result])
    if change > MOST_CHANGE:
        made.drop_all_references()
        rounding.drop_all_references()
        return f"{layer_text(op)} {changed_text(change)}"
    Rewriter.insert_op(constants, InsertPoint.before(op))
    observed.values[made.result] = y
    replace(op, rounding, made)
    return ""


def _layer(op: LinearOp, codes: CodesAttr) -> tuple[IntegerParameters, ConvertOp, LinearOp] | None:
    """Return a layer on codes in place of another one, its constants and rounding; None where a bias is too large."""
    assert isinstance(op.weight.owner, SparseConstantOp)
    constants = integer_parameters(op.weight.owner.weight, None if op.bias is None else _array(op.bias), codes)
    if constants is None:
        return None
    w, b, m = (constant.results[0] for constant in constants)
    rounding = ConvertOp(op.x, codes)
    layer = QuantizedLayer(node_name(op), w, b, m, codes, op.activation)
    return constants, rounding, LinearOp.of_codes(rounding.result, layer)


def _array(value: SSAValue) -> Floats:
    array = constant_array(value)
    assert array is not None
    return array
