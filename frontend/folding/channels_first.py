"""Images whose channels stand last, as Keras and TensorFlow hold them, become images whose channels stand first.

Exporters write a Transpose before and behind each convolution, and all else between them on [N, H, W, C]:

```
before: a = Transpose<0, 3, 1, 2>(x)  b = Conv(a, v)  c = Transpose<0, 2, 3, 1>(b)  d = Mul(c, s)
        e = Transpose<0, 3, 1, 2>(d)  f = Conv(e, w)
after:  a = Transpose<0, 3, 1, 2>(x)  b = Conv(a, v)  d = Mul(b, s1)  f = Conv(d, w)      with s1 [1, C, 1, 1]
```

Each Transpose behind an image moves down, past nodes that compute value by value, along an axis, or over all pixels,
until it meets its inverse, or a node that needs its order. One behind an input of the graph moves up to the input.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from .known_constants import constant_array, initializer_of

Axes = tuple[int, ...]
"""An order of axes, as `perm` of Transpose states it."""

Inputs = list[onnx_ir.Value | None]

ON_IMAGES: Final = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"}
    | {"GlobalMaxPool", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "QLinearConv", "Resize", "SpaceToDepth"}
    | {"Upsample"}
)
"""Operators that read and yield images whose channels stand first."""

BY_VALUE: Final = frozenset(
    {
        "Abs",
        "Add",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Div",
        "Dropout",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
    }
    | {"HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal"}
    | {"Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tanh"}
    | {"ThresholdedRelu"}
)
"""Operators that compute each value of their result from those at the same place."""

ROUNDINGS: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})

RANKS: Final = (3, 4, 5)


class Held(NamedTuple):
    """A value that is a Transpose of another one: its axis i is axis `axes[i]` of `source`."""

    source: onnx_ir.Value
    axes: Axes


class Change(NamedTuple):
    """The inputs of a node behind which a Transpose has moved, its new attributes, and the Transpose of its results."""

    inputs: Sequence[onnx_ir.Value | None]
    attributes: Sequence[onnx_ir.Attr]
    axes: Axes


def channels_last(rank: int) -> Axes:
    """Return the order that puts the channels of images last."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Axes:
    """Return the order that puts channels first that stand last."""
    return (0, rank - 1, *range(1, rank - 1))


def with_channels_first(model: onnx_ir.Model) -> onnx_ir.Model | None:
    """Return a copy of a model whose images have their channels first; None where no Transpose is moved or spared.

    The model has no Constant nodes.
    """
    before = [node for node in model.graph if _is_transpose(node)]
    if not any(order == channels_last(len(order)) for order in map(_order_of, before)):
        return None
    copy = model.clone()
    moving = _Moving(copy)
    moving.move()
    return copy if moving.moves and sum(map(_is_transpose, copy.graph)) <= len(before) else None


def _is_transpose(node: onnx_ir.Node) -> bool:
    return (node.domain, node.op_type) == ("", "Transpose")


def _order_of(node: onnx_ir.Node) -> Axes:
    """Return the order that a Transpose states; an empty one where it reverses all axes."""
    stated = node.attributes.get("perm")
    return () if stated is None else tuple(stated.as_ints())


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(axis) for axis in range(len(axes)))


def _permuted(shape: onnx_ir.Shape | None, axes: Axes) -> onnx_ir.Shape | None:
    return None if shape is None or shape.rank() != len(axes) else onnx_ir.Shape([shape[axis] for axis in axes])


class _Moving:
    """A graph in which Transposes move."""

    def __init__(self, model: onnx_ir.Model) -> None:
        self._graph, self._version = model.graph, model.ir_version
        self.opset = model.opset_imports.get("", 0)
        self._held: dict[onnx_ir.Value, Held] = {}
        self._images: set[onnx_ir.Value] = set()
        self._constants: dict[tuple[onnx_ir.Value, Axes], onnx_ir.Value] = {}
        nodes = [*model.graph.all_nodes()]
        values = [value for node in nodes for value in (*node.inputs, *node.outputs) if value is not None]
        values += [*model.graph.inputs, *model.graph.initializers.values()]
        self._names = {value.name for value in values} | {node.name for node in nodes}
        self.moves = 0
        """Nodes that a Transpose has moved past."""

    def move(self) -> None:
        """Move each Transpose as far as it goes; those that nothing reads any more are gone."""
        for value in list(self._graph.inputs):
            if not value.is_initializer() and value.shape is not None and value.shape.rank() in RANKS:
                self._move_up(value, value.shape.rank())
        for node in list(self._graph):
            self._visit(node)
        for node in reversed(list(self._graph)):
            if _is_transpose(node) and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                self._graph.remove(node, safe=True)

    def _move_up(self, value: onnx_ir.Value, rank: int) -> None:
        """Put the channels of an input first where all that is made of it does so later."""
        uses = [*value.uses()]
        if all(_is_transpose(use.node) for use in uses) or not self._leads_to_images(value, rank):
            return
        readers = {use.node for use in uses}
        turned = self._transpose(value, channels_first(rank))
        back = self._transpose(turned, channels_last(rank))
        earliest = next(node for node in self._graph if node in readers)
        self._graph.insert_before(earliest, [one for one in (turned.producer(), back.producer()) if one is not None])
        for use in uses:
            use.node.replace_input_with(use.idx, back)
        self._held[back] = Held(turned, channels_last(rank))
        self._images |= {turned, back}

    def _leads_to_images(self, value: onnx_ir.Value, rank: int) -> bool:
        """Return whether all paths from a value lead, past work on it alone, to a Transpose to channels first."""
        pending = [value]
        for one in pending:
            nodes = [use.node for use in one.uses()]
            if not nodes or one.is_graph_output():
                return False
            for node in nodes:
                if _is_transpose(node) and _order_of(node) == channels_first(rank):
                    continue
                others = [other for other in node.inputs if other is not None and other is not one]
                passes = node.domain == "" and (node.op_type == "Pad" or node.op_type in BY_VALUE | ROUNDINGS)
                if not passes or node.graph is not self._graph or any(self.array(other) is None for other in others):
                    return False
                pending.append(node.outputs[0])
        return True

    def _visit(self, node: onnx_ir.Node) -> None:
        read = [value for value in node.inputs if value is not None]
        if _is_transpose(node):
            self._join(node)
            return
        if node.domain != "":
            return
        if node.op_type in ON_IMAGES or (node.op_type in MOVES and not self._images.isdisjoint(read)):
            self._images.update(node.outputs)
        held = next((self._held[value] for value in read if value in self._held), None)
        move = MOVES.get(node.op_type)
        change = None if held is None or move is None else move(self, node, held.axes)
        if change is not None:
            self._apply(node, change)

    def _join(self, node: onnx_ir.Node) -> None:
        """Let a Transpose read what its input is a Transpose of; where both undo each other, it is gone."""
        order, output = _order_of(node), node.outputs[0]
        held = self.held(node.inputs[0])
        if held is not None and len(order) == len(held.axes):
            order = tuple(held.axes[axis] for axis in order)
            node.replace_input_with(0, held.source)
            node.attributes["perm"] = onnx_ir.AttrInt64s("perm", order)
            self.moves += 1
        source = node.inputs[0]
        if source is None or order not in ((*range(len(order)),), channels_last(len(order))) or not order:
            return
        if order == channels_last(len(order)):
            if source in self._images:
                self._held[output] = Held(source, order)
        elif not output.is_graph_output():
            output.replace_all_uses_with(source)

    def _apply(self, node: onnx_ir.Node, change: Change) -> None:
        """Change a node, and put a Transpose behind it that yields what it did."""
        self.moves += 1
        node.resize_inputs(len(change.inputs))
        for index, value in enumerate(change.inputs):
            node.replace_input_with(index, value)
        for attribute in change.attributes:
            node.attributes[attribute.name] = attribute
        if change.axes == (*range(len(change.axes)),):
            return
        for output in node.outputs:
            uses, name, shape = [*output.uses()], output.name or "", output.shape
            output.name, output.shape = self._new_name(name), _permuted(shape, _inverse(change.axes))
            self._images.add(output)
            result = self._transpose(output, change.axes, name, shape)
            self._graph.insert_after(node, [one for one in (result.producer(),) if one is not None])
            for use in uses:
                use.node.replace_input_with(use.idx, result)
            for index, value in enumerate(self._graph.outputs):
                if value is output:
                    self._graph.outputs[index] = result
            self._held[result] = Held(output, change.axes)

    def _transpose(
        self, value: onnx_ir.Value, axes: Axes, name: str = "", shape: onnx_ir.Shape | None = None
    ) -> onnx_ir.Value:
        node = onnx_ir.node("Transpose", [value], {"perm": axes}, name=self._new_name(f"{value.name}_transpose"))
        result = node.outputs[0]
        result.name, result.type = name or self._new_name(value.name or ""), value.type
        result.shape = shape or _permuted(value.shape, axes)
        return result

    def _new_name(self, name: str) -> str:
        """Return a name like another one that nothing has."""
        count = 1
        while f"{name}_{count}" in self._names:
            count += 1
        self._names.add(f"{name}_{count}")
        return f"{name}_{count}"

    def held(self, value: onnx_ir.Value | None) -> Held | None:
        """Return what a value is a Transpose of."""
        return None if value is None else self._held.get(value)

    def array(self, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
        """Return the array of a constant, None for anything else."""
        return None if value is None else constant_array(value, self._version)

    def sources(self, node: onnx_ir.Node, axes: Axes) -> Inputs | None:
        """Return what all inputs of a node are a Transpose of, constants permuted; None where there are others."""
        found: Inputs = []
        for value in node.inputs:
            held = self.held(value)
            turned = held.source if held is not None and held.axes == axes else self._permuted_constant(value, axes)
            if turned is None and value is not None:
                return None
            found.append(turned)
        return found

    def _permuted_constant(self, value: onnx_ir.Value | None, axes: Axes) -> onnx_ir.Value | None:
        """Return a constant that varies along channels alone, in the order of a source; None for anything else."""
        array, rank = self.array(value), len(axes)
        if value is None or array is None or array.ndim > rank:
            return None
        if array.size == 1:
            return value
        aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
        if aligned.size != aligned.shape[axes.index(1)]:
            return None
        known = self._constants.get((value, axes))
        if known is None:
            known = self.constant(value.name or "", np.transpose(aligned, _inverse(axes)))
            self._constants[value, axes] = known
        return known

    def constant(self, name: str, array: NDArray[np.generic]) -> onnx_ir.Value:
        """Return a new constant, with a name like another one."""
        made = initializer_of(self._new_name(name), onnx_ir.tensor(np.ascontiguousarray(array)))
        self._graph.register_initializer(made)
        return made

    def integers(self, node: onnx_ir.Node, name: str, index: int, since: int) -> list[int] | None:
        """Return integers that are an attribute before an opset, and an input since; None where they are not stated."""
        if self.opset < since:
            stated = node.attributes.get(name)
            return None if stated is None else [*stated.as_ints()]
        array = self.array(node.inputs[index]) if index < len(node.inputs) else None
        return None if array is None else [int(one) for one in array.reshape(-1)]


Move = Callable[[_Moving, onnx_ir.Node, Axes], Change | None]
"""Says what becomes of a node when a Transpose moves past it; None where it does not."""


def _past_values(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    if node.op_type == "Cast" and node.outputs[0].is_graph_output():
        return None  # behind native code, which casts what it yields, and transposes float32 alone
    inputs = moving.sources(node, axes)
    has_others = any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
    return None if inputs is None or has_others else Change(inputs, (), axes)


def _past_rounding(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    parameters = [moving.array(value) for value in node.inputs[1:] if value is not None]
    is_one = all(array is not None and array.size == 1 for array in parameters)
    return _past_values(moving, node, axes) if is_one else None


def _past_axis(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    """Move past what joins or cuts values along an axis."""
    values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    sources = [moving.held(value) for value in values]
    if any(held is None or held.axes != axes for held in sources):
        return None
    stated = node.attributes.get("axis")
    axis = axes[(0 if stated is None else stated.as_int()) % len(axes)]
    inputs = [*(held.source for held in sources if held is not None), *node.inputs[len(values) :]]
    return Change(inputs, (onnx_ir.AttrInt64("axis", axis),), axes)


def _past_pad(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    held, pads, rank = moving.held(node.inputs[0]), moving.integers(node, "pads", 1, 11), len(axes)
    if held is None or pads is None or len(pads) != 2 * rank or len(node.inputs) > 3:
        return None
    order = _inverse(axes)
    turned = [pads[side * rank + axis] for side in (0, 1) for axis in order]
    if moving.opset < 11:
        return Change([held.source], (onnx_ir.AttrInt64s("pads", turned),), axes)
    name = f"{node.outputs[0].name}_pads"
    return Change([held.source, moving.constant(name, np.array(turned, np.int64)), *node.inputs[2:]], (), axes)


def _past_slice(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    held, starts = moving.held(node.inputs[0]), moving.integers(node, "starts", 1, 10)
    stated = moving.integers(node, "axes", 3, 10)
    if held is None or starts is None or (stated is None and len(node.inputs) > 3 and node.inputs[3] is not None):
        return None
    cut = [axes[axis % len(axes)] for axis in (stated if stated is not None else range(len(starts)))]
    if moving.opset < 10:
        return Change([held.source], (onnx_ir.AttrInt64s("axes", cut),), axes)
    kind = moving.array(node.inputs[1])
    # starts, ends and axes have one type
    made = moving.constant(f"{node.outputs[0].name}_axes", np.array(cut, None if kind is None else kind.dtype))
    return Change([held.source, *node.inputs[1:3], made, *node.inputs[4:]], (), axes)


def _past_reduction(since: int, moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    keepdims = node.attributes.get("keepdims")
    return _over_pixels(moving, node, axes, since, is_kept=keepdims is None or keepdims.as_int() == 1)


def _past_squeeze(moving: _Moving, node: onnx_ir.Node, axes: Axes) -> Change | None:
    return _over_pixels(moving, node, axes, 13, is_kept=False)


def _over_pixels(moving: _Moving, node: onnx_ir.Node, axes: Axes, since: int, *, is_kept: bool) -> Change | None:
    """Move past what reduces or drops the axes of all pixels: images and channels stay in their order."""
    held, stated = moving.held(node.inputs[0]), moving.integers(node, "axes", 1, since)
    pixels = [*range(2, len(axes))]
    if held is None or stated is None or sorted(axes[axis % len(axes)] for axis in stated) != pixels:
        return None
    result = axes if is_kept else (0, 1)
    if moving.opset < since:
        return Change([held.source], (onnx_ir.AttrInt64s("axes", pixels),), result)
    made = moving.constant(f"{node.outputs[0].name}_axes", np.array(pixels, np.int64))
    return Change([held.source, made], (), result)


MOVES: Final[Mapping[str, Move]] = MappingProxyType(
    {
        **dict.fromkeys(BY_VALUE, _past_values),
        **dict.fromkeys(ROUNDINGS, _past_rounding),
        "Concat": _past_axis,
        "Pad": _past_pad,
        "ReduceMax": partial(_past_reduction, 18),
        "ReduceMean": partial(_past_reduction, 18),
        "ReduceMin": partial(_past_reduction, 18),
        "ReduceSum": partial(_past_reduction, 13),
        "Slice": _past_slice,
        "Split": _past_axis,
        "Squeeze": _past_squeeze,
    }
)
"""Operator -> how a Transpose moves past it."""
