"""Whole models as one node: several steps, temporaries, several sizes; redpebble's own runtime is the judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from xdsl.ir import Block, SSAValue

from redpebble.dialect.ops.elementwise import AddOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.driver.compiler import native_code
from redpebble.lowering.calls.network_table import IN_ONNXRUNTIME, IN_PROCESS, network_table, symbols_of
from redpebble.lowering.calls.table import Header
from redpebble.lowering.driver import lower
from redpebble.models.zoo import build
from redpebble.ort.custom_ops.library import build_library, in_process_library, set_compiler
from redpebble.runtime.call import new_call
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.loaded_network import load_network
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact
from redpebble.verification.feeds import inputs_for
from tests.ort.deployed_models import DIGEST, DOMAIN, OPERATOR, Attributes, Constants, session
from tests.support.lowering_modules import function

SPECS = (
    "resmlp(depth=2, width=32)",
    "ffnn(depth=3, width=33, density=0.02, skip=True)",
    "masked_mlp(width=48)",
)

MIXED = """
<ir_version: 10, opset_import: ["" : 21]>
mixed (float[a, b, 8] x, float[a, b, 8] z) => (float[a, 8, b] t, float[n, 8] s, float[a, b, 16] c)
{
    u = Relu (x)
    v = Softmax <axis: int = -1> (z)
    w = Add (u, v)
    t = Transpose <perm: ints = [0, 2, 1]> (w)
    shape = Constant <value_ints: ints = [-1, 8]> ()
    flat = Reshape (w, shape)
    s = Sigmoid (flat)
    c = Concat <axis: int = -1> (w, u)
}
"""

REGROUPED = """
<ir_version: 10, opset_import: ["" : 21]>
regrouped (float[a, 6] x) => (float[n, 4] y) {
    shape = Constant <value_ints: ints = [-1, 4]> ()
    flat = Reshape (x, shape)
    y = Relu (flat)
}
"""

FLATTENED = """
<ir_version: 10, opset_import: ["" : 21]>
flattened (float[c, a, b] x) => (float[c, n] y) {
    shape = Constant <value_ints: ints = [0, -1]> ()
    flat = Reshape (x, shape)
    y = Relu (flat)
}
"""


def as_node(artefact: Artefact, before: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    """A model of one node that computes all outputs of a network; what is computed `before` it is no input."""
    made = {name for node in before or [] for name in node.output}
    names = [tensor.name for tensor in artefact.program.inputs]
    results = [tensor.name for tensor in artefact.program.outputs]
    attributes: dict[str, Any] = {"network": "", "digest": DIGEST, "activations": len(names), "format": 1}
    node = helper.make_node(OPERATOR, names, results, domain=DOMAIN, **attributes)
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, None) for name in names if name not in made]
    inputs += [value(name, TensorProto.INT64, None) for one in before or [] for name in one.input]
    outputs = [value(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([*(before or []), node], "graph", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def native(artefact: Artefact, threads: int = 1) -> onnxruntime.InferenceSession:
    def compiler(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return artefact

    set_compiler(compiler)
    return session(as_node(artefact), in_process_library(), threads)


def compiled(text: str) -> Artefact:
    return native_code(onnx.parser.parse_model(text), cache=False)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_a_model_of_the_zoo_as_one_node_gives_the_bits_of_our_runtime(spec: str) -> None:
    model = build(spec)
    artefact = native_code(model)
    run, judge = native(artefact), Network(artefact.program, artefact.image)
    for batch in (0, 1, 7, 17, 128):
        feeds = inputs_for(model, batch, np.random.default_rng(batch))
        for ours, right in zip(run.run(None, feeds), judge.run(None, feeds), strict=True):
            assert np.array_equal(ours, right)


def mixed_feeds(a: int, b: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(a * 100 + b)
    return {name: rng.standard_normal((a, b, 8)).astype(np.float32) for name in "xz"}


def test_steps_and_temporaries_of_several_sizes_have_their_places() -> None:
    artefact = compiled(MIXED)
    assert artefact.program.temporaries
    run, judge = native(artefact), Network(artefact.program, artefact.image)
    plain = session(onnx.parser.parse_model(MIXED))
    for a, b in ((0, 3), (3, 0), (1, 1), (5, 3), (40, 70), (3, 200)):
        feeds = mixed_feeds(a, b)
        for ours, right, theirs in zip(*(one.run(None, feeds) for one in (run, judge, plain)), strict=True):
            assert np.array_equal(ours, right)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_temporaries_that_do_not_meet_share_memory() -> None:
    program = compiled(MIXED).program
    words = network_table(program, symbols_of(program, ""), IN_ONNXRUNTIME).words
    assert words[Header.temporaries] == len(program.temporaries)
    areas = words[Header.areas]
    assert isinstance(areas, int)
    assert areas <= len(program.temporaries)


def sum_of_two() -> Artefact:
    """x + z for x [d0, 8] and z [d0, d1, 8]; a model in ONNX would have to say that d0 is d1."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        op = AddOp(*arguments)
        block.add_op(op)
        return op.results

    program = lower(function([f32_tensor((DYNAMIC, 8)), f32_tensor((DYNAMIC, DYNAMIC, 8))], body), host_target())
    return Artefact(program, emit_object(program.llvm_ir, program.target))


def test_sizes_that_differ_are_an_error_of_the_call() -> None:
    run = native(sum_of_two())
    x, z = (np.ones(shape, dtype=np.float32) for shape in ((3, 8), (3, 3, 8)))
    with pytest.raises(Exception, match=r"expected equal sizes of the inputs, got 3 and 2$"):
        run.run(None, {"x0": x, "x1": z[:, :2]})
    assert np.array_equal(run.run(None, {"x0": x, "x1": z})[0], x + z)


def test_a_size_that_is_no_whole_number_is_an_error_of_the_call() -> None:
    run = native(compiled(REGROUPED))
    with pytest.raises(Exception, match=r"size 9 is no multiple of 2$"):
        run.run(None, {"x": np.ones((3, 6), dtype=np.float32)})
    assert run.run(None, {"x": np.ones((4, 6), dtype=np.float32)})[0].shape == (6, 4)


def test_sizes_beyond_64_bits_are_an_error_of_the_call() -> None:
    artefact = compiled(FLATTENED)

    def compiler(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return artefact

    set_compiler(compiler)
    proto = as_node(artefact, [helper.make_node("ConstantOfShape", ["shape"], ["x"])])
    run = session(proto, in_process_library())
    assert run.run(None, {"shape": np.array([2, 3, 5])})[0].shape == (2, 15)
    with pytest.raises(Exception, match=r"the sizes of the inputs are too large$"):
        run.run(None, {"shape": np.array([0, 1 << 40, 1 << 40])})


def test_sizes_that_do_not_fit_are_refused_in_this_process_as_well() -> None:
    network = load_network(*compiled(REGROUPED), IN_PROCESS)
    with pytest.raises(ValueError, match=r"^size 3/2\*a: expected a whole number, got 9/2$"):
        new_call(network, {"a": 3}, None)
    network = load_network(*compiled(FLATTENED), IN_PROCESS)
    with pytest.raises(ValueError, match=r"^the sizes of the inputs are too large$"):
        new_call(network, {"c": 0, "a": 1 << 40, "b": 1 << 40}, None)


@pytest.mark.slow
def test_a_library_holds_many_networks(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    artefacts = [compiled(MIXED), sum_of_two(), compiled(REGROUPED)]
    rows = [(str(index) * 64, {"generic": artefact}) for index, artefact in enumerate(artefacts)]
    path.write_bytes(build_library({"SparseNetwork_1": rows[:1], OPERATOR: rows[1:]}))
    proto = as_node(artefacts[1])
    next(one for one in proto.graph.node[0].attribute if one.name == "digest").s = b"1" * 64
    x, z = (np.ones(shape, dtype=np.float32) for shape in ((3, 8), (3, 3, 8)))
    assert np.array_equal(session(proto, path).run(None, {"x0": x, "x1": z})[0], x + z)
