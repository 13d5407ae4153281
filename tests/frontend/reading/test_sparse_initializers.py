"""Sparse matrices of a file become sparse constants; the wide ones here would not fit into any memory as dense ones."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.driver.model_digest import model_digest
from redpebble.frontend.errors import InvalidModelError
from redpebble.frontend.import_model import import_model
from redpebble.pipeline import build as build_module
from tests.frontend.import_oracle import assert_agrees, imported, model, normal, session

WIDE = 1 << 20
"""A matrix of this width has 4 TB of zeros."""


def entries(width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    positions = np.sort(np.random.default_rng(0).choice(width * width // 8, 24, replace=False) * 8 + 5)
    return positions.astype(np.int64), normal(24)


def sparse_initializer(name: str, width: int) -> onnx.SparseTensorProto:
    positions, values = entries(width)
    tensors = numpy_helper.from_array(values, name), numpy_helper.from_array(positions, f"{name}_indices")
    return helper.make_sparse_tensor(*tensors, [width, width])


def sparse_model(nodes: str, width: int) -> onnx.ModelProto:
    proto = model(f"(float[n,{width}] x) => (float[n,{width}] y)", nodes)
    proto.graph.sparse_initializer.append(sparse_initializer("w", width))
    return proto


def sparse_constant(module: ModuleOp) -> SparseConstantOp:
    (constant,) = (op for op in module.walk() if isinstance(op, SparseConstantOp))
    return constant


USES = {
    "MatMul": "y = MatMul(x, w)",
    "Gemm": "y = Gemm(x, w)",
    "Gemm, transposed": "y = Gemm<transB = 1>(x, w)",
    "Gemm, scaled": "y = Gemm<alpha = 0.5, transB = 1>(x, w)",
    "transposed before": "t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t)",
    "identity": "t = Identity(w) y = MatMul(x, t)",
    "reshaped": "c = Constant<value_ints = [0, -1]>() t = Reshape(w, c) y = MatMul(x, t)",
    "used twice": "h = Gemm(x, w) y = Gemm(h, w)",
}


@pytest.mark.parametrize("nodes", USES.values(), ids=USES)
def test_a_sparse_matrix_is_a_sparse_constant_whatever_reads_it(nodes: str) -> None:
    sparse_constant(imported(sparse_model(nodes, 16)))
    assert_agrees(sparse_model(nodes, 16))
    module = imported(sparse_model(nodes, WIDE))
    assert not any(isinstance(op, ConstantOp) for op in module.walk())
    assert sparse_constant(module).weight.shape == (WIDE, WIDE)


def test_a_sparse_matrix_on_the_left_is_a_sparse_constant() -> None:
    proto = model("(float[64,n] x) => (float[64,n] y)", "y = MatMul(w, x)")
    proto.graph.sparse_initializer.append(sparse_initializer("w", 64))
    sparse_constant(imported(proto))
    assert_agrees(proto)


@pytest.mark.parametrize("nodes", ["y = Add(x, w)", "v = Softmax(w) y = MatMul(x, v)"])
def test_a_sparse_matrix_is_any_other_constant_where_it_is_no_weight(nodes: str) -> None:
    proto = model("(float[16,16] x) => (float[16,16] y)", nodes)
    proto.graph.sparse_initializer.append(sparse_initializer("w", 16))
    assert_agrees(proto)


def test_stored_zeros_are_no_connections_and_entries_come_in_any_order() -> None:
    proto = model("(float[n,4] x) => (float[n,3] y)", "y = MatMul(x, w)")
    values = np.array([1.0, 0.0, 2.0, np.nan, -0.0], np.float32)
    positions = np.array([7, 2, 0, 11, 5])
    tensors = numpy_helper.from_array(values, "w"), numpy_helper.from_array(positions, "w_indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(*tensors, [4, 3]))
    weight = sparse_constant(imported(proto)).weight
    assert [*zip(weight.rows.tolist(), weight.columns.tolist(), strict=True)] == [(0, 0), (2, 1), (3, 2)]


def compact_model(width: int, *, transposed: bool) -> onnx.ModelProto:
    """The form that our export gives a sparse weight."""
    positions, values = entries(width)
    return model(
        f"(float[n,{width}] x) => (float[n,{width}] y)",
        "zeros = ConstantOfShape(size) wide = Cast<to = 7>(gaps) places = CumSum(wide, axis) "
        "flat = ScatterElements<axis = 0>(zeros, places, values) w = Reshape(flat, shape) "
        f"y = Gemm<transB = {int(transposed)}>(x, w)",
        weights={
            "size": np.array([width * width]),
            "gaps": np.diff(positions, prepend=0).astype(np.uint64),
            "values": values,
            "axis": np.array(0),
            "shape": np.array([width, width]),
        },
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_values_and_gaps_become_a_sparse_constant(transposed: bool) -> None:
    assert_agrees(compact_model(16, transposed=transposed))
    weight = sparse_constant(imported(compact_model(WIDE, transposed=transposed))).weight
    assert weight.shape == (WIDE, WIDE)
    positions = weight.columns * WIDE + weight.rows if transposed else weight.rows * WIDE + weight.columns
    np.testing.assert_array_equal(np.sort(positions), entries(WIDE)[0])


def test_no_pass_makes_a_sparse_weight_dense() -> None:
    width = 1 << 16  # 17 GB, and narrow enough for the passes to be quick
    proto = sparse_model("h = Gemm(x, w, b) r = Relu(h) p = Gemm(r, w) y = Mul(p, s)", width)
    for name, array in {"b": normal(width), "s": np.array(0.5, np.float32)}.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    assert sum(isinstance(op, SparseConstantOp) for op in build_module(proto).walk()) == 2


@st.composite
def chains(draw: st.DrawFn) -> onnx.ModelProto:
    """Entries scattered over zeros, then put elsewhere by some operators; the result is the weight."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    axis = draw(st.sampled_from([0, 1, -1]))
    height, width = draw(st.integers(1, rows)), draw(st.integers(1, columns))
    size = (rows, columns)[axis]
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    # places along the axis, each at most once a line: ONNX leaves open which of two updates counts
    lines = [rng.permutation(size)[: (height, width)[axis]] for _ in range((width, height)[axis])]
    indices = np.stack(lines, axis=1 if axis == 0 else 0) - (size if draw(st.booleans()) else 0)
    weights = {"size": np.array([rows, columns]), "indices": indices, "updates": normal(*indices.shape)}
    nodes = [f"zeros = ConstantOfShape(size) w0 = ScatterElements<axis = {axis}>(zeros, indices, updates)"]
    for step in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["Transpose", "Tile", "Gather", "Reshape", "Identity"])):
            case "Transpose":
                nodes.append(f"w{step + 1} = Transpose(w{step})")
                rows, columns = columns, rows
            case "Tile":
                repeats = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
                weights[f"c{step}"] = np.array(repeats)
                nodes.append(f"w{step + 1} = Tile(w{step}, c{step})")
                rows, columns = rows * repeats[0], columns * repeats[1]
            case "Gather":
                chosen = draw(st.lists(st.integers(-rows, rows - 1), min_size=1, max_size=5))
                weights[f"c{step}"] = np.array(chosen, np.int16)
                nodes.append(f"d{step} = Cast<to = 7>(c{step}) w{step + 1} = Gather<axis = 0>(w{step}, d{step})")
                rows = len(chosen)
            case "Reshape":
                weights[f"c{step}"] = np.array([-1, rows] if draw(st.booleans()) else [columns, -1])
                nodes.append(f"w{step + 1} = Reshape(w{step}, c{step})")
                rows, columns = columns, rows
            case _:
                nodes.append(f"w{step + 1} = Identity(w{step})")
    last = len(nodes) - 1
    return model(
        f"(float[n,{rows}] x) => (float[n,{columns}] y)",
        " ".join([*nodes, f"y = MatMul(x, w{last})"]),
        weights=weights,
    )


@settings(max_examples=25, deadline=None)
@given(chains())
def test_what_is_made_of_entries_is_what_onnxruntime_makes_of_them(proto: onnx.ModelProto) -> None:
    module = imported(proto)
    sparse_constant(module)
    x = normal(3, proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value)
    (ours,), (theirs,) = interpret(module, {"x": x}), session(proto).run(None, {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def stored_apart(folder: Path) -> Path:
    """A model whose sparse weight lies in two files beside it."""
    proto = sparse_model("y = MatMul(x, w)", 64)
    sparse = proto.graph.sparse_initializer[0]
    for tensor, file in ((sparse.values, "values.data"), (sparse.indices, "indices.data")):
        (folder / file).write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=file)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_entries_of_a_sparse_matrix_may_lie_in_files(tmp_path: Path) -> None:
    weight = sparse_constant(import_model(stored_apart(tmp_path), foreign="refuse").module).weight
    expected = sparse_constant(imported(sparse_model("y = MatMul(x, w)", 64))).weight
    for ours, theirs in zip(weight[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("file", ["values.data", "indices.data"])
def test_the_digest_of_a_model_covers_the_files_of_a_sparse_matrix(tmp_path: Path, file: str) -> None:
    path = stored_apart(tmp_path)
    before = model_digest(path)
    assert before is not None
    data = bytearray((tmp_path / file).read_bytes())
    data[0] ^= 1
    (tmp_path / file).write_bytes(data)
    assert model_digest(path) not in (before, None)


def test_a_missing_file_of_a_sparse_matrix_is_named(tmp_path: Path) -> None:
    path = stored_apart(tmp_path)
    (tmp_path / "indices.data").unlink()
    with pytest.raises(InvalidModelError, match=r"^tensor w: file 'indices.data' is missing$"):
        import_model(path, foreign="refuse")


def test_a_gap_that_leaves_the_matrix_is_refused() -> None:
    proto = compact_model(16, transposed=True)
    gaps = next(tensor for tensor in proto.graph.initializer if tensor.name == "gaps")
    gaps.CopyFrom(numpy_helper.from_array(np.full(24, 250, np.uint64), "gaps"))
    with pytest.raises(InvalidModelError, match=r"^sparse tensor w: an index outside of shape \[256\]$"):
        imported(proto)
