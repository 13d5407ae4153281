import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from redpebble.driver.compiler import native_code
from redpebble.export.sparse_networks.node_content import network_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.ort.custom_ops.library import build_library
from redpebble.verification.oracle import Oracle
from tests.support.sparse_network_models import attributes_of, constants_of, network_nodes, with_networks

WIDTH = 16

TOKENS = f"""
<ir_version: 10, opset_import: ["" : 18]>
tokens (float[n, t, {WIDTH}] x) => (float[a, b] cut, float[c, d] narrow, float[e, f] joined,
                            float[g, h] left, float[i, j] right, float[k, l] wide, float[m, o] repeated)
<int64[2] rows = {{-1, {WIDTH}}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[2] eight = {{-1, 8}},
 int64[2] twice = {{2, 1}}, int64[4] pads = {{1, 0, 0, 1}}>
{{
    flat = Reshape (x, rows)
    product = MatMul (flat, weight)
    y = Relu (product)
    cut = Slice (y, zero, one, zero)
    narrow = Reshape (y, eight)
    joined = Concat <axis: int = 0> (y, y)
    left, right = Split <axis: int = 1, num_outputs: int = 2> (y)
    wide = Pad (y, pads)
    repeated = Tile (y, twice)
}}
"""
"""A network whose rows are the product of two sizes, in front of operators that compute with its sizes."""

RUN = """
import sys
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
numpy.savez(sys.argv[4], *session.run(None, {"x": numpy.load(sys.argv[3])}))
"""


def tokens_model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    weight[rng.random(weight.shape) < 0.9] = 0
    proto = onnx.parser.parse_model(TOKENS)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return proto


def by_library(model: onnx.ModelProto, x: NDArray[np.float32], folder: Path) -> list[NDArray[np.float32]]:
    """Run a model with the code that its own library holds, in a process without redpebble."""
    paths = [folder / name for name in ("model.onnx", "model.so", "x.npy", "y.npz")]
    (node,) = network_nodes(model)
    handed_over = node.op_type, attributes_of(node), constants_of(model, node)
    made = native_code(network_model(*handed_over), target=CpuTarget.generic(), cache=False)
    rows = [(str(handed_over[1]["digest"]), {"generic": made})]
    paths[0].write_bytes(model.SerializeToString())
    paths[1].write_bytes(build_library({node.op_type: rows}))
    np.save(paths[2], x)
    done = subprocess.run([sys.executable, "-c", RUN, *map(str, paths)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: Mapping[str, NDArray[np.float32]] = np.load(paths[3])
    return [found[name] for name in found]


def test_operators_behind_sizes_that_cannot_be_told_run_in_any_host(tmp_path: Path) -> None:
    proto = tokens_model()
    x = np.random.default_rng(1).standard_normal((2, 3, WIDTH)).astype(np.float32)
    found = by_library(ir.to_proto(with_networks(proto)), x, tmp_path)
    for y, expected in zip(found, Oracle(ir.from_proto(proto)).run({"x": x}), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
