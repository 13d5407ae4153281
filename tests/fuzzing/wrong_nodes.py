"""`check --bisect` on random graphs in which one node, or a pair that a rewrite would take, is made wrong."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from redpebble.frontend.reading.model_source import read_runnable_model
from redpebble.tools.comparing.bisecting import Making, bisect
from redpebble.verification.compare import CheckPlan, Run, agree, compare_runs
from redpebble.verification.feeds import InputChoice
from redpebble.verification.oracle import Oracle, OracleError, Tolerance
from tests.fuzzing.fuzzer import Fuzzer, one_of
from tests.fuzzing.random_models import drawn_model

RIGHT = "/right"
"""What the name of a right value ends with, of which the wrong one is made."""


def draw(seed: int, folder: Path) -> None:
    """A model, inputs, the value that is wrong, and the one without whose node it would be right, if any."""
    rng, drawn = np.random.default_rng(seed), drawn_model(seed)
    (folder / "model.onnx").write_bytes(drawn.proto.SerializeToString())
    batch = one_of(rng, [one for one in drawn.batches if one])
    np.savez(folder / "feeds.npz", allow_pickle=False, **drawn.feeds(batch))
    moving = {value.name for value in drawn.proto.graph.input}
    pairs: list[tuple[str, str]] = []
    for node in drawn.proto.graph.node:
        before = [name for name in node.input if name in moving]
        if before:
            moving.update(node.output)
            makers = {name for other in drawn.proto.graph.node for name in other.output}
            pairs += [(node.output[0], name if name in makers else "") for name in before]
    wrong, before = one_of(rng, pairs or [("", "")])
    (folder / "settings.json").write_text(json.dumps({"wrong": wrong, "before": before if rng.random() < 0.5 else ""}))


def wrong_in(wrong: str, before: str) -> Making:
    """A way to run models that computes one value wrong, where the model also computes the one before."""

    def making(path: Path, outputs: Sequence[str]) -> Run:
        model = onnx.load_from_string(path.read_bytes())
        made = [name for node in model.graph.node for name in node.output]
        if wrong in made and (not before or before in made):
            _plant(model, wrong)
        target = path.with_name("faulty.onnx")
        target.write_bytes(model.SerializeToString())
        oracle = Oracle(target, exact=True)
        assert oracle.output_names == tuple(outputs)
        return oracle.run

    return making


def _plant(model: onnx.ModelProto, wrong: str) -> None:
    """Let one value be 1.5 times as large, and a half more."""
    nodes = list[onnx.NodeProto]()
    for node in model.graph.node:
        nodes.append(node)
        if wrong in node.output:
            node.output[:] = [name + RIGHT * (name == wrong) for name in node.output]
            nodes.append(helper.make_node("Mul", [wrong + RIGHT, "planted_factor"], ["planted_product"]))
            nodes.append(helper.make_node("Add", ["planted_product", "planted_term"], [wrong]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    numbers = {"planted_factor": 1.5, "planted_term": 0.5}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(x, np.float32), name) for name, x in numbers.items()
    )


def check(folder: Path) -> str:
    """The node is found where an output differs; its least model has it alone, or the pair, and differs again."""
    settings = json.loads((folder / "settings.json").read_text())
    model, least = onnx.load_from_string((folder / "model.onnx").read_bytes()), folder / "least.onnx"
    wrong, before = settings["wrong"], settings["before"]
    shaped = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*shaped.value_info, *shaped.output)}
    if types.get(wrong) != TensorProto.FLOAT:
        return "no floats"
    plan = CheckPlan((1,), 1, 0, Tolerance(), InputChoice(file=folder / "feeds.npz"))
    making = wrong_in(wrong, before)
    try:
        found = bisect(folder / "model.onnx", plan, making, least)
    except OracleError:
        return "refused by onnxruntime"
    if found is None:
        oracle = Oracle(folder / "model.onnx", exact=True)
        run = making(folder / "model.onnx", oracle.output_names)
        read = read_runnable_model(folder / "model.onnx")
        assert agree(compare_runs(plan, read, oracle, run)), f"{wrong} is wrong, and nothing is found"
        return "hidden"
    first_of = {name: node.output[0] for node in model.graph.node for name in node.output}
    assert found.node.outputs[0].name == wrong, f"expected {wrong}, got {found.node.outputs[0].name}"
    outputs = {node.outputs[0].name for node in found.nodes}
    assert outputs == {first_of[name] for name in (wrong, before) if name}, f"{wrong}, {before}: got {outputs}"
    again = CheckPlan((1,), 1, 0, Tolerance(), InputChoice(file=found.inputs))
    oracle = Oracle(least, exact=True)
    run = making(least, oracle.output_names)
    assert not agree(compare_runs(again, read_runnable_model(least), oracle, run)), "the least model agrees"
    return f"{len(found.nodes)} nodes"


WRONG_NODES = Fuzzer("bisect", draw, check)
