"""The node tests of `onnx.backend.test` through our backend, as they are and with pruned constants for inputs."""

import re
from collections import Counter, defaultdict
from functools import cache
from typing import Literal

import numpy as np
import pytest
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt, Runner

from redpebble.lowering.cpu_target import CpuTarget
from tests.end_to_end.backend import RedpebbleBackend
from tests.end_to_end.node_cases import OPERATORS, NodeCase, for_onnxruntime, frozen, node_cases

Outcome = Literal["passed", "refused", "failed", "newer"]
"""Newer: the operator has changed in an opset that onnxruntime refuses, too."""

Counts = dict[str, Counter[Outcome]]

TARGET = CpuTarget.generic()
"""Quickest to emit; other tests of this folder run code for the host."""


@cache
def cases() -> list[NodeCase]:
    return node_cases()


def prepared(mode: str, case: NodeCase) -> NodeCase | None:
    """The case in an opset that onnxruntime accepts, or None where there is none such, or nothing to freeze."""
    model = for_onnxruntime(case.model)
    if model is None:
        return None
    return case._replace(model=model) if mode == "as they are" else frozen(case, model, np.random.default_rng(0))


def says_what_it_is_about(refusal: str, case: NodeCase) -> bool:
    """Whether a refusal names one of the model's operators and its node, or one of its inputs, in one line."""
    operators = "|".join({node.op_type for node in case.model.graph.node})
    inputs = "|".join(re.escape(value.name) for value in case.model.graph.input)
    subject = rf"node ('\S+'|\d+): operator ({operators}) \(ai\.onnx \d+\)|input ({inputs}):"
    reason = "(expected .*, got .*|: no native code, a session leaves it to onnxruntime)"
    return re.fullmatch(rf"({subject}).*{reason}", refusal) is not None


def outcome(case: NodeCase, problems: list[str]) -> Outcome:
    """What becomes of a case; what is wrong with it goes to `problems`."""
    try:
        outputs = RedpebbleBackend.run_model(case.model, case.inputs, target=TARGET)
        Runner.assert_similar_outputs(case.expected, outputs, case.rtol, case.atol)
    except BackendIsNotSupposedToImplementIt as refusal:
        if not says_what_it_is_about(str(refusal), case):
            problems.append(f"{case.name}: refused without node and operator, or input, in one line: {refusal}")
        return "refused"
    except Exception as error:
        problems.append(f"{case.name}: {type(error).__name__}: {error}")
        return "failed"
    return "passed"


def show(mode: str, counts: Counts) -> Counter[Outcome]:
    """Print a line an operator, and return all of them together."""
    total = sum(counts.values(), Counter[Outcome]())
    print(f"\nonnx.backend.test, {mode}:")
    for operator, row in sorted(counts.items()):
        print(f"  {operator:20s} " + ", ".join(f"{count} {name}" for name, count in sorted(row.items())))
    print(
        f"onnx.backend.test, {mode}: {total['passed']} passed, {total['refused']} refused, {total['failed']} failed"
        f" ({total['newer']} not run: onnxruntime refuses their opset, too)"
    )
    return total


FLOOR = 145


@pytest.mark.slow  # making the cases takes eight seconds
@pytest.mark.parametrize("mode", ["as they are", "frozen"])
def test_a_node_test_of_a_covered_operator_passes_or_is_refused_in_one_line(mode: str) -> None:
    counts: Counts = defaultdict(Counter[Outcome])
    problems: list[str] = []
    for case in cases():
        ready = prepared(mode, case)
        if ready is not None:
            counts[case.operator][outcome(ready, problems)] += 1
        elif for_onnxruntime(case.model) is None:
            counts[case.operator]["newer"] += 1
    total = show(mode, counts)
    assert not problems, "\n".join(problems)
    assert total["passed"] >= FLOOR


@pytest.mark.slow
def test_there_are_node_tests_for_every_covered_operator() -> None:
    assert {case.operator for case in cases()} == {*OPERATORS}


def test_the_backend_runs_on_the_cpu_only() -> None:
    assert RedpebbleBackend.supports_device("CPU")
    assert not RedpebbleBackend.supports_device("CUDA")
