"""Small originals, modules written as text, and onnxruntime to say what an exported model computes."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from redpebble.dialect.pebble import Pebble
from redpebble.export.export_model import export_model

Floats = NDArray[np.float32]


def module_of(text: str) -> ModuleOp:
    """Return the verified module that `text` describes."""
    context = Context()
    for dialect in (Builtin, Func, Pebble):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def original_of(text: str, weights: Mapping[str, NDArray[np.generic]] | None = None) -> ir.Model:
    """Return the model that `text` describes in ONNX's textual form, with initializers of these `weights` added."""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return ir.from_proto(proto)


def exported(text: str, original: ir.Model) -> onnx.ModelProto:
    """Return the export of the module `text`, which ONNX's checker has accepted."""
    return checked(export_model(module_of(text), original))


def checked(model: ir.Model) -> onnx.ModelProto:
    """Return the model as protobuf, after ONNX's checker and shape inference have accepted it."""
    proto = ir.to_proto(model)
    standard = not any(entry.domain for entry in proto.opset_import)
    onnx.checker.check_model(proto, full_check=standard)  # pyright: ignore[reportUnknownMemberType] - PathLike of what
    return proto


def answers(proto: onnx.ModelProto, feeds: Mapping[str, NDArray[np.generic]]) -> list[Floats]:
    """Return what onnxruntime computes."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: Sequence[NDArray[np.float32]] = session.run(None, dict(feeds))
    return list(results)


def operators(proto: onnx.ModelProto) -> list[str]:
    """Return the operators of the main graph in order."""
    return [node.op_type for node in proto.graph.node]


def one_op(line: str, argument: str, result: str) -> str:
    """Return a module whose function is `line`, which makes %y of %x."""
    return f"""
    func.func @main(%x : {argument} {{pebble.name = "x"}}) -> ({result} {{pebble.name = "y"}}) {{
      {line}
      func.return %y : {result}
    }}
    """


def one_node(opset: int, argument: str = "float[N,4]", result: str = "float[N,4]", version: int = 8) -> str:
    """Return the text of an original of one Identity, from x to y."""
    return f"""
    <ir_version: {version}, opset_import: ["" : {opset}]>
    original ({argument} x) => ({result} y) {{ y = Identity(x) }}
    """
