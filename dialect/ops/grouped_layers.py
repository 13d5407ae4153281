"""Linear layers whose neurons fall into groups without connections between them, computed apart."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, IntegerType, StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import ActivationAttr
from ..tensors import DENSE_TENSOR, DYNAMIC, dense_indices, f32_tensor, indices_of, shape_of, shape_text
from .axis_maps import MixedFeatures

Indices = NDArray[np.int64]


class GroupedLayer(NamedTuple):
    """One of the layers: see `GroupedLayersOp`."""

    name: str
    weight: SSAValue
    bias: SSAValue
    activation: ActivationAttr | None
    order: Indices | None
    """Before the layer, where the values take other places."""

    @property
    def outputs(self) -> int:
        """The neurons of all groups."""
        return shape_of(self.weight)[0]

    @property
    def group_inputs(self) -> int:
        """The inputs of one group."""
        return shape_of(self.weight)[1]


@irdl_op_definition
class GroupedLayersOp(IRDLOperation):
    """Layers one after the other, [..., K] -> [..., N], each in groups of neurons that lie side by side.

    A weight is [outputs, inputs of a group, 1], a bias [outputs]: with g groups, the first outputs / g outputs read the
    first inputs / g inputs, and so on. `parameters` are weight and bias of each layer in turn. An order before a layer,
    and the one behind the last, says where each value is taken from; an empty one changes nothing. `nodes` are the
    names of the ONNX nodes that the layers stand for.

    ```mlir
    %y = pebble.grouped_layers %x, %w, %b activations [#pebble.activation<relu>]
        orders [dense<[0, 2, 1, 3]> : tensor<4xi64>, dense<> : tensor<0xi64>] nodes ["fc1"] because "2 groups"
        : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
    ```
    """

    name = "pebble.grouped_layers"

    x = operand_def(DENSE_TENSOR)
    parameters = var_operand_def(DENSE_TENSOR)
    activations = prop_def(ArrayAttr[ActivationAttr | UnitAttr])
    orders = prop_def(ArrayAttr[DenseIntOrFPElementsAttr[IntegerType]])
    nodes = prop_def(ArrayAttr[StringAttr])
    reason = prop_def(StringAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), MixedFeatures(inputs=1))
    assembly_format: ClassVar = (
        "$x `,` $parameters `activations` $activations `orders` $orders `nodes` $nodes `because` $reason attr-dict `:` "
        "functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, layers: Sequence[GroupedLayer], last_order: Indices | None, reason: str) -> None:
        orders = [*(layer.order for layer in layers), last_order]
        empty = np.zeros(0, dtype=np.int64)
        outputs = layers[-1].outputs if last_order is None else len(last_order)
        super().__init__(
            operands=[x, [value for layer in layers for value in (layer.weight, layer.bias)]],
            properties={
                "activations": ArrayAttr([layer.activation or UnitAttr() for layer in layers]),
                "orders": ArrayAttr([dense_indices(empty if order is None else order) for order in orders]),
                "nodes": ArrayAttr([StringAttr(layer.name) for layer in layers]),
                "reason": StringAttr(reason),
            },
            result_types=[f32_tensor((*shape_of(x)[:-1], outputs))],
        )

    @property
    def layers(self) -> tuple[GroupedLayer, ...]:
        """The layers in the order in which they run."""
        pairs = zip(self.nodes, self.parameters[::2], self.parameters[1::2], self.activations, strict=True)
        return tuple(
            GroupedLayer(name.data, weight, bias, activation if isinstance(activation, ActivationAttr) else None, order)
            for (name, weight, bias, activation), order in zip(pairs, self._orders[:-1], strict=True)
        )

    @property
    def last_order(self) -> Indices | None:
        """The order behind the last layer."""
        return self._orders[-1]

    @property
    def _orders(self) -> list[Indices | None]:
        return [indices_of(order) if len(order) else None for order in self.orders]

    def verify_(self) -> None:
        count = len(self.nodes)
        if not count or len(self.parameters) != 2 * count or len(self.activations) != count:
            raise VerifyException(
                f"expected two parameters for each of {count or 'some'} nodes, got {len(self.parameters)}"
            )
        if len(self.orders) != count + 1:
            raise VerifyException(f"expected {count + 1} orders, got {len(self.orders)}")
        shape, result = shape_of(self.x), shape_of(self.result)
        if len(shape) < 2 or shape[-1] == DYNAMIC:
            raise VerifyException(f"expected x of rank 2 or more with a known last axis, got {shape_text(shape)}")
        values = shape[-1]
        for layer in self.layers:
            values = _verify_layer(layer, _ordered("layer", layer.order, values))
        values = _ordered("result", self.last_order, values)
        if result != (*shape[:-1], values):
            raise VerifyException(f"expected result {shape_text((*shape[:-1], values))}, got {shape_text(result)}")


def _ordered(word: str, order: Indices | None, values: int) -> int:
    """Check that an order of `values` has all its entries among them, and return how many there are then."""
    if order is None:
        return values
    if order.min() < 0 or order.max() >= values:
        wrong = order.max() if order.max() >= values else order.min()
        raise VerifyException(f"expected values 0 to {values - 1} in the order before {word}, got {wrong}")
    return len(order)


def _verify_layer(layer: GroupedLayer, values: int) -> int:
    """Check that the parameters of a layer fit `values` inputs, and return the number of outputs."""
    weight = shape_of(layer.weight)
    if len(weight) != 3 or weight[2] != 1 or DYNAMIC in weight or 0 in weight:
        raise VerifyException(f"expected a weight of outputs by inputs of a group by 1, got {shape_text(weight)}")
    if values % weight[1] or weight[0] % (values // weight[1]):
        raise VerifyException(f"weight {shape_text(weight)} does not part {values} inputs into groups")
    if shape_of(layer.bias) != weight[:1]:
        raise VerifyException(f"expected bias {weight[0]}, got {shape_text(shape_of(layer.bias))}")
    return weight[0]
