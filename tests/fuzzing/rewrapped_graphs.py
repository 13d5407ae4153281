"""The same computation in another form: parts of a graph as functions, branches of If, and bodies of Loop."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzzing.fuzzer import one_of

FUNCTIONS = "fuzzing.functions"
"""The domain of functions."""


class Piece(NamedTuple):
    """Consecutive nodes, what they read from outside, and what is read of them there."""

    first: int
    nodes: list[onnx.NodeProto]
    inputs: list[str]
    outputs: list[str]


def reads(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """The values that nodes read, those of their branches and bodies too, in order and each once."""
    found: dict[str, None] = {}
    for node in nodes:
        found |= dict.fromkeys(name for name in node.input if name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = attribute.g
                made = {name for one in inner.node for name in one.output} | {value.name for value in inner.input}
                captured = [*reads(inner.node), *(value.name for value in inner.output)]
                found |= dict.fromkeys(name for name in captured if name not in made)
    return [*found]


def piece_of(graph: onnx.GraphProto, rng: np.random.Generator) -> Piece | None:
    """Some nodes that follow each other."""
    first = int(rng.integers(len(graph.node)))
    end = first + int(rng.integers(1, 6))
    nodes = [*graph.node[first:end]]
    made = [name for node in nodes for name in node.output if name]
    outside = {*reads([*graph.node[:first], *graph.node[end:]]), *(value.name for value in graph.output)}
    outputs = [name for name in made if name in outside]
    inputs = [name for name in reads(nodes) if name not in made]
    return Piece(first, nodes, inputs, outputs) if outputs and inputs else None


def rewrapped(model: onnx.ModelProto, rng: np.random.Generator) -> list[str]:
    """Put pieces of the model's graph into functions, branches and bodies; return which, in order."""
    done = list[str]()
    for _ in range(int(rng.integers(0, 4))):
        piece = piece_of(model.graph, rng)
        if piece is None:
            continue
        what = one_of(rng, ("function", "function", "branch", "loop"))
        if what == "function":
            made = _call(model, piece, len(done))
        elif what == "branch":
            made = _branch(model, piece, len(done), rng)
        else:
            made = _loop(model, piece, len(done), rng)
        after = [*model.graph.node[piece.first + len(piece.nodes) :]]
        del model.graph.node[piece.first :]
        model.graph.node.extend([*made, *after])
        done.append(what)
    return done


def _call(model: onnx.ModelProto, piece: Piece, number: int) -> list[onnx.NodeProto]:
    function = model.functions.add(name=f"function{number}", domain=FUNCTIONS)
    function.input.extend(piece.inputs)
    function.output.extend(piece.outputs)
    function.node.extend(piece.nodes)
    if FUNCTIONS not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(FUNCTIONS, 1))
    function.opset_import.extend(model.opset_import)
    return [helper.make_node(function.name, piece.inputs, piece.outputs, f"call{number}", domain=FUNCTIONS)]


def _constant(model: onnx.ModelProto, array: Sequence[int] | int, dtype: type[np.generic], name: str) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.array(array, dtype=dtype), name))
    return name


def _branch(model: onnx.ModelProto, piece: Piece, number: int, rng: np.random.Generator) -> list[onnx.NodeProto]:
    """If whose other branch computes the negative; the condition is a constant, or computed of one."""
    taken, computed = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    condition = _constant(model, taken != computed, np.bool_, f"condition{number}")
    nodes = list[onnx.NodeProto]()
    if computed:
        nodes.append(helper.make_node("Not", [condition], [f"not{number}"]))
        condition = f"not{number}"
    right = _body(piece.nodes, piece.outputs, f"_right{number}")
    wrong = _body(piece.nodes, piece.outputs, f"_wrong{number}", negated=True)
    branches = {"then_branch": right if taken else wrong, "else_branch": wrong if taken else right}
    chosen = helper.make_node("If", [condition], piece.outputs, f"if{number}")
    chosen.attribute.extend(helper.make_attribute(name, graph) for name, graph in branches.items())
    nodes.append(chosen)
    return nodes


def _loop(model: onnx.ModelProto, piece: Piece, number: int, rng: np.random.Generator) -> list[onnx.NodeProto]:
    """Loop that computes the same each time; what it begins with is not read."""
    times = _constant(model, int(rng.integers(1, 4)), np.int64, f"times{number}")
    go_on = _constant(model, 1, np.bool_, f"go_on{number}")
    start = numpy_helper.from_array(np.array(0, dtype=np.float32), f"start{number}")
    model.graph.initializer.append(start)
    body = _body(piece.nodes, piece.outputs, f"_loop{number}")
    ports = [(f"round{number}", TensorProto.INT64, ()), (f"on_in{number}", TensorProto.BOOL, ())]
    body.input.extend(helper.make_tensor_value_info(*port) for port in ports)
    body.input.extend(
        helper.make_tensor_value_info(f"before{number}_{index}", TensorProto.FLOAT, None)
        for index in range(len(piece.outputs))
    )
    body.node.append(helper.make_node("Identity", [f"on_in{number}"], [f"on_out{number}"]))
    results = [*body.output]
    del body.output[:]
    body.output.extend([helper.make_tensor_value_info(f"on_out{number}", TensorProto.BOOL, ()), *results])
    inputs = [times, go_on, *[start.name] * len(piece.outputs)]
    return [helper.make_node("Loop", inputs, piece.outputs, f"loop{number}", body=body)]


def _body(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], suffix: str, *, negated: bool = False
) -> onnx.GraphProto:
    """The nodes as a graph; all that they make has other names there."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    made = {name for node in copies for name in node.output if name}
    for node in copies:
        _rename(node, made, suffix)
    names = [name + suffix for name in outputs]
    if negated:
        copies += [helper.make_node("Neg", [name], [f"{name}_negated"]) for name in names]
        names = [f"{name}_negated" for name in names]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    return helper.make_graph(copies, f"body{suffix}", [], results)


def _rename(node: onnx.NodeProto, names: set[str], suffix: str) -> None:
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            if name in names:
                field[index] = name + suffix
    node.name += suffix
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            _rename_inside(attribute.g, names, suffix)


def _rename_inside(graph: onnx.GraphProto, names: set[str], suffix: str) -> None:
    """Rename what a branch captures, and what it makes as well: one copy of it stays elsewhere."""
    made = {name for node in graph.node for name in node.output if name} | {value.name for value in graph.input}
    for node in graph.node:
        _rename(node, names | made, suffix)
    for values in (graph.input, graph.output):
        for value in values:
            if value.name in names | made:
                value.name += suffix
