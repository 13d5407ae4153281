import ctypes
import gc
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from redpebble.ort.custom_ops.library import build_library, level_target
from redpebble.ort.native.tables import LEVELS
from tests.ort.deployed_models import (
    DIGEST,
    HIDDEN,
    OPERATOR,
    OUTPUTS,
    ahead_of_time,
    artefact,
    assert_right,
    feeds,
    has_level,
    limit_level,
    model,
    session,
)

BATCHES = (0, 1, 7, 17, 128)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "model.so"
    path.write_bytes(ahead_of_time())
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_built_ahead_gives_what_the_function_gives(library: Path, threads: int) -> None:
    native = session(model(), library, threads)
    for batch in BATCHES:
        inputs = feeds(batch)
        assert_right(native.run(None, inputs), inputs)


@pytest.mark.parametrize("level", ["generic", "avx2", "avx512"])
def test_every_level_that_this_cpu_has_gives_the_right_result(library: Path, level: str) -> None:
    if not has_level(level):
        pytest.skip(f"this CPU has no {level}")
    native_all = session(model(), library)
    limit_level(library, level)
    native = session(model(), library)
    for batch in BATCHES:
        inputs = feeds(batch)
        assert_right(native.run(None, inputs), inputs)
        assert_right(native_all.run(None, inputs), inputs)


def test_a_cpu_without_the_features_takes_the_generic_code(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    # what would crash on a CPU without AVX-512 is replaced by what gives something else
    variants = {"generic": artefact("generic"), "avx512": artefact("avx512", 1)}
    path.write_bytes(build_library({OPERATOR: [(DIGEST, variants)]}))
    inputs = feeds(7)
    for level in ("generic", "avx2"):
        limit_level(path, level)
        assert_right(session(model(), path).run(None, inputs), inputs)


def test_each_limit_leaves_the_last_level_that_this_cpu_has(tmp_path: Path) -> None:
    path, inputs = tmp_path / "model.so", feeds(7)
    # what tells levels apart is only which weights they were made with
    variants = {level: artefact("generic", seed) for seed, level in enumerate(LEVELS["x86_64"])}
    path.write_bytes(build_library({OPERATOR: [(DIGEST, variants)]}))
    last = 0
    for index, level in enumerate(LEVELS["x86_64"]):
        last = index if has_level(level) else last
        limit_level(path, level)
        assert_right(session(model(), path).run(None, inputs), inputs, last)


def test_a_cpu_for_which_there_is_no_code_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(ahead_of_time(("avx512",)))
    limit_level(path, "avx2")
    with pytest.raises(Exception, match=r"SparseNetwork_0: the library has no code for this CPU$"):
        session(model(), path)


def test_the_library_agrees_with_llvm_about_this_cpu(tmp_path: Path) -> None:
    for level in LEVELS["x86_64"]:
        path = tmp_path / f"{level}.so"
        path.write_bytes(build_library({OPERATOR: [(DIGEST, {level: artefact("generic")})]}))
        if has_level(level):
            session(model(), path)
            continue
        with pytest.raises(Exception, match="the library has no code for this CPU"):
            session(model(), path)


def test_variants_of_an_operator_are_told_apart_by_their_digest(tmp_path: Path) -> None:
    path, other = tmp_path / "model.so", "f" * 64
    rows = [(DIGEST, {"generic": artefact("generic")}), (other, {"generic": artefact("generic", 1)})]
    path.write_bytes(build_library({"SparseNetwork_9": [], OPERATOR: rows}))
    inputs = feeds(7)
    assert_right(session(model(), path).run(None, inputs), inputs)
    second = session(model({"digest": other}, seed=1), path)
    assert_right(second.run(None, inputs), inputs, seed=1)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"digest": "0" * 64}, f"the library has no code for the network with digest {'0' * 64}; model and library"),
        ({"digest": "0" * 63}, "SparseNetwork_0: expected a digest of 64 digits, got 63"),
        ({"format": 7}, "SparseNetwork_0: expected format 1, got 7"),
        ({"activations": 1}, "SparseNetwork_0: expected 2 activations, got 1"),
    ],
)
def test_a_node_of_another_model_is_refused(library: Path, attributes: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session(model(attributes), library)


def test_a_digest_that_is_too_long_is_refused(library: Path) -> None:
    with pytest.raises(Exception, match="Result buffer is not large enough"):
        session(model({"digest": "0" * 6500}), library)


def test_a_node_with_too_few_outputs_is_refused(library: Path) -> None:
    proto = model()
    del proto.graph.node[0].output[1]
    del proto.graph.output[1]
    del proto.functions[:]
    with pytest.raises(Exception, match="SparseNetwork_0: expected 2 outputs, got 1"):
        session(proto, library)


def test_shapes_are_inferred_as_far_as_they_are_known(library: Path) -> None:
    shapes = [output.shape for output in session(model(), library).get_outputs()]
    assert shapes == [["n", HIDDEN], ["n", OUTPUTS]]


def test_sizes_that_the_model_fixes_are_inferred(library: Path) -> None:
    proto = model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    assert [output.shape for output in session(proto, library).get_outputs()] == [[5, HIDDEN], [5, OUTPUTS]]


def test_an_input_of_unknown_rank_leaves_its_sizes_open(library: Path) -> None:
    proto = model()
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    shapes = [output.shape for output in session(proto, library).get_outputs()]
    assert [shape[1] for shape in shapes] == [HIDDEN, OUTPUTS]


@pytest.mark.slow
def test_libraries_come_and_go(tmp_path: Path) -> None:
    inputs = feeds(3)
    for index in range(5):
        path = tmp_path / f"model{index % 2}.so"
        path.write_bytes(ahead_of_time())
        native = session(model(), path)
        assert_right(native.run(None, inputs), inputs)
        del native
        gc.collect()
        path.unlink()


def test_two_sessions_use_two_libraries(tmp_path: Path) -> None:
    one, two = tmp_path / "one.so", tmp_path / "two.so"
    one.write_bytes(ahead_of_time())
    two.write_bytes(build_library({OPERATOR: [(DIGEST, {"generic": artefact("generic", 1)})]}))
    first, second = session(model(), one), session(model(seed=1), two)
    inputs = feeds(9)
    assert_right(first.run(None, inputs), inputs)
    assert_right(second.run(None, inputs), inputs, seed=1)


def test_a_library_cut_off_is_refused(tmp_path: Path) -> None:
    path, image = tmp_path / "model.so", ahead_of_time()
    options = onnxruntime.SessionOptions()
    for size in (0, 63, 200):
        path.write_bytes(image[:size])
        with pytest.raises(Exception, match="Failed to load library"):
            options.register_custom_ops_library(str(path))


def test_a_process_without_redpebble_runs_the_library(library: Path, tmp_path: Path) -> None:
    inputs = feeds(7)
    np.savez(tmp_path / "feeds.npz", x=inputs["x"], r=inputs["r"])
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    code = """
import sys, numpy, onnxruntime
folder = sys.argv[1]
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(folder + "/model.so")
session = onnxruntime.InferenceSession(folder + "/model.onnx", options)
h, y = session.run(None, dict(numpy.load(folder + "/feeds.npz")))
numpy.savez(folder + "/results.npz", h=h, y=y)
assert not [name for name in sys.modules if name.split(".")[0] in {"redpebble", "llvmlite"}]
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=120)
    results = np.load(tmp_path / "results.npz")
    assert_right([results["h"], results["y"]], inputs)


def shared_runtime() -> Path | None:
    """onnxruntime's own shared library; some wheels carry it beside the Python module."""
    return next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)


def test_a_host_in_c_runs_the_library(library: Path, tmp_path: Path) -> None:
    compiler, runtime = shutil.which("cc"), shared_runtime()
    if compiler is None or runtime is None:
        pytest.skip("there is no C compiler, or no shared library of onnxruntime")
    program = tmp_path / "c_host"
    source = Path(__file__).parent / "c_host.c"
    subprocess.run([compiler, "-std=gnu11", "-o", program, source, "-ldl"], check=True)
    (tmp_path / "model.onnx").write_bytes(model().SerializeToString())
    inputs = feeds(3)
    sent = inputs["x"].tobytes() + inputs["r"].tobytes()
    words = [program, runtime, library, tmp_path / "model.onnx"]
    answer = subprocess.run(words, input=sent, capture_output=True, check=True, timeout=60).stdout
    values = np.frombuffer(answer, dtype=np.float32)
    assert_right([values[: 3 * HIDDEN].reshape(3, HIDDEN), values[3 * HIDDEN :].reshape(3, OUTPUTS)], inputs)


def test_equal_weights_lie_in_the_file_once() -> None:
    rows = [(digest * 64, {"generic": artefact("generic")}) for digest in "ab"]
    one, two = (len(build_library({OPERATOR: rows[:count]})) for count in (1, 2))
    code = len(artefact("generic").image)
    weights = sum(array.nbytes for array in artefact("generic").program.constants)
    assert two - one < code + 8192
    assert weights > 0


def test_a_library_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected one sparse network or more, got none$"):
        build_library({})


def test_a_digest_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected a digest of 64 digits, got 'abc'$"):
        build_library({OPERATOR: [("abc", {})]})


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^level: expected one of generic, avx2, avxvnni, avx512, avx512vnni, zen4, got 'sse9'$"
    ):
        level_target("sse9")


def test_the_level_can_be_read_and_set(library: Path) -> None:
    code = ctypes.CDLL(str(library))
    assert ctypes.c_int64.in_dll(code, "redpebble_level_limit").value == len(LEVELS["x86_64"]) - 1
