"""Linear layers on codes of eight bits: sums of integers, which are scaled and rounded to the codes of the next one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..attributes.codes import CodesAttr
from ..attributes.kernels import KernelAttr
from ..tensors import (
    BYTE_TENSOR,
    DENSE_TENSOR,
    DYNAMIC,
    F32_TENSOR,
    byte_kind,
    byte_tensor,
    f32_tensor,
    shape_of,
    shape_text,
)
from .axis_maps import AxisMap, HasAxisMap, MixedFeatures, RowMajor
from .constants import ConstantOp, SparseConstantOp

PARAMETERS: Final = 3
"""Operands of a layer: weight, bias, multiplier."""

GREATEST_WEIGHT: Final = 255
"""A code of eight bits less its zero."""

GREATEST_BIAS: Final = 1 << 24
"""Up to here every integer is a float32."""


class QuantizedLayer(NamedTuple):
    """One of the layers: see `QuantizedLayersOp`."""

    name: str
    weight: SSAValue
    bias: SSAValue
    multiplier: SSAValue
    codes: CodesAttr
    """The codes of its inputs."""
    activation: ActivationAttr | None

    @property
    def inputs(self) -> int:
        """The number of its inputs."""
        return shape_of(self.weight)[0]

    @property
    def outputs(self) -> int:
        """The number of its outputs."""
        return shape_of(self.weight)[1]


class _Map(HasAxisMap):
    """Rows by themselves, unless the range of all of them has to be known."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        known = MixedFeatures(inputs=1).axis_map(op)
        assert isinstance(op, QuantizedLayersOp)
        return replace(known, whole=frozenset(known.operands[0][:-1])) if op.is_dynamic else known


@irdl_op_definition
class QuantizedLayersOp(IRDLOperation):
    """Quantized linear layers one after the other, [..., K] -> [..., N].

    A layer rounds its inputs to `codes`, and computes activation(float(sums) * multiplier) of the integers
    sums = (code - zero) weight + bias. `parameters` are weight [K, N] (sparse or dense), bias [N] and multiplier [N] of
    each layer in turn; weights and biases are integers, held in f32. Where a layer follows without an activation, or
    with relu, what is rounded to its codes is float(sums) * (multiplier / scale), as in onnxruntime's integer kernels.
    One more entry of `codes` than layers is what the result is rounded to. A layer with dynamic codes stands alone: the
    scale that is found multiplies its multiplier, and its bias are floats that are added to the products. `nodes` are
    the names of the ONNX nodes. An input of bytes is the codes themselves, and a result of bytes is those that it is
    rounded to.

    ```mlir
    %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.05 zero 128>] activations [unit]
        nodes ["fc1"] : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    ```
    """

    name = "pebble.quantized_layers"

    x = operand_def(DENSE_TENSOR | BYTE_TENSOR)
    parameters = var_operand_def(F32_TENSOR)
    codes = prop_def(ArrayAttr[CodesAttr])
    activations = prop_def(ArrayAttr[ActivationAttr | UnitAttr])
    nodes = prop_def(ArrayAttr[StringAttr])
    kernel = opt_prop_def(KernelAttr)
    result = result_def(DENSE_TENSOR | BYTE_TENSOR)

    traits = traits_def(Pure(), _Map(), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $parameters `codes` $codes `activations` $activations `nodes` $nodes (`kernel` $kernel^)? attr-dict "
        "`:` functional-type(operands, results)"
    )

    def __init__(
        self,
        x: SSAValue,
        layers: Sequence[QuantizedLayer],
        output: CodesAttr | None = None,
        *,
        yields_bytes: bool = False,
    ) -> None:
        """Make layers, the last of which is rounded to the codes `output`, if they are given, or yields these."""
        codes = [*(layer.codes for layer in layers), *([] if output is None else [output])]
        super().__init__(
            operands=[x, [value for one in layers for value in (one.weight, one.bias, one.multiplier)]],
            properties={
                "codes": ArrayAttr(codes),
                "activations": ArrayAttr([layer.activation or UnitAttr() for layer in layers]),
                "nodes": ArrayAttr([StringAttr(layer.name) for layer in layers]),
            },
            result_types=[_result_type((*shape_of(x)[:-1], layers[-1].outputs), output if yields_bytes else None)],
        )

    @property
    def layers(self) -> tuple[QuantizedLayer, ...]:
        """The layers in the order in which they run."""
        made: list[QuantizedLayer] = []
        for index, (name, activation) in enumerate(zip(self.nodes, self.activations, strict=True)):
            weight, bias, multiplier = self.parameters[PARAMETERS * index : PARAMETERS * (index + 1)]
            known = activation if isinstance(activation, ActivationAttr) else None
            made.append(QuantizedLayer(name.data, weight, bias, multiplier, self.codes.data[index], known))
        return tuple(made)

    @property
    def is_dynamic(self) -> bool:
        """Whether the codes of the input are found at each call."""
        return self.codes.data[0].is_dynamic

    @property
    def output(self) -> CodesAttr | None:
        """The codes that the result is rounded to, or None."""
        return self.codes.data[-1] if len(self.codes) > len(self.nodes) else None

    @property
    def reads_bytes(self) -> bool:
        """Whether the input is codes."""
        return byte_kind(self.x.type) is not None

    @property
    def yields_bytes(self) -> bool:
        """Whether the result is codes."""
        return byte_kind(self.result.type) is not None

    def verify_(self) -> None:
        count = len(self.nodes)
        if not count or len(self.parameters) != PARAMETERS * count or len(self.activations) != count:
            raise VerifyException(
                f"{len(self.parameters)} parameters, expected three for each of {count or 'some'} nodes"
            )
        if len(self.codes) not in (count, count + 1):
            raise VerifyException(f"{len(self.codes)} codes, expected {count} or {count + 1}")
        if any(one.is_dynamic for one in self.codes) and len(self.codes) > 1:
            raise VerifyException("expected dynamic codes of one layer that is not rounded, got several")
        _verify_bytes("input", self.x, self.codes.data[0])
        _verify_bytes("result", self.result, self.output)
        shape, result = shape_of(self.x), shape_of(self.result)
        if len(shape) < 2 or shape[-1] == DYNAMIC:
            raise VerifyException(f"input {shape_text(shape)}, expected rank 2 or more and a known last axis")
        values = shape[-1]
        for layer in self.layers:
            values = verify_parameters(layer, values)
        if result != (*shape[:-1], values):
            raise VerifyException(f"result {shape_text(result)}, expected {shape_text((*shape[:-1], values))}")


def _result_type(shape: Sequence[int], codes: CodesAttr | None) -> Attribute:
    return f32_tensor(shape) if codes is None else byte_tensor(codes.kind, shape)


def _verify_bytes(word: str, value: SSAValue, codes: CodesAttr | None) -> None:
    """Check that bytes are of the kind of the codes that they are."""
    found, expected = byte_kind(value.type), None if codes is None else codes.kind
    if found is not None and found != expected:
        raise VerifyException(f"{word} of {found} bytes, its codes are {expected or 'none'}")


def verify_parameters(layer: QuantizedLayer, values: int) -> int:
    """Check that the parameters of a layer fit `values` inputs, and return the number of outputs.

    Raises:
        VerifyException: one has another shape, or is not made of integers that are constants.
    """
    weight = shape_of(layer.weight)
    if len(weight) != 2 or DYNAMIC in weight or weight[0] != values:
        raise VerifyException(f"weight {shape_text(weight)} does not fit {values} inputs")
    for word, value in (("bias", layer.bias), ("multiplier", layer.multiplier)):
        if shape_of(value) != weight[1:]:
            raise VerifyException(f"{word} {shape_text(shape_of(value))}, expected {weight[1]}")
    _verify_integers("weights", layer.weight, GREATEST_WEIGHT)
    if not layer.codes.is_dynamic:
        _verify_integers("biases", layer.bias, GREATEST_BIAS)
    return weight[1]


def _verify_integers(word: str, value: SSAValue, greatest: int) -> None:
    """Check that a constant holds integers, no greater than `greatest` whatever their sign."""
    match value.owner:
        case ConstantOp() as op:
            array = op.array
        case SparseConstantOp() as op:
            array = op.weight.values
        case _:
            raise VerifyException(f"{word} are no constant")
    if array.size and not (np.all(np.rint(array) == array) and np.abs(array).max() <= greatest):
        raise VerifyException(f"{word} are no integers from {-greatest} to {greatest}")
