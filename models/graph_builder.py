"""Writing an ONNX graph node by node, with the names and versions every model of the zoo shares.

onnx_ir is loaded when a model is built: the list of recipes does without, and it takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx_ir as ir

IR_VERSION: Final = 10
"""Version of the ONNX IR, read by onnxruntime since 1.18; 1.31 refuses what the onnx package writes by default."""

OPSET: Final = 21

Dims = Sequence[int | str]


class Output(NamedTuple):
    """A value to return, and the dimensions that it is declared with."""

    value: ir.Value
    dims: Dims


class GraphBuilder:
    """Collects the inputs, weights, nodes and outputs of one model.

    ```python
    builder = GraphBuilder()
    x = builder.input("x", ("batch", 64))
    y = builder.linear(x, weight, bias, "layers.0")
    model = builder.model("ffnn", {"y": Output(y, ("batch", 10))})
    ```
    """

    def __init__(self, opset: int = OPSET) -> None:
        import onnx_ir as ir

        self._opset = opset
        self._tape = ir.tape.Tape()
        self._inputs: list[ir.Value] = []

    def input(self, name: str, dims: Dims) -> ir.Value:
        """A float32 input of the graph; a string is a symbolic dimension."""
        import onnx_ir as ir

        value = ir.val(name, dtype=ir.DataType.FLOAT, shape=ir.Shape(dims))
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: NDArray[Any]) -> ir.Value:
        """An initializer holding `array` as it is, shape and dtype included."""
        import onnx_ir as ir

        return self._tape.initializer(ir.tensor(np.ascontiguousarray(array), name=name))

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None], name: str, attributes: Mapping[str, Any] | None = None
    ) -> ir.Value:
        """The first output of a new node called `name`; the value is called `name` + "_output_0", as torch does."""
        value = self._tape.op(op_type, inputs, attributes, name=name)
        value.name = f"{name}_output_0"
        return value

    def linear(self, x: ir.Value, weight: NDArray[np.float32], bias: NDArray[np.float32], name: str) -> ir.Value:
        """A torch `nn.Linear` on 2-D values: Gemm with `weight` [outputs, inputs] transposed, and `bias` [outputs]."""
        operands = [x, self.constant(f"{name}.weight", weight), self.constant(f"{name}.bias", bias)]
        return self.op("Gemm", operands, f"/{name}/Gemm", {"transB": 1})

    def projection(self, x: ir.Value, weight: NDArray[np.float32], bias: NDArray[np.float32], name: str) -> ir.Value:
        """A torch `nn.Linear` on values of any rank: MatMul with `weight` [outputs, inputs] transposed, then Add."""
        product = self.op("MatMul", [x, self.constant(f"{name}.weight", weight.T)], f"/{name}/MatMul")
        return self.op("Add", [product, self.constant(f"{name}.bias", bias)], f"/{name}/Add")

    def layer_norm(self, x: ir.Value, width: int, name: str) -> ir.Value:
        """LayerNormalization over the last axis of `width` values, with scale 1 and bias 0."""
        scale = self.constant(f"{name}.weight", np.ones(width, dtype=np.float32))
        bias = self.constant(f"{name}.bias", np.zeros(width, dtype=np.float32))
        return self.op("LayerNormalization", [x, scale, bias], f"/{name}/LayerNormalization")

    def model(self, name: str, outputs: Mapping[str, Output]) -> ir.Model:
        """The finished model; each output is renamed to its key and gets the float32 type of the given dimensions."""
        import onnx_ir as ir

        for output_name, (value, dims) in outputs.items():
            value.name = output_name
            value.type = ir.TensorType(ir.DataType.FLOAT)
            value.shape = ir.Shape(dims)
        graph = ir.Graph(
            self._inputs,
            [value for value, _ in outputs.values()],
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports={"": self._opset},
            name=name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="redpebble zoo")
