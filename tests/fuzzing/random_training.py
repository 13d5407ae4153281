"""Random networks as modules of torch: outputs are onnxruntime's, and unchanged weights come back as they were."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from redpebble.frontend.errors import ModelError
from redpebble.verification.oracle import Oracle, OracleError
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.random_layers import draw_aggregations, draw_images, draw_quantized

TOLERANCE = 1e-3
"""Share of the largest output that floats may be off by; means of codes have a tenth of it."""


def draw(seed: int, folder: Path) -> None:
    """A network on images, of eight bits, or over the edges of a graph."""
    rng = np.random.default_rng(seed)
    one_of(rng, (draw_images, draw_images, draw_quantized, draw_aggregations))(seed, folder)


def check(folder: Path) -> str:
    """Some operators cannot be trained through, and are named; all others are right."""
    if find_spec("torch") is None:
        return "without torch"
    import torch

    from redpebble.export.save_model import model_bytes
    from redpebble.pytorch.imported.module import OnnxModule

    path = folder / "model.onnx"
    try:
        judge = Oracle(path, exact=True)
        module = OnnxModule(path)
    except OracleError:
        return "refused by onnxruntime"
    except ModelError as error:
        print(error)
        return "not covered" if "expected one of" in str(error) else _unnamed(error)
    written = model_bytes(module.updated())
    assert written is not None
    _compare_weights(onnx.ModelProto.FromString(path.read_bytes()), onnx.ModelProto.FromString(written))
    is_rounded = any(node.op_type.endswith("QuantizeLinear") for node in onnx.load_from_string(written).graph.node)
    for file in sorted(folder.glob("feeds-*.npz")):
        feeds: dict[str, NDArray[Any]] = dict(np.load(file))
        try:
            expected = judge.run(feeds)
        except OracleError:
            continue  # it refuses a batch of 0 here and there
        if not all(np.isfinite(one).all() for one in expected):
            continue
        with torch.no_grad():
            found = module(**{name: torch.from_numpy(value) for name, value in feeds.items()})
        for ours, theirs in zip((one.numpy() for one in found.values()), expected, strict=True):
            assert ours.shape == theirs.shape, f"{file.stem}: shape {ours.shape}, expected {theirs.shape}"
            off = np.abs(ours.astype(np.float64) - theirs)
            # a value between two codes may become either
            error = float(off.mean() if is_rounded and off.size else off.max(initial=0.0))
            allowed = (0.05 if is_rounded else TOLERANCE) * max(1.0, float(np.abs(theirs).max(initial=0.0)))
            assert error <= allowed, f"{file.stem}: off by {error:.3g}, accepted is {allowed:.3g}"
    return f"right, {'codes' if is_rounded else 'floats'}"


def _unnamed(error: ModelError) -> str:
    raise AssertionError(f"expected a message that names what is taken, got {error}")


def _compare_weights(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    ours = {one.name: onnx.numpy_helper.to_array(one) for one in after.graph.initializer}
    for one in before.graph.initializer:
        np.testing.assert_array_equal(ours[one.name], onnx.numpy_helper.to_array(one), one.name)


TRAINING = Fuzzer("training", draw, check)
