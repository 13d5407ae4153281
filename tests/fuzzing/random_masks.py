"""Random and structured masks: every kernel family on every target, and networks that are compiled, as float64 says."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.kernels.families import FAMILIES
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.support.hidden_structure import band, blocks
from tests.support.kernel_cases import PATTERNS, Case, rounding_of, run
from tests.support.lowering_modules import HERE, TARGETS, Floats

SPECIAL = (None, None, "nan", "inf", "-inf")
EXACT = sorted(name for name, family in FAMILIES.items() if not family.rounds)
"""Families whose sums are those of floats."""

BATCHES = (0, 1, 2, 5, 7, 8, 16, 17, 33, 41, 64, 100)


def draw_layer(seed: int, folder: Path) -> None:
    """A layer, what runs it, and a number that is none in one row of its input, or not."""
    rng = np.random.default_rng(seed)
    family, target, special = one_of(rng, EXACT), one_of(rng, list(HERE)), one_of(rng, SPECIAL)
    pattern, batch = one_of(rng, sorted(PATTERNS)), one_of(rng, BATCHES)
    settings = {"family": family, "target": target, "special": special, "pattern": pattern, "batch": batch}
    shape = int(rng.integers(1, 300)), int(rng.integers(1, 70))
    (folder / "settings.json").write_text(json.dumps(settings))
    values = rng.standard_normal(shape).astype(np.float32)
    weight = np.where(PATTERNS[pattern](rng, shape), values, np.float32(0))
    x = rng.standard_normal((batch, shape[0])).astype(np.float32)
    bias = rng.standard_normal(shape[1]).astype(np.float32)
    place = np.array([rng.integers(max(len(x), 1)), rng.integers(shape[0])])
    np.savez(folder / "arrays.npz", weight=weight, bias=bias, x=x, place=place)


def check_layer(folder: Path) -> str:
    """Values are those of float64; in a row with a number that is none they may be NaN, as docs/trust.md says."""
    settings = json.loads((folder / "settings.json").read_text())
    arrays: dict[str, NDArray[Any]] = dict(np.load(folder / "arrays.npz"))
    weight, bias, x = arrays["weight"], arrays["bias"], arrays["x"]
    row, column = (int(place) for place in arrays["place"])
    case = Case(settings["family"], TARGETS[settings["target"]], weight.shape, settings["pattern"], len(x), 0)
    special = settings["special"] if len(x) else None
    finite = x.copy()
    if special is not None:
        finite[row, column] = 0
        x[row, column] = float(special)
    found = run(case, weight, bias, x)
    sums = finite.astype(np.float64) @ weight + bias
    right = np.abs(found - np.where(sums < 0, 0.5 * sums, sums)) <= rounding_of(finite, weight, bias)
    if special is not None:
        met = float(special) * weight[column]
        kept = weight[column] != 0
        right[row, kept] = found[row, kept] == met[kept]
        right[row] |= np.isnan(found[row])
    assert right.all(), f"{settings}, {weight.shape}: {np.count_nonzero(~right)} of {right.size} values are wrong"
    return settings["family"]


def draw_network(seed: int, folder: Path) -> None:
    """Some layers with masks of all kinds, and options for `compile`."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {
        "target": one_of(rng, list(HERE)),
        "threads": int(rng.integers(1, 4)),
        "drop_dead_rows": bool(rng.random() < 0.2),
        "reorder_seconds": 0.05 if rng.random() < 0.2 else 0.0,
        "schedule_seconds": 0.05 if rng.random() < 0.2 else 0.0,
        "batches": [one_of(rng, BATCHES) for _ in range(3)],
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    widths = [one_of(rng, (3, 16, 40, 64, 96, 128, 200, 320)) for _ in range(int(rng.integers(2, 5)))]
    if square := rng.random() < 0.4:
        widths = [one_of(rng, (64, 128, 256, 512))] * len(widths)
    arrays = list[Floats]()
    for shape in pairwise(widths):
        mask = _square_mask(rng, shape[0]) if square else PATTERNS[one_of(rng, sorted(PATTERNS))](rng, shape)
        if rng.random() < 0.4:
            mask = mask[rng.permutation(shape[0])][:, rng.permutation(shape[1])]
        values = rng.standard_normal(shape) / np.sqrt(1 + mask.sum(axis=0))
        arrays += [np.where(mask, values, 0).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)]
    (folder / "model.onnx").write_bytes(perceptron(arrays).SerializeToString())


def _square_mask(rng: np.random.Generator, width: int) -> NDArray[np.bool_]:
    match int(rng.integers(3)):
        case 0:
            return band(width, 12, 6, rng)
        case 1:
            return blocks(width, 16, 8, rng)
        case _:
            return np.repeat(np.repeat(rng.random((width // 16, width // 4)) < 0.15, 16, axis=0), 4, axis=1)


def perceptron(arrays: list[Floats]) -> onnx.ModelProto:
    """Gemm layers of weights and biases in turn, Relu between them."""
    constants = [numpy_helper.from_array(array, f"c{index}") for index, array in enumerate(arrays)]
    nodes, value, count = list[onnx.NodeProto](), "x", len(arrays) // 2
    for layer in range(count):
        result = "y" if layer == count - 1 else f"h{layer}"
        nodes.append(helper.make_node("Gemm", [value, f"c{2 * layer}", f"c{2 * layer + 1}"], [result], f"n{layer}"))
        if layer < count - 1:
            value = f"r{layer}"
            nodes.append(helper.make_node("Relu", [result], [value]))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", arrays[0].shape[0]), ("y", arrays[-1].size))
    ]
    graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_network(folder: Path) -> str:
    """Values are those of float64, and the same bits for any number of threads."""
    settings = json.loads((folder / "settings.json").read_text())
    proto = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
    arrays = [numpy_helper.to_array(constant) for constant in proto.graph.initializer]
    options = {word: settings[word] for word in ("drop_dead_rows", "reorder_seconds", "schedule_seconds")}
    threads = settings["threads"]
    network = redpebble.compile(
        proto, target=TARGETS[settings["target"]], cache=folder / "cache", threads=threads, **options
    )
    for number, batch in enumerate(settings["batches"]):
        x = np.random.default_rng((number, batch)).standard_normal((batch, arrays[0].shape[0])).astype(np.float32)
        (found,) = network.run(None, {"x": x})
        expected, bound = _exactly(arrays, x)
        wrong = ~(np.abs(found - expected) <= bound)
        assert not wrong.any(), f"{settings}, batch {batch}: {np.count_nonzero(wrong)} of {wrong.size} values are wrong"
        for fewer in range(1, threads):
            (other,) = network.run(None, {"x": x}, threads=fewer)
            assert other.tobytes() == found.tobytes(), f"{settings}, batch {batch}: other bits by {fewer} threads"
    return "right"


def _exactly(arrays: list[NDArray[Any]], x: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The outputs in float64, and what float32 may be off by: each layer passes that on and adds its own."""
    value, bound = x.astype(np.float64), np.zeros(x.shape)
    for index in range(0, len(arrays), 2):
        weight, bias = arrays[index], arrays[index + 1]
        # sums may be formed in any order, and layers may be merged, hence twice
        bound = bound @ np.abs(weight) + 2 * rounding_of(np.abs(value) + bound, weight, bias)
        value = value @ weight + bias
        if index < len(arrays) - 2:
            value = np.maximum(value, 0)
    return value, bound


LAYERS = Fuzzer("kernels", draw_layer, check_layer)
NETWORKS = Fuzzer("masks", draw_network, check_network)
