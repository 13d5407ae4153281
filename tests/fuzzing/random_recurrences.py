"""Random recurrences: cells, directions, activations, lengths, first states, patterns of zeros, and what is around."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.frontend.errors import ModelError
from tests.end_to_end.agreement import RTOL
from tests.fuzzing import random_layers
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.support.recurrent_models import OUTPUTS, Recurrent

ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softplus", "Elu", "LeakyRelu")

COUNT = {"LSTM": 3, "GRU": 2, "RNN": 1}
"""Activations of a direction."""

BATCHES = (1, 1, 2, 3, 7, 8, 17)


def draw(seed: int, folder: Path) -> None:
    """A recurrence, what is around it, and calls of it; those without steps or samples are for our code alone."""
    rng = np.random.default_rng(seed)
    cell = _cell(rng)
    model = cell.model()
    _with_patterns(model, rng)
    if rng.random() < 0.3 and "y" in (cell.outputs or "y"):
        _add_head(model, cell, rng)
    random_layers.write(folder, model, rng, RTOL)
    for number in range(int(rng.integers(1, 4))):
        steps, batch = int(rng.integers(1, 12)), one_of(rng, BATCHES)
        _write_feeds(folder / f"feeds-{number}.npz", cell.feeds(steps, batch, int(rng.integers(1 << 16))), rng)
    for number, (steps, batch) in enumerate(((0, 2), (3, 0))):
        feeds = cell.feeds(max(1, steps), batch)
        feeds["x"] = feeds["x"][:steps]
        if cell.lengths:
            feeds["lengths"] = np.minimum(feeds["lengths"], steps).astype(np.int32)
        np.savez(folder / f"empty-{number}.npz", allow_pickle=False, **feeds)


def _cell(rng: np.random.Generator) -> Recurrent:
    operator = one_of(rng, ("LSTM", "LSTM", "GRU", "RNN"))
    direction = one_of(rng, ("forward", "reverse", "bidirectional"))
    attributes: dict[str, Any] = {}
    if operator == "GRU" and rng.random() < 0.6:
        attributes["linear_before_reset"] = 1
    if rng.random() < 0.2:
        attributes["clip"] = float(np.round(rng.uniform(0.2, 3.0), 2))
    if rng.random() < 0.25:
        count = COUNT[operator] * (2 if direction == "bidirectional" else 1)
        attributes["activations"] = [one_of(rng, ACTIVATIONS) for _ in range(count)]
    outputs = [name for name in OUTPUTS[operator] if rng.random() < 0.7]
    return Recurrent(
        operator,
        hidden=one_of(rng, (1, 5, 8, 17, 31, 64, 96, 130)),
        inputs=one_of(rng, (1, 3, 16, 33, 64, 100)),
        density=one_of(rng, (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)),
        direction=direction,
        attributes=attributes,
        bias=bool(rng.random() < 0.7),
        lengths=bool(rng.random() < 0.4),
        starts=int(rng.integers(0, 3)) if operator == "LSTM" else int(rng.integers(0, 2)),
        peepholes=operator == "LSTM" and bool(rng.random() < 0.3),
        outputs=tuple(outputs or [one_of(rng, OUTPUTS[operator])]),
        seed=int(rng.integers(1 << 16)),
    )


def _with_patterns(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Take out units, gates or all of a weight here and there."""
    for initializer in model.graph.initializer:
        if initializer.name not in {"w", "r"} or rng.random() < 0.5:
            continue
        array = numpy_helper.to_array(initializer).copy()
        match one_of(rng, ("all", "outputs", "inputs", "gate")):
            case "all":
                array[:] = 0
            case "outputs":
                array[:, rng.random(array.shape[1]) < 0.5] = 0
            case "inputs":
                array[:, :, rng.random(array.shape[2]) < 0.5] = 0
            case _:
                array[:, : array.shape[1] // 3] = 0
        initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))


def _add_head(model: onnx.ModelProto, cell: Recurrent, rng: np.random.Generator) -> None:
    """Put a layer, or another recurrence, behind the states of all steps, as torch writes it."""
    graph, width = model.graph, cell.directions * cell.hidden
    held: dict[str, NDArray[Any]] = {"sides": np.array([0, 0, -1], np.int64)}
    nodes = [
        helper.make_node("Transpose", ["y"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "sides"], ["rows"]),
    ]
    if rng.random() < 0.5:
        held["head"] = (rng.standard_normal((width, 20)) * (rng.random((width, 20)) < 0.2)).astype(np.float32)
        nodes += [helper.make_node("MatMul", ["rows", "head"], ["z"]), helper.make_node("Relu", ["z"], ["last"])]
        shape: list[str | int] = ["steps", "batch", 20]
    else:
        second = Recurrent("GRU", 24, width, density=0.1, bias=False, seed=int(rng.integers(1 << 16)))
        held |= {f"{one.name}2": numpy_helper.to_array(one) for one in second.model().graph.initializer}
        nodes.append(helper.make_node("GRU", ["rows", "w2", "r2"], ["last"], hidden_size=second.hidden))
        shape = ["steps", 1, "batch", second.hidden]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in held.items())
    graph.output.append(helper.make_tensor_value_info("last", TensorProto.FLOAT, shape))


def _write_feeds(path: Path, feeds: dict[str, NDArray[Any]], rng: np.random.Generator) -> None:
    if "lengths" in feeds and rng.random() < 0.3:
        feeds["lengths"][rng.random(feeds["lengths"].shape) < 0.4] = 0
    if rng.random() < 0.2:
        feeds["x"] *= np.float32(one_of(rng, (0.0, 30.0)))
    np.savez(path, allow_pickle=False, **feeds)


def check(folder: Path) -> str:
    """What onnxruntime computes is what every way computes; without steps states stay, without samples there are none.

    onnxruntime ends the process where there are none.
    """
    word = random_layers.check(folder)
    if word != "right":
        return word
    try:
        network = redpebble.compile(folder / "model.onnx", cache=folder / "cache")
    except ModelError:
        return word
    for path in sorted(folder.glob("empty-*.npz")):
        feeds: dict[str, NDArray[Any]] = dict(np.load(path))
        steps, batch = feeds["x"].shape[:2]
        for port, found in zip(network.get_outputs(), network.run(None, feeds), strict=True):
            known = {"steps": steps, "batch": batch}
            expected = tuple(known.get(str(size), size) for size in port.shape)
            assert found.shape == expected, f"{path.stem}: shape {found.shape}, expected {expected}"
            if not steps and port.name in {"y_h", "y_c"} and "lengths" not in feeds:
                start = feeds.get(port.name.replace("y_", "") + "0", np.zeros_like(found))
                assert np.array_equal(found, start), f"{path.stem}: {port.name} changed without steps"
    return word


RECURRENCES = Fuzzer("recurrences", draw, check, seconds=150)
