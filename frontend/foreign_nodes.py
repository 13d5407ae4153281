"""Nodes that were left as they are, run by onnxruntime: what samples become behind them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir
from numpy.typing import NDArray
from xdsl.utils.exceptions import InterpretationError

from ..dialect.ops.foreign import ForeignOp
from .errors import first_line
from .kept_nodes import values_read

if TYPE_CHECKING:
    import onnxruntime

Array = NDArray[Any]


class ForeignNodes:
    """The nodes of the model that a module was imported from."""

    def __init__(self, model: onnx_ir.Model) -> None:
        self._model = model
        self._nodes = list(model.graph)
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}

    def __call__(self, op: ForeignOp, operands: Sequence[Array]) -> Sequence[Array]:
        """Return the results of a node for arrays as operands.

        Raises:
            InterpretationError: onnxruntime does not run it.
        """
        feeds = {name.data: array for name, array in zip(op.names, operands, strict=True)}
        position = op.position.value.data
        try:
            if position not in self._sessions:
                self._sessions[position] = self._session(self._nodes[position], feeds)
            return list(self._sessions[position].run(None, feeds))
        except Exception as error:  # onnxruntime raises what it likes
            raise InterpretationError(f"operator {op.operator.data} was not run: {first_line(error)}") from error

    def _session(self, node: onnx_ir.Node, feeds: dict[str, Array]) -> "onnxruntime.InferenceSession":
        # loaded here: few builds quantize
        import onnxruntime

        constants = [
            onnx.numpy_helper.from_array(value.const_value.numpy(), value.name or "")
            for value in values_read(node)
            if value.name not in feeds and value.const_value is not None
        ]
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for name, array in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=value.name or "") for value in node.outputs]
        graph = onnx.helper.make_graph([onnx_ir.to_proto(node)], "node", inputs, outputs, constants)
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid(*one) for one in self._model.opset_imports.items()],
            functions=[onnx_ir.to_proto(function) for function in self._model.functions.values()],
            ir_version=self._model.ir_version,
        )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it refuses is raised, and said once
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
