"""Two ops that nobody has heard of go all the way, from ONNX to native code, to ONNX again and into parts.

What a new op needs is here: its class with an axis map, a converter, a reference, an emitter inside tiles and one into
ONNX, each a row of a table.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from llvmlite import ir as llvm
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

import redpebble
from redpebble.dialect.ops.axis_maps import AxisPattern, RowWise
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.semantics.references import REFERENCES
from redpebble.dialect.tensors import DENSE_TENSOR, f32_tensor, shape_of
from redpebble.distributed.graph.ownership import Ownership
from redpebble.distributed.graph.row_graph import RowGraph
from redpebble.distributed.parts.compile_part import compile_blocks, compile_whole
from redpebble.distributed.parts.part_file import read_part
from redpebble.distributed.write_parts import PartsRequest, write_parts
from redpebble.export.operators.table import EMITTERS
from redpebble.export.writing.node_builder import NodeBuilder
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.frontend.operators.conversion import Conversion
from redpebble.frontend.operators.table import CONVERTERS
from redpebble.lowering.llvm import values
from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import call, loop
from redpebble.lowering.llvm.reductions import ColumnForm, Columns, for_columns
from redpebble.lowering.tiles.column_emitters import emit_plain
from redpebble.lowering.tiles.emitters import TILE_EMITTERS
from redpebble.lowering.tiles.thread_shares import Cut
from redpebble.lowering.tiles.tile_code import TileCode
from redpebble.lowering.tiles.tile_memory import features_of
from redpebble.options import Options
from redpebble.passes import runner
from redpebble.pipeline import build
from redpebble.runtime.jit import host_target
from redpebble.runtime.network import Network
from tests.distributed.simple_partitions import contiguous_rows

Floats = NDArray[np.float32]

BATCHES = (1, 5, 8, 70)


@irdl_op_definition
class CubeOp(IRDLOperation):
    """x * x * x, value by value."""

    name = "toy.cube"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("... -> ..."), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[x.type])


@irdl_op_definition
class EnergyOp(IRDLOperation):
    """The sum of squares over the last axis, which stays with size 1."""

    name = "toy.energy"

    x = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), AxisPattern("...k -> ...m"), RowWise())
    assembly_format: ClassVar = "$x attr-dict `:` functional-type(operands, results)"

    def __init__(self, x: SSAValue) -> None:
        super().__init__(operands=[x], result_types=[f32_tensor((*shape_of(x)[:-1], 1))])


Toy = Dialect("toy", [CubeOp, EnergyOp], [])


def convert_cube(conversion: Conversion) -> Sequence[SSAValue]:
    return [conversion.emit(CubeOp(conversion.tensor(0))).result]


def convert_energy(conversion: Conversion) -> Sequence[SSAValue]:
    return [conversion.emit(EnergyOp(conversion.tensor(0))).result]


def cube(_: CubeOp, x: Floats) -> Floats:
    return x * x * x


def energy(_: EnergyOp, x: Floats) -> Floats:
    return np.square(x).sum(axis=-1, keepdims=True)


def cubes(code: Code, width: int) -> llvm.Function:
    """`void (x, y, features)` for rows of `width` columns."""

    @code.kernel(f"toy_cube_w{width}")
    def kernel(x: values.Floats, y: values.Floats, features: values.Number) -> None:
        lanes = code.lanes(x)
        with loop(features * width, lanes.width) as start:
            value = lanes.load(x.at(start))
            lanes.store(lanes.mul(lanes.mul(value, value), value), y.at(start))

    return kernel


def emit_cube(op: CubeOp, tile: TileCode, cut: Cut) -> None:
    function = cubes(tile.code, tile.width)

    def share(first: values.Index, features: values.Index) -> None:
        call(function, tile.feature_at(op.x, first), tile.feature_at(op.result, first), features)

    tile.by_features(cut, features_of(op.x), share)


def energies(code: Code, form: ColumnForm) -> llvm.Function:
    """`void (x, y, features)`; y has one row."""

    @for_columns(code, "toy_energy", form)
    def kernel(columns: Columns, x: values.Floats, y: values.Floats) -> None:
        squares = columns.total(x, lambda total, value, _: columns.lanes.fma(value, value, total))
        columns.put(y, columns.features.constant(0), squares)

    return kernel


def write_cube(op: CubeOp, nodes: NodeBuilder) -> tuple[onnx_ir.Value]:
    x = nodes.operand(op.x)
    return (nodes.node("Mul", nodes.node("Mul", x, x), x),)


def write_energy(op: EnergyOp, nodes: NodeBuilder) -> tuple[onnx_ir.Value]:
    x = nodes.operand(op.x)
    axes = nodes.integers([len(shape_of(op.x)) - 1])
    return (nodes.node("ReduceSumSquare", x, axes),)


@pytest.fixture(name="_toys")
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(CONVERTERS.extended({("toy", "Cube"): convert_cube, ("toy", "Energy"): convert_energy}))
        stack.enter_context(REFERENCES.extended({CubeOp: cube, EnergyOp: energy}))
        stack.enter_context(TILE_EMITTERS.extended({CubeOp: emit_cube, EnergyOp: emit_plain(energies)}))
        stack.enter_context(EMITTERS.extended({CubeOp: write_cube, EnergyOp: write_energy}))
        monkeypatch.setattr(runner, "DIALECTS", (*runner.DIALECTS, Toy))
        yield


RNG = np.random.default_rng(7)
FIRST = (RNG.standard_normal((40, 64)) * (RNG.random((40, 64)) < 0.2)).astype(np.float32)
SECOND = (RNG.standard_normal((64, 24)) * (RNG.random((64, 24)) < 0.3)).astype(np.float32)
SHIFT = RNG.standard_normal(64).astype(np.float32)


def model() -> onnx.ModelProto:
    """((x first + shift^3)^3 second) minus its own energy."""
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="first_layer"),
        helper.make_node("Cube", ["shift"], ["s"], name="folds", domain="toy"),
        helper.make_node("Add", ["a", "s"], ["b"], name="shifts"),
        helper.make_node("Cube", ["b"], ["c"], name="cubes", domain="toy"),
        helper.make_node("MatMul", ["c", "second"], ["d"], name="second_layer"),
        helper.make_node("Energy", ["d"], ["e"], name="sums", domain="toy"),
        helper.make_node("Sub", ["d", "e"], ["y"], name="ends"),
    ]
    weights = {"first": FIRST, "second": SECOND, "shift": SHIFT}
    graph = helper.make_graph(
        nodes,
        "toys",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 24])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("toy", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def feed(batch: int) -> Floats:
    return np.random.default_rng(batch).uniform(-0.3, 0.3, (batch, 40)).astype(np.float32)


def expected(x: Floats) -> Floats:
    hidden = (x.astype(np.float64) @ FIRST + SHIFT.astype(np.float64) ** 3) ** 3 @ SECOND
    return (hidden - np.square(hidden).sum(axis=-1, keepdims=True)).astype(np.float32)


def names_of(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk() if op.name.startswith("toy.")]


@pytest.mark.usefixtures("_toys")
def test_a_toy_op_is_imported_and_folded() -> None:
    module = import_model(model(), foreign="refuse").module
    assert names_of(module) == ["toy.cube", "toy.cube", "toy.energy"]
    x = feed(5)
    np.testing.assert_allclose(interpret(module, {"x": x})[0], expected(x), rtol=1e-3, atol=1e-3)
    simplified = build(model(), Options(), until="simplify")
    assert names_of(simplified) == ["toy.cube", "toy.energy"]


@pytest.mark.usefixtures("_toys")
def test_a_toy_op_runs_in_a_tile_with_the_layers_around_it() -> None:
    module = build(model(), Options(threads=2))
    (tile,) = [op for op in module.walk() if isinstance(op, TileOp)]
    assert [op.name for op in tile.body.block.ops if op.name.startswith("toy.")] == ["toy.cube", "toy.energy"]


@pytest.mark.usefixtures("_toys")
@pytest.mark.parametrize("threads", [1, 2])
def test_native_code_of_a_toy_op_computes_its_reference(threads: int, tmp_path: Path) -> None:
    network = redpebble.compile(model(), threads=threads, cache=tmp_path)
    for batch in BATCHES:
        x = feed(batch)
        np.testing.assert_allclose(network.run(None, {"x": x})[0], expected(x), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("_toys")
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_a_toy_op_is_written_in_standard_operators(target: Literal["portable", "ort"]) -> None:
    result = redpebble.optimize(model(), target=target)
    assert not result.foreign
    session = onnxruntime.InferenceSession(
        onnx_ir.to_proto(result.model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = feed(5)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("_toys")
def test_a_toy_op_is_cut_by_neurons_and_each_part_has_code(tmp_path: Path) -> None:
    module = build(model(), Options())
    graph = RowGraph.of(module)
    partition = contiguous_rows(graph, 2)
    ownership = Ownership.of(graph, partition)
    whole = [op for op in graph.ops if op.name.startswith("toy.")]
    assert all(ownership.executed[op].any() for op in whole)
    plan = write_parts(module, PartsRequest("rows", 2, partition), tmp_path / "parts")
    for entry in plan.parts:
        part = read_part(tmp_path / "parts" / entry.file)
        assert compile_blocks(part, host_target(), 16).program.steps


@pytest.mark.slow
@pytest.mark.usefixtures("_toys")
def test_a_toy_op_is_cut_by_samples(tmp_path: Path) -> None:
    plan = write_parts(build(model(), Options()), PartsRequest("batch", 2), tmp_path / "parts")
    part = read_part(tmp_path / "parts" / plan.parts[0].file)
    artefact = compile_whole(part, host_target())
    x = feed(8)
    outputs = Network(artefact.program, artefact.image, 1).run(None, {"x": x})
    np.testing.assert_allclose(outputs[0], expected(x), rtol=1e-3, atol=1e-3)


def test_nothing_of_the_toys_is_left() -> None:
    assert not any(
        op_class.name.startswith("toy.") for table in (REFERENCES, TILE_EMITTERS, EMITTERS) for op_class in table
    )
    with pytest.raises(UnsupportedModelError, match=r"node 'folds'.* is not covered"):
        import_model(model(), foreign="refuse")
