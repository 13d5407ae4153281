"""Layers that take long enough for onnxruntime's threads to do the tiles of few rows together."""

import threading
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from redpebble.driver.compiler import native_code
from redpebble.options import Options
from redpebble.ort.custom_ops.library import in_process_library, set_compiler
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact
from tests.ort.deployed_models import DIGEST, DOMAIN, OPERATOR, Array, Attributes, Constants, session

WIDTH = 1000
BATCHES = (0, 1, 2, 8, 16, 33, 64, 100, 200)


@cache
def weight() -> Array:
    rng = np.random.default_rng(0)
    return (rng.standard_normal((WIDTH, WIDTH)) * (rng.random((WIDTH, WIDTH)) < 0.1) / 10).astype(np.float32)


def model(node: onnx.NodeProto) -> onnx.ModelProto:
    shape = ("batch", WIDTH)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph([node], "graph", [x], [y], [numpy_helper.from_array(weight(), "w")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


@cache
def artefact() -> Artefact:
    return native_code(model(helper.make_node("MatMul", ["x", "w"], ["y"])), Options(threads=2), cache=False)


def native(threads: int) -> onnxruntime.InferenceSession:
    def compiler(operator: str, attributes: Attributes, constants: Constants) -> Artefact:
        return artefact()

    set_compiler(compiler)
    node = helper.make_node(
        OPERATOR, ["x", "w"], ["y"], domain=DOMAIN, network="", digest=DIGEST, activations=1, format=1
    )
    return session(model(node), in_process_library(), threads)


@cache
def inputs(batch: int) -> Array:
    return np.random.default_rng(batch).standard_normal((batch, WIDTH)).astype(np.float32)


@cache
def expected(batch: int) -> NDArray[np.float64]:
    return inputs(batch).astype(np.float64) @ weight().astype(np.float64)


def assert_right(y: Array, batch: int) -> None:
    right = expected(batch)
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-4)


def test_the_network_has_code_for_threads_together() -> None:
    assert any(step.tiled is not None and step.tiled.shared is not None for step in artefact().program.steps)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_together_give_the_right_result(threads: int) -> None:
    run = native(threads)
    for batch in BATCHES:
        for _ in range(5):
            assert_right(run.run(None, {"x": inputs(batch)})[0], batch)


def test_threads_together_give_the_bits_of_one() -> None:
    one, two = native(1), native(2)
    for batch in BATCHES:
        alone = one.run(None, {"x": inputs(batch)})[0]
        for _ in range(5):
            assert np.array_equal(two.run(None, {"x": inputs(batch)})[0], alone)


@pytest.mark.parametrize("threads", [1, 2])
def test_both_hosts_give_the_same_bits_with_any_number_of_threads(threads: int) -> None:
    run, network = native(threads), Network(*artefact(), threads=2)
    for batch in BATCHES:
        here = network.run(None, {"x": inputs(batch)}, threads=threads)[0]
        assert here.tobytes() == run.run(None, {"x": inputs(batch)})[0].tobytes()
        assert here.tobytes() == network.run(None, {"x": inputs(batch)}, threads=1)[0].tobytes()


def test_teams_of_several_calls_do_not_mix() -> None:
    run, failures = native(2), list[BaseException]()

    def work(batch: int) -> None:
        try:
            for _ in range(100):
                assert_right(run.run(None, {"x": inputs(batch)})[0], batch)
        except BaseException as error:  # to be raised in the test's own thread
            failures.append(error)

    workers = [threading.Thread(target=work, args=(batch,)) for batch in (1, 8, 16, 64)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
