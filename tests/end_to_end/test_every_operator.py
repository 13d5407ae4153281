"""All of `onnx.backend.test`, whatever the operator: what onnxruntime passes, it passes after `optimize`."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import redpebble
from redpebble.export.sparse_networks.node_and_function import FUNCTIONS_SINCE, network_obstacle
from redpebble.frontend.errors import ModelError
from tests.end_to_end.node_cases import highest_opset
from tests.support.sparse_network_models import network_nodes, with_networks

KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""Kinds of models that come with the package as files; others would be fetched."""

LEAST_RTOL, LEAST_ATOL = 1e-4, 1e-5


class Case(NamedTuple):
    """One test: a model, inputs and what comes out."""

    name: str
    model: onnx.ModelProto
    inputs: list[Any]
    expected: list[Any]
    rtol: float
    atol: float


def node_tests() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # expected values of some overflow on purpose
        collected = collect_testcases(None)
    for case in collected:
        if case.model is not None and case.data_sets:
            inputs, expected = ([plain_value(value) for value in values] for values in case.data_sets[0])
            yield Case(case.name, case.model, inputs, expected, case.rtol, case.atol)


def model_tests() -> Iterator[Case]:
    for kind in KINDS:
        for case in load_model_tests(kind=kind):
            if case.model_dir is None:
                continue
            folder = Path(case.model_dir)
            model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
            first = sorted(folder.glob("test_data_set_*"))[0]
            inputs = read_values(first, "input", [value.type for value in model.graph.input])
            expected = read_values(first, "output", [value.type for value in model.graph.output])
            yield Case(case.name, model, inputs, expected, case.rtol, case.atol)


def read_values(folder: Path, what: str, types: Sequence[onnx.TypeProto]) -> list[Any]:
    files = sorted(folder.glob(f"{what}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    found: list[Any] = []
    for file, kind in zip(files, types, strict=False):
        if kind.HasField("sequence_type"):
            found.append(plain_value(onnx.SequenceProto.FromString(file.read_bytes())))
        else:
            found.append(plain_value(onnx.TensorProto.FromString(file.read_bytes())))
    return found


def plain_value(value: Any) -> Any:  # noqa: ANN401 - a tensor, a sequence, or nothing
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case _:
            return value


def in_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in versions that onnxruntime reads, which may say other things than the test means."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, 10)
    for opset in copy.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = min(opset.version, highest_opset())
    return copy


def quiet() -> onnxruntime.SessionOptions:
    made = onnxruntime.SessionOptions()
    made.log_severity_level = 4
    return made


def run_plain(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any] | None:
    """What onnxruntime gives, None where it refuses the model or the inputs."""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), quiet(), providers=["CPUExecutionProvider"])
        return session.run(None, feeds_of(session, inputs))
    except Exception:  # its errors share no base class of their own
        return None


def feeds_of(session: onnxruntime.InferenceSession, inputs: Sequence[Any]) -> dict[str, Any]:
    return dict(zip([value.name for value in session.get_inputs()], inputs, strict=True))


def is_passed(case: Case, found: Sequence[Any] | None) -> bool:
    if found is None:
        return False
    try:
        Runner.assert_similar_outputs(case.expected, found, case.rtol, case.atol)
    except Exception:  # what compares raises various ones
        return False
    return True


def problem_of(case: Case, *, is_eager: bool) -> tuple[str, int]:
    """What goes wrong after `optimize`, empty if nothing does, and how many sparse networks there were.

    With `is_eager` every sparse layer becomes one: none of these would gain.
    """
    try:
        optimized = with_networks(case.model) if is_eager else redpebble.optimize(case.model, target="ort").model
        session = redpebble.session(optimized, quiet())
        found = session.run(None, feeds_of(session, case.inputs))
        Runner.assert_similar_outputs(case.expected, found, max(case.rtol, LEAST_RTOL), max(case.atol, LEAST_ATOL))
    except ModelError as error:
        return f"{case.name}: refused: {error}", 0
    except Exception as error:
        return f"{case.name}: {type(error).__name__}: {error}"[:500], 0
    return "", len(network_nodes(ir.to_proto(optimized)))


def frozen(case: Case, rng: np.random.Generator) -> Case | None:
    """The case with all inputs but the first as constants, 90 % of each float matrix zeroed; onnxruntime is the judge.

    None where there is nothing to freeze, or onnxruntime refuses it.
    """
    written = [*case.model.graph.input]
    known = {tensor.name for tensor in case.model.graph.initializer}
    if len(written) < 2 or known or not all(isinstance(value, np.ndarray) for value in case.inputs):
        return None
    weights = [pruned(value, rng) for value in case.inputs[1:]]
    copy = onnx.ModelProto()
    copy.CopyFrom(case.model)
    copy.ir_version = max(copy.ir_version, FUNCTIONS_SINCE)
    copy.graph.initializer.extend(
        numpy_helper.from_array(array, value.name) for value, array in zip(written[1:], weights, strict=False)
    )
    del copy.graph.input[1:]
    expected = run_plain(copy, case.inputs[:1])
    return None if expected is None else case._replace(model=copy, inputs=case.inputs[:1], expected=expected)


def pruned(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if array.dtype != np.float32 or array.ndim < 2:
        return array
    return np.where(rng.random(array.shape) < 0.9, np.float32(0), array)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["as they are", "frozen"])
def test_no_backend_test_that_onnxruntime_passes_fails_after_optimize(mode: str) -> None:
    problems: list[str] = []
    passed = refused = networks = 0
    rng = np.random.default_rng(0)
    for written in (*node_tests(), *model_tests()):
        case = written._replace(model=in_known_opset(written.model))
        ready = case if mode == "as they are" else frozen(case, rng)
        if ready is None or (mode == "as they are" and not is_passed(ready, run_plain(ready.model, ready.inputs))):
            refused += 1
            continue
        is_eager = mode == "frozen" and not network_obstacle(ir.from_proto(ready.model))
        problem, count = problem_of(ready, is_eager=is_eager)
        problems += [problem] if problem else []
        passed, networks = passed + (not problem), networks + count
    print(f"\n{mode}: {passed} passed, {len(problems)} failed, {networks} sparse networks;", end=" ")
    print(f"{refused} are not for onnxruntime or have nothing to freeze")
    assert not problems, "\n".join(problems)
    assert passed > 500
