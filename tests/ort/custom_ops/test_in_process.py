import gc
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from redpebble.ort.custom_ops.host import Host, host
from redpebble.ort.custom_ops.library import OPERATOR_COUNT, cached_library, in_process_library, set_compiler
from redpebble.ort.custom_ops.network_session import NetworkSession
from redpebble.runtime.store.artefact import Artefact
from tests.ort.deployed_models import (
    INPUTS,
    OPERATOR,
    OUTPUTS,
    Attributes,
    Constants,
    artefact,
    assert_right,
    compiler,
    dense_model,
    feeds,
    model,
    session,
)

BATCHES = (0, 1, 7, 17, 64, 128, 1000)


@pytest.fixture
def library() -> Path:
    set_compiler(compiler)
    return in_process_library()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_node_gives_what_its_function_gives(library: Path, threads: int) -> None:
    native, plain = session(model(), library, threads), session(model(), None, threads)
    for batch in BATCHES:
        inputs = feeds(batch)
        outputs = native.run(None, inputs)
        assert_right(outputs, inputs)
        for ours, theirs in zip(outputs, plain.run(None, inputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_number_of_threads_does_not_change_a_bit(library: Path) -> None:
    inputs = feeds(1000)
    one, two = (session(model(), library, threads).run(None, inputs) for threads in (1, 2))
    assert all(np.array_equal(left, right) for left, right in zip(one, two, strict=True))


def negated(array: NDArray[Any] | None) -> NDArray[Any]:
    assert array is not None
    return -array


def test_the_native_code_runs_and_not_the_function(library: Path) -> None:
    def wrong(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return compiler(operator, attributes, [negated(constants[0]), *constants[1:]])

    set_compiler(wrong)
    inputs = feeds(5)
    (hidden, _) = session(model(), library).run(None, inputs)
    (right, _) = session(model()).run(None, inputs)
    assert not np.allclose(hidden, right)


def test_calls_from_several_threads_do_not_meet(library: Path) -> None:
    native = session(model(), library, threads=2)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            inputs = feeds(16 * seed + 1, seed)
            for _ in range(100):
                assert_right(native.run(None, inputs), inputs)
        except BaseException as error:  # to be raised in the test's own thread
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.slow
def test_networks_live_as_long_as_their_sessions(library: Path) -> None:
    keeper: Host = host(library)
    gc.collect()
    before = keeper.network_count
    first, second = session(model(), library), session(model(seed=1), library)
    assert keeper.network_count == before + 2
    del first
    gc.collect()
    assert keeper.network_count == before + 1
    inputs = feeds(3)
    assert_right(second.run(None, inputs), inputs, seed=1)
    del second
    gc.collect()
    assert keeper.network_count == before


def test_the_compiler_gets_attributes_and_constants(library: Path) -> None:
    seen: list[tuple[str, dict[str, str | int], list[Any]]] = []

    def note(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        seen.append((operator, dict(attributes), list(constants)))
        return compiler(operator, attributes, constants)

    set_compiler(note)
    made = session(model(), library)
    del made
    ((operator, attributes, constants),) = seen
    assert operator == OPERATOR
    assert attributes == {"network": "by hand", "digest": "0123456789abcdef" * 4, "activations": 2, "format": 1}
    assert [array.dtype.name for array in constants] == ["float32", "int64", "float32", "float32"]
    assert [array.shape for array in constants] == [(3, 40), (3, 40), (40,), (40, 17)]


def refusal(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What onnxruntime was told, without what it puts before it."""
    return str(error.value).rsplit("Exception during initialization: ", maxsplit=1)[-1].splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"format": 2}, "SparseNetwork_0: expected format 1, got 2"),
        ({"format": None}, "format"),
        ({"digest": None}, "digest"),
        ({"network": None}, "network"),
        ({"activations": 1}, "SparseNetwork_0: expected 2 activations, got 1"),
        ({"activations": 6}, "SparseNetwork_0: expected 2 activations, got 6"),
        ({"activations": 7}, "SparseNetwork_0: the node has 6 inputs, and states 7 activations"),
        (
            {"activations": -(2**62)},
            "SparseNetwork_0: the node has 6 inputs, and states -4611686018427387904 activations",
        ),
    ],
)
def test_a_node_of_another_kind_is_refused(library: Path, attributes: dict[str, Any], message: str) -> None:
    def lenient(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return artefact("generic")

    set_compiler(lenient)
    with pytest.raises(Exception, match=message):
        session(model(attributes), library)


def test_what_the_compiler_raises_is_said_in_one_line(library: Path) -> None:
    def refuse(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        raise ValueError(f"{operator}: the network\nis damaged")

    set_compiler(refuse)
    with pytest.raises(Exception, match=r"SparseNetwork_0: the network is damaged$"):
        session(model(), library)


def interrupted(*_: object) -> Artefact:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("Python goes on behind an interrupt")


@pytest.mark.usefixtures("raised_interrupts")
def test_an_interrupt_amid_compiling_ends_the_session_and_is_raised_behind_it(library: Path) -> None:
    set_compiler(interrupted)
    with pytest.raises(KeyboardInterrupt), suppress(Exception):
        session(model(), library)
    set_compiler(compiler)
    inputs = feeds(3)
    assert_right(session(model(), library).run(None, inputs), inputs)


def test_onnxruntime_runs_a_network_for_its_node_where_there_is_no_native_code(library: Path) -> None:
    def by_onnxruntime(operator: str, attributes: Attributes, constants: Constants) -> NetworkSession:
        network = dense_model([array for array in constants if array is not None])
        return NetworkSession(onnxruntime.InferenceSession(network.SerializeToString()))

    set_compiler(by_onnxruntime)
    keeper = host(library)
    gc.collect()
    before, native = keeper.network_count, session(model(), library, threads=2)
    for batch in (0, 1, 300):
        inputs = feeds(batch)
        assert_right(native.run(None, inputs), inputs)
    with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
        native.run(None, {**feeds(2), "x": np.ones((2, INPUTS + 1), np.float32)})
    keeper.close()
    try:
        with pytest.raises(Exception, match="the network needs `import redpebble` in this process"):
            native.run(None, feeds(2))
    finally:
        keeper.open()
    assert keeper.network_count == before + 1
    del native
    gc.collect()
    assert keeper.network_count == before


def test_a_long_message_is_cut(library: Path) -> None:
    def refuse(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        raise ValueError("x" * 10_000)

    set_compiler(refuse)
    with pytest.raises(Exception, match=r"SparseNetwork_0: x{400,511}$"):
        session(model(), library)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, INPUTS + 1), (3, OUTPUTS)), "input 0: expected size 24 along axis 1, got 25"),
        (((3, INPUTS), (4, OUTPUTS)), "input 1: expected size 3 along axis 0, got 4"),
        (((0, INPUTS), (4, OUTPUTS)), "input 1: expected size 0 along axis 0, got 4"),
        (((3, INPUTS), (0, OUTPUTS)), "input 1: expected size 3 along axis 0, got 0"),
    ],
)
def test_a_wrong_shape_is_an_error_of_the_call(
    library: Path, shapes: tuple[tuple[int, int], tuple[int, int]], message: str
) -> None:
    native = session(model(), library)
    x, r = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    with pytest.raises(Exception, match=f"{message}$"):
        native.run(None, {"x": x, "r": r})
    inputs = feeds(2)
    assert_right(native.run(None, inputs), inputs)


def test_a_wrong_rank_is_an_error_of_the_call(library: Path) -> None:
    proto = model()
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    native = session(proto, library)
    for rank in (0, 1, 3, 7):
        with pytest.raises(Exception, match=f"input 0: expected rank 2, got {rank}$"):
            native.run(None, {"x": np.zeros((1,) * rank, dtype=np.float32), "r": feeds(1)["r"]})


def test_a_wrong_dtype_is_an_error_of_the_call(library: Path) -> None:
    proto = model()
    del proto.functions[:]
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    native = session(proto, library)
    with pytest.raises(Exception, match=r"input 0: expected element type 1 \(float\), got 11$"):
        native.run(None, {"x": np.zeros((1, INPUTS)), "r": feeds(1)["r"]})


def test_an_operator_beyond_the_library_runs_by_its_function(library: Path) -> None:
    native = session(model(operator=f"SparseNetwork_{OPERATOR_COUNT}"), library)
    inputs = feeds(5)
    assert_right(native.run(None, inputs), inputs)


def test_a_larger_library_knows_more_operators() -> None:
    count = OPERATOR_COUNT + 1
    operator = f"SparseNetwork_{OPERATOR_COUNT}"

    def renamed(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return compiler(OPERATOR, attributes, constants)

    set_compiler(renamed, count)
    keeper = host(in_process_library(count))
    gc.collect()
    before = keeper.network_count
    native = session(model(operator=operator), in_process_library(count))
    assert keeper.network_count == before + 1
    inputs = feeds(5)
    assert_right(native.run(None, inputs), inputs)


def test_without_a_compiler_a_session_says_what_it_needs(library: Path) -> None:
    keeper = host(library)
    keeper.close()
    try:
        with pytest.raises(Exception, match="SparseNetwork_0: needs `import redpebble` in this process, or the"):
            session(model(), library)
    finally:
        keeper.open()


def test_a_damaged_library_in_the_cache_is_made_again(library: Path, tmp_path: Path) -> None:
    made = cached_library(tmp_path, OPERATOR_COUNT)
    assert made == library.read_bytes()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert cached_library(tmp_path, OPERATOR_COUNT) == made


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cached_library(tmp_path / "file", OPERATOR_COUNT).startswith(b"\x7fELF")


def test_onnxruntime_infers_no_shape_that_it_does_not_know(library: Path) -> None:
    native = session(model(), library)
    assert [output.shape for output in native.get_outputs()] == [[], []]
