"""`redpebble.check`: the comparison of the command, in Python."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.models import zoo
from redpebble.tools.comparing import checking
from redpebble.verification.compare import Run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    zoo.save(zoo.build("ffnn(depth=2, width=32, density=0.1)"), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_model_agrees_output_by_output(model: Path) -> None:
    (found,) = redpebble.check(model, way="compile", batches=(3,), runs=1)
    assert found.mismatches == 0
    assert found.max_error < 1e-4


def test_values_that_are_far_off_are_counted(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def far_off(path: Path, outputs: Sequence[str]) -> Run:
        del path, outputs
        return lambda _: [np.full((3, 32), 1e6, np.float32)]

    monkeypatch.setattr(checking, "WAYS", {"session": far_off})
    (found,) = redpebble.check(str(model), batches=(3,), runs=1)
    assert found.mismatches == 3 * 32


def test_a_way_that_does_not_exist_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match=r"^way: expected one of compile, session, provider, got 'jit'$"):
        redpebble.check(model, way="jit")
