"""Random networks whose sizes each call chooses, called with sizes in random order while code is made for some."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

import redpebble
from redpebble.ort.sized_session import SizedSession, prepare_for
from redpebble.verification.oracle import Oracle, OracleError
from tests.end_to_end.agreement import RTOL
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.random_images import DrawnImages
from tests.support.image_models import ImageModel

LETTERS: Final = 40
"""Different letters of a text."""

CALLS: Final = 10

MOST: Final = 150
"""Size of a free axis at most."""

BACKGROUND: Final = 0.05
"""Share of cases that wait for code which a process makes beside them: it takes seconds to begin."""


def draw(seed: int, folder: Path) -> None:
    """A network on images, letters, samples or features, the sizes of its inputs, and when code is made."""
    rng = np.random.default_rng(seed)
    model = _images(rng) if rng.random() < 0.4 else _sequence(rng)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    dims = model.graph.input[0].type.tensor_type.shape.dim
    words = [*dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param)]
    pool = [{word: int(rng.integers(0 if word == "batch" else 1, MOST)) for word in words} for _ in range(4)]
    pool = [{**sizes, **({"batch": sizes["batch"] % 4} if "batch" in sizes else {})} for sizes in pool]
    chosen = {
        "calls": [one_of(rng, pool) for _ in range(CALLS)],
        "prepared": [bool(rng.random() < 0.3) for _ in range(CALLS)],
        "waits": bool(rng.random() < BACKGROUND),
        "threads": int(rng.integers(1, 3)),
        "seed": seed,
    }
    (folder / "settings.json").write_text(json.dumps(chosen))


def _images(rng: np.random.Generator) -> onnx.ModelProto:
    """A network on images of which the height, the width or both are free."""
    drawn = DrawnImages(rng)
    model = drawn.net.model(*drawn.outputs())
    dims = model.graph.input[0].type.tensor_type.shape.dim
    free = one_of(rng, (((2, "height"),), ((3, "width"),), ((2, "height"), (3, "width")), ((2, "n"), (3, "n"))))
    for axis, name in free:
        dims[axis].dim_param = name
    return model


def _sequence(rng: np.random.Generator) -> onnx.ModelProto:
    """Convolutions over positions: of letters [batch, length], samples [batch, time], or features."""
    kind, channels = one_of(rng, ("letters", "samples", "features")), one_of(rng, (1, 3, 32, 64))
    channels = 1 if kind == "samples" else channels
    net = ImageModel((channels, 1), seed=int(rng.integers(1 << 30)), density=one_of(rng, (0.03, 0.05, 0.1, 0.3)))
    value = "x"
    if kind == "letters":
        values = net.node("Gather", net.weights("letters", (LETTERS, channels)), "x")
        value = net.node("Transpose", values, perm=[0, 2, 1])
    elif kind == "samples":
        net.tensors["axis"] = np.array([1])
        value = net.node("Unsqueeze", "x", "axis")
    for _ in range(int(rng.integers(1, 5))):
        outputs, taps = one_of(rng, (2, 33, 64, 96, 128)), int(rng.integers(1, 8))
        pads, dilation = [int(rng.integers(0, taps)), int(rng.integers(0, taps))], int(rng.integers(1, 3))
        strides = [one_of(rng, (1, 1, 1, 2, 3))]
        if rng.random() < 0.2:
            value = net.conv(value, (channels, 1, taps), group=channels, auto_pad="SAME_UPPER")
        shape = (outputs, channels, taps)
        value = net.conv(value, shape, pads=pads, strides=strides, dilations=[dilation])
        channels = outputs
        if rng.random() < 0.3:
            value = net.node("Add", value, net.conv(value, (channels, channels, 3), pads=[1, 1]))
        if rng.random() < 0.7:
            value = net.node(one_of(rng, ("Relu", "Sigmoid", "Tanh", "LeakyRelu")), value)
        if rng.random() < 0.3:
            pooling = one_of(rng, ("MaxPool", "AveragePool"))
            value = net.node(pooling, value, kernel_shape=[2], strides=[int(rng.integers(1, 3))])
    if rng.random() < 0.3:
        value = net.node("Flatten", net.node("GlobalAveragePool", value))
    for name, array in net.tensors.items():
        if array.ndim == 3:  # sums stay so small that what rounding leaves decides about no sigmoid
            net.tensors[name] = np.asarray(array, np.float32) / np.float32(np.sqrt(array[0].size))
    model = net.model(value)
    shape = {"letters": ["batch", "length"], "samples": ["batch", "time"]}.get(kind, ["batch", net.shape[0], "length"])
    given = helper.make_tensor_value_info("x", TensorProto.INT64 if kind == "letters" else TensorProto.FLOAT, shape)
    model.graph.input[0].CopyFrom(given)
    return model


def inputs(model: onnx.ModelProto, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Inputs of these sizes."""
    tensor = model.graph.input[0].type.tensor_type
    shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type == TensorProto.INT64:
        return {"x": rng.integers(0, LETTERS, shape)}
    return {"x": rng.standard_normal(shape).astype(np.float32)}


def check(folder: Path) -> str:
    """Every call is right, whoever serves it: onnxruntime, code that was prepared, or code of another process."""
    os.environ["REDPEBBLE_CACHE"] = str((folder / "cache").absolute())
    chosen = json.loads((folder / "settings.json").read_text())
    model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
    try:
        right = Oracle(folder / "model.onnx")
    except OracleError:
        return "refused by onnxruntime"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = chosen["threads"], 4
    session, rng = redpebble.session(folder / "model.onnx", options), np.random.default_rng(chosen["seed"])
    for sizes, prepares in zip(chosen["calls"], chosen["prepared"], strict=True):
        feeds = inputs(model, sizes, rng)
        try:
            expected = right.run(feeds)
        except OracleError:
            continue
        if not chosen["waits"] and isinstance(session, SizedSession):
            session.code.close()  # nothing is made but what is prepared
        if prepares and not chosen["waits"]:
            prepare_for(session, feeds)
        found = session.run(None, feeds)
        if chosen["waits"] and isinstance(session, SizedSession):
            session.code.wait()
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape, f"{sizes}: shape {ours.shape}, expected {theirs.shape}"
            scale = float(np.max(np.abs(theirs), initial=1.0))
            np.testing.assert_allclose(ours, theirs, RTOL, RTOL * scale, err_msg=str(sizes))
    if not isinstance(session, SizedSession):
        return "has code for all sizes" if _has_networks(model) else "waits for no size"
    word = "in the background" if chosen["waits"] else "beforehand"
    return f"{min(len(session.code.ready_sizes()), 1)} has code {word}"


def _has_networks(model: onnx.ModelProto) -> bool:
    return bool(redpebble.optimize(model, target="ort").networks)


FREE_SIZES = Fuzzer("free-sizes", draw, check, seconds=240)
