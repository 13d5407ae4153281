"""The node tests of `onnx.backend.test` through our backend, as they are and with pruned constants for inputs."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import pytest
from agreement import assert_close
from backend import RedpebbleBackend
from node_cases import NodeCase, for_onnxruntime, frozen, highest_opset, node_cases
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt, Runner

from redpebble.lowering.target import CpuTarget

Outcome = Literal["passed", "refused", "failed", "newer"]
Counts = dict[str, Counter[Outcome]]

TARGET = CpuTarget.generic()
"""Quickest to emit; the other tests of this folder run the host's code."""

EVERY = 3
"""The default suite runs one case of so many for each operator, the slow one all."""


@cache
def cases() -> list[NodeCase]:
    return node_cases()


def outcome(case: NodeCase, problems: list[str]) -> Outcome:
    """What becomes of a case; what is wrong with it goes to `problems`."""
    try:
        outputs = RedpebbleBackend.run_model(case.model, case.inputs, target=TARGET)
    except BackendIsNotSupposedToImplementIt as refusal:
        operators = "|".join({node.op_type for node in case.model.graph.node})
        if not re.fullmatch(rf"node ('\S+'|\d+): operator ({operators}) \(ai\.onnx \d+\).*, accepted .*", str(refusal)):
            problems.append(f"{case.name}: refused without naming node and operator: {refusal}")
        return "refused"
    try:
        Runner.assert_similar_outputs(case.expected, outputs, case.rtol, case.atol)
    except AssertionError as error:
        problems.append(f"{case.name}: {error}")
        return "failed"
    return "passed"
