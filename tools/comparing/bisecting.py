"""`redpebble check --bisect`: the first node whose results differ from onnxruntime's, and the least model that differs.

Cuts of the model, from its inputs to a node, are compared until one differs of which no shorter one does. Then nodes
are taken away from the front, and values that onnxruntime computed are given instead, as long as the rest differs.
"""

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from onnx_ir.passes.common import ShapeInferencePass

from ...export.save_model import save_model
from ...frontend.kept_nodes import values_read
from ...frontend.reading.model_source import read_runnable_model
from ...verification.compare import CheckPlan, Run, agree, compare_runs
from ...verification.feeds import Feeds, InputChoice
from ...verification.oracle import Oracle

Making = Callable[[Path, Sequence[str]], Run]
"""Makes of a model, whose outputs have these names, what runs it in our way."""

Array = NDArray[Any]

MOST_DROPPED: Final = 64
"""Nodes that are tried to be left out of the least model, nearest to the inputs first."""


@dataclass(frozen=True)
class Bisection:
    """The first node that differs, and the files of the least model in which it still does."""

    node: onnx_ir.Node
    nodes: Sequence[onnx_ir.Node]
    """The nodes of the least model, in order; more than one where the fault needs the nodes before."""
    model: Path
    inputs: Path

    def lines(self) -> list[str]:
        """Return what was found, to be read."""
        (value, *_) = self.node.outputs
        least = ", ".join(map(node_words, self.nodes))
        return [
            f"the first node that differs: {node_words(self.node)}, whose result is {value.name!r}",
            f"the least model that still does: {self.model}, inputs {self.inputs}: {least}",
        ]


def node_words(node: onnx_ir.Node) -> str:
    """Return name and operator of a node."""
    return f"{node.op_type} {node.name!r}" if node.name else node.op_type


def bisect(path: Path, plan: CheckPlan, making: Making, target: Path) -> Bisection | None:
    """Return where a way to run a model first differs from onnxruntime; None where its outputs agree.

    The least model that differs is written to `target`, and the inputs on which it does beside it, as .npz.

    Raises:
        ModelError: the model is unreadable.
        OSError: a file cannot be written.
    """
    model = read_runnable_model(path)
    found = _first_difference(path, model, plan, making)
    if found is None:
        return None
    feeds, name = found
    with tempfile.TemporaryDirectory() as folder:
        cuts = _Cuts(model, feeds, replace(plan, batches=(1,), runs=1), making, Path(folder))
        output = next(value for value in model.graph.outputs if value.name == name).producer()
        if output is None or output not in cuts.nodes:
            return None
        first, least = _found(cuts, output)
        cuts.write(least, first, target)
    return Bisection(first, least, target, target.with_suffix(".npz"))


def _first_difference(path: Path, model: onnx_ir.Model, plan: CheckPlan, making: Making) -> tuple[Feeds, str] | None:
    """Return inputs on which an output differs, and its name."""
    oracle = Oracle(path, exact=True)
    run = making(path, oracle.output_names)
    with tempfile.TemporaryDirectory() as folder:
        for number, feeds in enumerate(plan.feeds(model)):
            file = Path(folder) / f"{number}.npz"
            np.savez(file, **dict(feeds), allow_pickle=False)
            once = replace(plan, inputs=InputChoice(file=file))
            wrong = [one.name for one in compare_runs(once, model, oracle, run) if one.mismatches]
            if wrong:
                return feeds, wrong[0]
    return None


@dataclass
class _Cuts:
    """Parts of a model that end at a node, as models of their own with inputs from onnxruntime."""

    model: onnx_ir.Model
    feeds: Feeds
    plan: CheckPlan
    making: Making
    folder: Path
    _known: dict[tuple[int, ...], bool] = field(default_factory=dict[tuple[int, ...], bool])

    @cached_property
    def nodes(self) -> list[onnx_ir.Node]:
        """The nodes that depend on an input, in order; all others are as good as weights."""
        moving = {value for value in self.model.graph.inputs if value.name not in self.model.graph.initializers}
        found: list[onnx_ir.Node] = []
        for node in self.model.graph:
            if any(value in moving for value in values_read(node)):
                found.append(node)
                moving.update(node.outputs)
        return found

    @cached_property
    def places(self) -> dict[onnx_ir.Node, int]:
        return {node: place for place, node in enumerate(self.nodes)}

    @cached_property
    def values(self) -> Mapping[str, Array]:
        """The values of all tensors that depend on an input, as onnxruntime computes them."""
        model = self.model.clone()
        named = {value.name: value for node in model.graph for value in node.outputs}
        ours = [value.name for node in self.nodes for value in node.outputs if value.name]
        outputs = {value.name for value in model.graph.outputs}
        model.graph.outputs.extend(named[name] for name in ours if name not in outputs)
        oracle = Oracle(model, exact=True)
        results = zip(oracle.output_names, oracle.run(self.feeds), strict=True)
        return dict(self.feeds) | {name: value for name, value in results if isinstance(value, np.ndarray)}

    @cached_property
    def inferred(self) -> Mapping[str, onnx_ir.Value]:
        """Values by name, with the shapes that follow from the model: sizes that calls may choose have names there."""
        model = self.model.clone()
        ShapeInferencePass()(model)
        return {value.name or "": value for node in model.graph for value in node.outputs}

    def before(self, node: onnx_ir.Node) -> list[onnx_ir.Node]:
        """Return the nodes that a node depends on, and itself at the end, in order."""
        found, waiting = {node}, [node]
        while waiting:
            for producer in self.producers(waiting.pop()):
                if producer not in found:
                    found.add(producer)
                    waiting.append(producer)
        return sorted(found, key=self.places.__getitem__)

    def producers(self, node: onnx_ir.Node) -> list[onnx_ir.Node]:
        """Return the nodes whose results a node reads."""
        makers = [value.producer() for value in values_read(node)]
        return [one for one in dict.fromkeys(makers) if one is not None and one in self.places]

    def differs(self, nodes: Collection[onnx_ir.Node], end: onnx_ir.Node) -> bool:
        """Return whether the results of `end` differ where `nodes` compute them, from right values in front."""
        key = (self.places[end], *sorted(self.places[node] for node in nodes))
        if key not in self._known:
            self._known[key] = self._compared(nodes, end)
        return self._known[key]

    def _compared(self, nodes: Collection[onnx_ir.Node], end: onnx_ir.Node) -> bool:
        path = self.folder / f"cut{len(self._known)}.onnx"
        try:
            model, inputs = self.write(nodes, end, path)
            oracle = Oracle(path, exact=True)
            run = self.making(path, oracle.output_names)
            return not agree(compare_runs(replace(self.plan, inputs=InputChoice(file=inputs)), model, oracle, run))
        except Exception:  # a part that cannot be run by itself is no example
            return False

    def write(self, nodes: Collection[onnx_ir.Node], end: onnx_ir.Node, path: Path) -> tuple[onnx_ir.Model, Path]:
        """Write the part that `nodes` are, and its inputs beside it; return both."""
        inner = {value for node in nodes for value in node.outputs}
        read = dict.fromkeys(value for node in nodes for value in values_read(node))
        moving = {*self.model.graph.inputs} | {value for node in self.nodes for value in node.outputs}
        inputs = [value for value in read if value in moving and value not in inner and value.name in self.values]
        outputs = [value for value in end.outputs if value.name in self.values]
        graph = onnx_ir.convenience.extract(self.model.graph, inputs, outputs)
        for value in (*graph.inputs, *graph.outputs):
            self._declare(value)
        model = onnx_ir.Model(graph, ir_version=self.model.ir_version, functions=tuple(self.model.functions.values()))
        save_model(model, path)
        arrays = {value.name or "": self.values[value.name or ""] for value in graph.inputs}
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **arrays)
        return model, path.with_suffix(".npz")

    def _declare(self, value: onnx_ir.Value) -> None:
        """Give a value the type and the shape that are known of it, or else those of its array."""
        array = self.values[value.name or ""]
        known = self.inferred.get(value.name or "", value)
        sizes = None if known.shape is None else known.shape.dims
        if value.type is None:
            value.type = onnx_ir.TensorType(onnx_ir.DataType.from_numpy(array.dtype))
        if sizes is None or len(sizes) != array.ndim:
            value.shape = onnx_ir.Shape(array.shape)
        elif value.shape is None:
            value.shape = onnx_ir.Shape(sizes)


def _found(cuts: _Cuts, end: onnx_ir.Node) -> tuple[onnx_ir.Node, list[onnx_ir.Node]]:
    """Return the first node that differs, and the fewest nodes that still do.

    A fault may be hidden on its way, by large values beside it, and be seen again: such a node is right by itself.
    """
    while True:
        first = _first_node(cuts, end)
        least = _least(cuts, first)
        earlier = [node for node in least[:-1] if cuts.differs(cuts.before(node), node)]
        if not earlier:
            return first, least
        end = earlier[0]


def _first_node(cuts: _Cuts, end: onnx_ir.Node) -> onnx_ir.Node:
    """Return a node that differs while none of those that it reads does, at or before `end`, which differs."""
    while True:
        line = cuts.before(end)
        least, most = 0, len(line) - 1  # the place of the first one that differs lies between
        while least < most:
            middle = (least + most) // 2
            if cuts.differs(cuts.before(line[middle]), line[middle]):
                most = middle
            else:
                least = middle + 1
        end = line[least]
        earlier = [node for node in cuts.producers(end) if cuts.differs(cuts.before(node), node)]
        if not earlier:
            return end
        end = earlier[0]


def _least(cuts: _Cuts, end: onnx_ir.Node) -> list[onnx_ir.Node]:
    """Return the fewest nodes found, up to `end`, that still differ."""
    line = cuts.before(end)
    count = 1
    while count < len(line) and not cuts.differs(line[-count:], end):
        count *= 2
    least, most = count // 2 + 1, min(count, len(line))
    while least < most:
        middle = (least + most) // 2
        if cuts.differs(line[-middle:], end):
            most = middle
        else:
            least = middle + 1
    nodes = line[-least:]
    for node in nodes[:-1][:MOST_DROPPED]:
        fewer = [one for one in nodes if one is not node]
        if cuts.differs(fewer, end):
            nodes = fewer
    return nodes
