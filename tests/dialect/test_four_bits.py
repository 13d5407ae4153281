"""Room for weights of four bits with a scale for each group of inputs: a type of elements, an op, a reference.

The type says how weights are stored; the op is a sum of layers with a multiplier, one a group.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import BytesAttr, TensorType
from xdsl.ir import Block, Operation, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from redpebble.dialect.ops.axis_maps import FixedAxes, RowWise, axis_map_of
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import AddOp, MulOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import SplitOp
from redpebble.dialect.record import Record
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.semantics.references import REFERENCES
from redpebble.dialect.tensors import DENSE_TENSOR, DYNAMIC, f32_tensor, shape_of
from tests.support.lowering_modules import function

Floats = NDArray[np.float32]

GROUP = 32


class FourBits(Record, TypeAttribute, text="s4 groups of {inputs}"):
    """Integers from -8 to 7, two a byte; `inputs` neighbours of one output have a scale together."""

    name = "toy.codes"

    inputs: int


@irdl_op_definition
class StoredOp(IRDLOperation):
    """A weight [K, N] of four bits: along K, two inputs a byte."""

    name = "toy.stored"

    packed = prop_def(BytesAttr)
    result = result_def()

    def __init__(self, weight: NDArray[np.int8]) -> None:
        nibbles = (weight & 15).astype(np.uint8)
        packed = nibbles[::2] | nibbles[1::2] << 4
        super().__init__(
            properties={"packed": BytesAttr(packed.tobytes())}, result_types=[TensorType(FourBits(GROUP), weight.shape)]
        )

    @property
    def weight(self) -> NDArray[np.int8]:
        packed = np.frombuffer(self.packed.data, np.int8).reshape(-1, shape_of(self.result)[1])
        return np.stack([packed << 4 >> 4, packed >> 4], 1).reshape(shape_of(self.result))


@irdl_op_definition
class GroupedLinearOp(IRDLOperation):
    """x [..., K], weight [K, N] of four bits, scales [K / 32, N] -> [..., N]: sums of groups, each times its scale."""

    name = "toy.grouped_linear"

    x = operand_def(DENSE_TENSOR)
    weight = operand_def()
    times = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    # neighbours stay together: inputs have an order that the op relies on, outputs have none
    traits = traits_def(Pure(), FixedAxes("...k, kn, gn -> ...n", "kg"), RowWise())
    assembly_format: ClassVar = "$x `,` $weight `times` $times attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue, weight: SSAValue, times: SSAValue) -> None:
        result = f32_tensor((*shape_of(x)[:-1], shape_of(weight)[1]))
        super().__init__(operands=[x, weight, times], result_types=[result])


def of_stored(op: StoredOp) -> Floats:
    return op.weight.astype(np.float32)


def of_groups(_: GroupedLinearOp, x: Floats, weight: Floats, times: Floats) -> Floats:
    groups = x.reshape(len(x), -1, GROUP).swapaxes(0, 1)
    sums = groups @ weight.reshape(-1, GROUP, weight.shape[1])
    return np.asarray((sums * times[:, None]).sum(axis=0))


def layers_of(op: GroupedLinearOp, times: Floats) -> Iterator[Operation]:
    """Layers of floats that compute the same: all that the dialect has for these holds for it."""
    assert isinstance(op.weight.owner, StoredOp)
    weight = op.weight.owner.weight.astype(np.float32)
    parts = SplitOp(op.x, 1, [GROUP] * len(times))
    yield parts
    total: SSAValue | None = None
    for part, first, scale in zip(parts.parts, range(0, len(weight), GROUP), times, strict=True):
        constants = ConstantOp(weight[first : first + GROUP]), ConstantOp(scale)
        layer = LinearOp(part, constants[0].result)
        scaled = MulOp(layer.result, constants[1].result)
        yield from (*constants, layer, scaled)
        if total is not None:
            added = AddOp(total, scaled.result)
            yield added
            total = added.result
        else:
            total = scaled.result


@pytest.fixture
def toy() -> Iterator[None]:
    with REFERENCES.extended({StoredOp: of_stored, GroupedLinearOp: of_groups}):
        yield


@pytest.mark.usefixtures("toy")
def test_weights_of_four_bits_have_a_scale_a_group() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (96, 20)).astype(np.int8)
    times = rng.uniform(0.01, 0.1, (3, 20)).astype(np.float32)
    x = rng.standard_normal((7, 96), dtype=np.float32)
    stored, scales = StoredOp(weight), ConstantOp(times)
    assert str(stored.result.type) == "tensor<96x20x!toy.codes<s4 groups of 32>>"
    assert np.array_equal(stored.weight, weight)
    assert len(stored.packed.data) == weight.size // 2

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = GroupedLinearOp(arguments[0], stored.result, scales.result)
        block.add_ops([stored, scales, op])
        return [op.result]

    module = function([f32_tensor((DYNAMIC, 96))], body)
    found = np.asarray(interpret(module, {"x0": x})[0])
    expected = x @ (weight * times.repeat(GROUP, axis=0))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

    (op,) = [op for op in module.walk() if isinstance(op, GroupedLinearOp)]
    axis_map = axis_map_of(op)
    assert axis_map is not None
    assert axis_map.fixed == {"k", "g"}

    made = list(layers_of(op, times))
    assert op.parent is not None
    op.parent.insert_ops_before(made, op)
    op.result.replace_all_uses_with(made[-1].results[0])
    op.parent.erase_op(op)
    module.verify()
    assert np.array_equal(np.asarray(interpret(module, {"x0": x})[0]), found)
