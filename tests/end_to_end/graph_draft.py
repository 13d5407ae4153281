"""An ONNX graph while it is drawn at random: its nodes, the values that may be read, pruned weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

T = TypeVar("T")

Attribute = int | float | str | list[int]

Floats = NDArray[np.float32]

PATTERNS = ("dense", "half", "sparse", "no column", "no row", "one value", "all zero", "equal columns")


@dataclass(frozen=True)
class Batch:
    """A dimension of `factor` times the batch."""

    factor: int


Dim = int | Batch


class Value(NamedTuple):
    """A float tensor of the graph and its shape; at most one dimension is a multiple of the batch."""

    name: str
    shape: tuple[Dim, ...]


@dataclass
class GraphDraft:
    """Nodes in order; `draw` is Hypothesis's, `rng` fills weights so that a failing example shrinks by structure."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    opset: int
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    inputs: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])
    kept: list[Value] = field(default_factory=list[Value])
    """Values that are outputs whatever else is."""

    def choose(self, options: Sequence[T]) -> T:
        """One of the options; shrinks towards the first."""
        index = int(self.draw(st.integers(0, len(options) - 1)))
        return options[index]

    def flip(self) -> bool:
        """True or False; shrinks towards False."""
        return bool(self.draw(st.booleans()))

    def size(self, low: int = 1, high: int = 9) -> int:
        """A size of an axis; sometimes wider than a vector register."""
        return self.choose((*range(low, high + 1), 17, 33))

    def start(self, length: int) -> int:
        """A place from 0 to `length`; shrinks towards the front."""
        return int(self.draw(st.integers(0, length)))

    def permutation(self, length: int) -> tuple[int, ...]:
        """The numbers below `length` in any order."""
        return tuple(self.draw(st.permutations(range(length))))

    def input(self, shape: Sequence[Dim]) -> Value:
        """A further input of the graph."""
        value = self.given(shape)
        self.values.append(value)
        return value

    def given(self, shape: Sequence[Dim]) -> Value:
        """A further input of the graph that only the caller reads."""
        value = Value(f"x{len(self.inputs)}", tuple(shape))
        self.inputs.append(value)
        return value

    def constant(self, array: NDArray[Any]) -> Value:
        """An initializer."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return Value(name, tuple(array.shape))

    def numbers(self, *shape: int) -> Value:
        """A constant of tame numbers from 0.5 to 1.5 with random signs."""
        array = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1, 1], shape)
        return self.constant(array.astype(np.float32))

    def positive(self, *shape: int) -> Value:
        """A constant of numbers from 0.5 to 1.5."""
        return self.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def integers(self, *values: int) -> Value:
        """An int64 constant: axes, sizes, shapes."""
        return self.constant(np.array(values, dtype=np.int64))

    def weight(self, rows: int, columns: int, fan_in: int) -> Floats:
        """A pruned matrix, scaled so that results stay near 1."""
        array: NDArray[np.float64] = self.rng.standard_normal((rows, columns)) / np.sqrt(fan_in)
        match self.choose(PATTERNS):
            case "half":
                array *= self.rng.random(array.shape) < 0.5
            case "sparse":
                array *= self.rng.random(array.shape) < 0.1
            case "no column":
                array[:, self.rng.random(columns) < 0.5] = 0
            case "no row":
                array[self.rng.random(rows) < 0.5] = 0
            case "one value":
                array *= np.arange(array.size).reshape(array.shape) == self.rng.integers(array.size)
            case "all zero":
                array *= 0
            case "equal columns":
                array[:] = array[:, :1]
            case _:
                pass
        return array.astype(np.float32)

    def node(
        self, operator: str, inputs: Sequence[Value | None], shape: Sequence[Dim], **attributes: Attribute
    ) -> Value:
        """A node of one output, which may be read from now on."""
        value = self.part(operator, inputs, shape, **attributes)
        self.values.append(value)
        return value

    def part(
        self, operator: str, inputs: Sequence[Value | None], shape: Sequence[Dim], **attributes: Attribute
    ) -> Value:
        """A node of one output that only the caller reads."""
        return self.node_with_parts(operator, inputs, [shape], **attributes)[0]

    def node_with_parts(
        self, operator: str, inputs: Sequence[Value | None], shapes: Sequence[Sequence[Dim]], **attributes: Attribute
    ) -> list[Value]:
        """A node of several outputs that only the caller reads."""
        index = len(self.nodes)
        outputs = [Value(f"v{index}_{place}", tuple(shape)) for place, shape in enumerate(shapes)]
        names = ["" if value is None else value.name for value in inputs]
        made = helper.make_node(operator, names, [value.name for value in outputs], f"n{index}")
        made.attribute.extend(helper.make_attribute(name, content) for name, content in attributes.items())
        self.nodes.append(made)
        return outputs

    def model(self, outputs: Sequence[Value], batch: int | None) -> onnx.ModelProto:
        """The graph as a model whose batch is a symbol, or the number `batch`."""
        inputs = [
            helper.make_tensor_value_info(value.name, TensorProto.FLOAT, declared(value.shape, batch))
            for value in self.inputs
        ]
        results = [helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None) for value in outputs]
        graph = helper.make_graph(self.nodes, "drawn", inputs, results, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def declared(shape: Sequence[Dim], batch: int | None) -> list[int | str]:
    """The shape as an input declares it; inputs have the batch itself, not a multiple."""
    return [dim if isinstance(dim, int) else "batch" if batch is None else batch for dim in shape]


def known(dim: Dim) -> bool:
    """Whether a dimension is a number."""
    return isinstance(dim, int)


def product(shape: Sequence[Dim]) -> Dim:
    """All dimensions as one."""
    whole = 1
    for dim in shape:
        whole *= dim if isinstance(dim, int) else dim.factor
    return whole if all(isinstance(dim, int) for dim in shape) else Batch(whole)
