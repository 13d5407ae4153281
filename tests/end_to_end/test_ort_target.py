"""Models with sparse networks in onnxruntime: by their functions, and by native code, our library registered."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from onnx.backend.test.runner import Runner

import redpebble
from redpebble.export.save_model import save_model
from redpebble.export.sparse_networks.node_and_function import FUNCTIONS_SINCE
from redpebble.models.zoo import build
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle, OracleError
from tests.end_to_end.agreement import assert_close, assert_close_for_float32
from tests.end_to_end.node_cases import OPERATORS, NodeCase, for_onnxruntime, frozen, node_cases, session
from tests.end_to_end.random_graphs import DrawnModel, models
from tests.support.sparse_network_models import network_nodes, with_networks

BATCHES = (0, 1, 7, 17, 64)

SMALL = (
    "digits",
    "ffnn(depth=3, width=33, density=0.02, skip=True)",
    "masked_mlp(width=48)",
    "resmlp(depth=2, width=32)",
    "structured(width=64)",
)

HERE = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@cache
def model_of(spec: str) -> ir.Model:
    return build(spec)


def registered(model: ir.Model | onnx.ModelProto | Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """A session with our library."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return redpebble.session(model, options)


def feeds_of(spec: str, batch: int) -> dict[str, NDArray[Any]]:
    return inputs_for(model_of(spec), batch, np.random.default_rng(batch))


@pytest.mark.parametrize("spec", [*SMALL[:2], *(pytest.param(spec, marks=pytest.mark.slow) for spec in SMALL[2:])])
def test_a_model_of_the_zoo_agrees_with_the_original(spec: str) -> None:
    rewritten = with_networks(model_of(spec))
    assert network_nodes(ir.to_proto(rewritten))
    original, plain, native = Oracle(model_of(spec)), Oracle(rewritten), registered(rewritten)
    for batch in BATCHES:
        feeds = feeds_of(spec, batch)
        expected = original.run(feeds)
        assert_close(plain.run(feeds), expected, f"plain, batch {batch}")
        assert_close(native.run(None, feeds), expected, f"native, batch {batch}")


@pytest.mark.slow
def test_two_threads_of_onnxruntime_compute_the_same_bits_as_one() -> None:
    """Both have the same code: `redpebble.session` makes other code for one thread."""
    content = ir.to_proto(with_networks(model_of(SMALL[0]))).SerializeToString()
    sessions: list[onnxruntime.InferenceSession] = []
    for threads in (1, 2):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.register_custom_ops_library(redpebble.get_library_path())
        sessions.append(onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))
    one, two = sessions
    for batch in (1, 64, 65, 200):
        feeds = feeds_of(SMALL[0], batch)
        np.testing.assert_array_equal(one.run(None, feeds)[0], two.run(None, feeds)[0])


def networks_agree(drawn: DrawnModel) -> None:
    """Where onnxruntime refuses a batch of 0 or rounding is amplified, float64 judges."""
    rewritten = with_networks(drawn.proto)
    proto = ir.to_proto(rewritten)
    if not network_nodes(proto):
        return
    original, plain, native = Oracle(ir.from_proto(drawn.proto)), Oracle(rewritten), registered(rewritten)
    for batch in drawn.batches:
        feeds = drawn.feeds(batch)
        try:
            expected = original.run(feeds)
        except OracleError:
            assert batch == 0
            continue
        for run in (plain.run(feeds), native.run(None, dict(feeds))):
            assert_close_for_float32(drawn.proto, feeds, (run, expected), f"batch {batch}")


@pytest.mark.slow
@settings(HERE, max_examples=12)
@given(models())
def test_a_random_model_agrees_with_the_original(drawn: DrawnModel) -> None:
    networks_agree(drawn)


@pytest.mark.slow
@settings(HERE, max_examples=200, derandomize=False)
@given(models())
def test_many_random_models_agree_with_the_original(drawn: DrawnModel) -> None:
    networks_agree(drawn)


def passed_by_onnxruntime(case: NodeCase) -> bool:
    plain = session(case.model)
    if plain is None:
        return False
    names = [entry.name for entry in plain.get_inputs()]
    try:
        found = plain.run(None, dict(zip(names, case.inputs, strict=True)))
        Runner.assert_similar_outputs(case.expected, found, case.rtol, case.atol)
    except Exception:  # it fails without us, then
        return False
    return True


def problems_of(cases: Iterable[NodeCase]) -> tuple[list[str], int]:
    """What goes wrong after `optimize` that plain onnxruntime gets right, and how many sparse networks there were."""
    problems, networks = list[str](), 0
    for case in cases:
        if not passed_by_onnxruntime(case):
            continue
        try:
            rewritten = with_networks(case.model)
            networks += len(network_nodes(ir.to_proto(rewritten)))
            native = registered(rewritten)
            names = [entry.name for entry in native.get_inputs()]
            found = native.run(None, dict(zip(names, case.inputs, strict=True)))
            Runner.assert_similar_outputs(case.expected, found, max(case.rtol, 1e-4), max(case.atol, 1e-5))
        except Exception as error:
            problems.append(f"{case.name}: {type(error).__name__}: {error}")
    return problems, networks


def as_they_are() -> Iterator[NodeCase]:
    for case in node_cases():
        model = for_onnxruntime(case.model)
        if model is not None:
            yield case._replace(model=model)


def with_pruned_constants(operators: frozenset[str]) -> Iterator[NodeCase]:
    for case in as_they_are():
        ready = frozen(case, case.model, np.random.default_rng(0)) if case.operator in operators else None
        if ready is not None:
            ready.model.ir_version = max(ready.model.ir_version, FUNCTIONS_SINCE)
            yield ready


@pytest.mark.slow
def test_a_node_test_with_pruned_weights_that_onnxruntime_passes_is_passed_after_optimize() -> None:
    problems, networks = problems_of(with_pruned_constants(frozenset({"Gemm", "MatMul"})))
    assert not problems, "\n".join(problems)
    assert networks >= 8


@pytest.mark.slow
def test_every_node_test_that_onnxruntime_passes_is_passed_after_optimize() -> None:
    problems, _ = problems_of(as_they_are())
    assert not problems, "\n".join(problems)
    problems, networks = problems_of(with_pruned_constants(frozenset(OPERATORS)))
    assert not problems, "\n".join(problems)
    assert networks >= 8


@pytest.mark.slow
def test_external_data_stays_external(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    save_model(model_of("ffnn(depth=2, width=300, density=0.1)"), source, external_data=True)
    save_model(redpebble.optimize(source, target="ort").model, target)
    data = tmp_path / "out.onnx.data"
    assert data.stat().st_size < 0.2 * (tmp_path / "in.onnx.data").stat().st_size
    assert network_nodes(onnx.ModelProto.FromString(target.read_bytes()))
    feeds = {"x": np.random.default_rng(0).standard_normal((7, 300)).astype(np.float32)}
    for run in (Oracle(target).run(feeds), registered(target).run(None, dict(feeds))):
        assert_close(run, Oracle(source).run(feeds))
