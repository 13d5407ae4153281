"""A network of twice as many layers takes twice the work to optimize, counted in calls of our functions."""

import sys
from pathlib import Path
from types import FrameType

import pytest

import redpebble
from tests.support.quantized_models import pruned_network

PACKAGE = str(Path(redpebble.__file__).parent)


def _calls(layers: int) -> int:
    model, count = pruned_network([64] * (layers + 1), 0.1), 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(counted)
    try:
        redpebble.optimize(model)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
def test_work_grows_as_layers_do() -> None:
    few, more, many = map(_calls, (12, 24, 48))
    assert many - more <= 2.1 * (more - few)
