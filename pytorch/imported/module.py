"""`OnnxModule`: an ONNX model as a module of torch, whose weights go back into the model by `updated`.

Products with a constant weight are `nn.Linear` and `nn.Conv*`, so that all of `redpebble.torch` works on it: `prune`,
`keep_zeros`, `distil`. Biases, scales of norms and the like are trained as well; tables of embeddings stay as they are,
as does a weight that something else reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn

from ...frontend.errors import ModelError, UnsupportedModelError, first_line
from ...frontend.reading.model_source import Source, inline_functions, read_model
from ..masks import set_mask
from . import arithmetic, images, rounding, sequences, shapes  # noqa: F401  # pyright: ignore[reportUnusedImport]
from .layers import LAYERS, Layer
from .nodes import OPERATORS, TYPES, Node, Operator, Value
from .residuals import residual_sums
from .stored_weights import Constants

SIZES: Final = 64
"""Values of a constant of whole numbers up to which it stays on the CPU: it may be a size."""

KEPT_ON_CPU: Final = frozenset(
    [
        "Reshape",
        "Expand",
        "Slice",
        "Tile",
        "Range",
        "ConstantOfShape",
        "Unsqueeze",
        "Squeeze",
        "Split",
        "Pad",
        "Resize",
        "TopK",
        "Trilu",
        "CumSum",
    ]
)
"""Operators whose inputs behind the first one are numbers that they are told."""

PRUNED_CODES: Final = 0.25
"""Share of codes that are zero from which on a quantized weight is a pruned one: some are zero by chance."""

TRAINED: Final[dict[str, tuple[int, ...]]] = {
    "Add": (0, 1),
    "BatchNormalization": (1, 2),
    "Conv": (2,),
    "ConvTranspose": (1, 2),
    "Gemm": (2,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "Mul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "com.microsoft.BiasGelu": (1,),
    "com.microsoft.SkipLayerNormalization": (2, 3, 4),
    "com.microsoft.SkipSimplifiedLayerNormalization": (2, 3),
}
"""Operator -> its inputs that are trained where they are constants of one axis."""

LARGEST_TRAINED: Final = 1e4
"""Values above are masks."""


@dataclass(frozen=True)
class _Step:
    """A node to run: what it reads and writes, and what nobody reads after it."""

    node: Node
    compute: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: str | None
    state: int | None
    """The number of the hidden state that its output is."""
    freed: tuple[str, ...] = ()


class OnnxModule(nn.Module):
    """A model of ONNX: takes inputs by name or in their order, and returns outputs by name.

    Half floats are computed with as float32.
    """

    def __init__(self, source: Source) -> None:
        """Read a model: a path, bytes, or one in memory.

        Raises:
            ModelError: it is unreadable, or has an operator that is not covered; the message names its node.
        """
        super().__init__()
        self._original = read_model(source)
        model = self._original.clone()
        inline_functions(model)
        self._opset = model.opset_imports.get("", 1)
        self._held = Constants.of(model)
        values = [one for one in model.graph.inputs if one.name not in self._held.raw]
        self.inputs: dict[str, torch.dtype | None] = {
            one.name or "": None if one.dtype is None else TYPES.get(int(one.dtype)) for one in values
        }
        self.outputs = [one.name or "" for one in model.graph.outputs]
        self.layers = nn.ModuleDict()
        self.vectors = nn.ParameterDict()
        self._stored: dict[str, Layer] = {}
        self._vector_names: dict[str, str] = {}
        self._constants: dict[str, Tensor] = {}
        self._sizes: dict[str, Tensor] = {}
        self._buffer_names: dict[str, str] = {}
        self._steps = self._built(_without_copies(model, self._held))
        self.states = nn.ModuleList(nn.Identity() for step in self._steps if step.state is not None)
        self._mask_zeros()

    def forward(self, *arguments: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
        """Compute the outputs by name.

        Raises:
            ValueError: inputs are missing, or there are others.
            ModelError: an operator does not take what comes in; the message names its node.
        """
        values: dict[str, Any] = dict(zip(self.inputs, arguments, strict=False)) | inputs
        missing = [name for name in self.inputs if name not in values]
        if missing or len(values) > len(self.inputs):
            raise ValueError(f"expected {', '.join(self.inputs)}, got {', '.join(values) or 'nothing'}")
        for name, dtype in self.inputs.items():
            values[name] = values[name] if dtype is None else values[name].to(dtype)
        for step in self._steps:
            self._run(step, values)
        return {name: values[name] if name in values else self._read(name, values) for name in self.outputs}

    def freeze(self, names: Iterable[str]) -> None:
        """Let the weights of layers stay as they are, by the names of their nodes."""
        wanted = set(names)
        for step in self._steps:
            if step.layer is not None and step.node.name in wanted:
                self.layers[step.layer].requires_grad_(False)

    @property
    def original(self) -> onnx_ir.Model:
        """The model as it was read."""
        return self._original

    def updated(self) -> onnx_ir.Model:
        """Return the model with the weights as they are now, in the types that it has; all else is what it was."""
        model = self._original.clone()
        found: dict[str, Any] = {}
        for key, layer in self._stored.items():
            module = self.layers[key]
            found[layer.weight.constant] = layer.weight.stored(layer.as_stored(module.weight.detach().cpu().float()))
        for name, key in self._vector_names.items():
            array = self._held.raw[name]
            found[name] = self.vectors[key].detach().cpu().float().numpy().astype(array.dtype).reshape(array.shape)
        produced = {one.outputs[0].name: one for one in model.graph if one.op_type == "Constant"}
        for name, array in found.items():
            kind = onnx_ir.DataType(self._held.types[name])
            tensor = onnx_ir.Tensor(np.ascontiguousarray(array), dtype=kind, name=name)
            if name in model.graph.initializers:
                model.graph.initializers[name].const_value = tensor
            else:
                node = produced[name]
                node.attributes.clear()
                node.attributes["value"] = onnx_ir.AttrTensor("value", tensor)
        return model

    def _built(self, nodes: list[onnx_ir.Node]) -> list[_Step]:
        layers = self._found_layers(nodes)
        trained = self._found_vectors(nodes, layers)
        states = residual_sums(nodes, {id(one) for one, _ in layers.values()}, self._held)
        steps, number = list[_Step](), 0
        for node in nodes:
            own = Node.of(node, self._opset)
            inputs = tuple("" if one is None else one.name or "" for one in node.inputs)
            outputs = tuple(one.name or "" for one in node.outputs)
            if id(node) in layers:
                layer = layers[id(node)][1]
                kept = tuple(inputs[index] for index in layer.inputs if index < len(inputs))
                steps.append(_Step(own, layer.compute, kept, outputs, layer.key, None))
            elif own.operator not in OPERATORS:
                raise UnsupportedModelError(
                    f"node {own.name!r}: operator {own.operator} cannot be trained through: expected one of "
                    f"{len(OPERATORS)} operators of encoders, decoders and networks of images"
                )
            elif not self._is_folded(own, inputs, outputs, trained):
                steps.append(_Step(own, OPERATORS[own.operator], inputs, outputs, None, None))
        found = list[_Step]()
        for step in steps:
            is_state = any(name in states for name in step.outputs)
            found.append(step if not is_state else _with_state(step, number))
            number += is_state
        if not number:
            # what layers answer stands for the states of a network without residual sums
            found = [_with_state(one, index) if one.layer else one for index, one in _numbered(found)]
        return _freeing(found, self.outputs)

    def _found_layers(self, nodes: list[onnx_ir.Node]) -> dict[int, tuple[onnx_ir.Node, Layer]]:
        """Return the layers by node, whose weights are read by such alone, each with its module."""
        found: dict[int, tuple[onnx_ir.Node, Layer]] = {}
        for node in nodes:
            make = LAYERS.get(Node.of(node, self._opset).operator)
            if make is not None and (layer := make(node, self._opset, self._held)) is not None:
                found[id(node)] = (node, layer)
        allowed = self._writable()
        shared: dict[str, list[Layer]] = {}
        for _, layer in found.values():
            shared.setdefault(layer.weight.constant, []).append(layer)
        reads = _root_reads(nodes, self._held)
        kept = {
            name
            for name, some in shared.items()
            if name in allowed and reads.get(name, 0) == len(some) and len({one.form for one in some}) == 1
        }
        keys: dict[str, str] = {}
        result: dict[int, tuple[onnx_ir.Node, Layer]] = {}
        for identity, (node, layer) in found.items():
            constant = layer.weight.constant
            if constant not in kept:
                continue
            if constant not in keys:
                keys[constant] = self._new_key(node.name or node.outputs[0].name or "layer")
                self.layers[keys[constant]] = layer.module()
                self._stored[keys[constant]] = layer
            result[identity] = (node, layer.called(keys[constant]))
        return result

    def _writable(self) -> set[str]:
        """Return the constants of the file's main graph: what functions hold stays as it is."""
        own = self._original.graph
        return {*own.initializers} | {one.outputs[0].name or "" for one in own if one.op_type == "Constant"}

    def _new_key(self, name: str) -> str:
        key = name.replace(".", "_")
        return key if key not in self.layers and not hasattr(nn.ModuleDict, key) else f"{key}_{len(self.layers)}"

    def _found_vectors(self, nodes: list[onnx_ir.Node], layers: dict[int, Any]) -> set[str]:
        """Make parameters of the constants of one axis that hidden values are added to or multiplied with."""
        computed, chosen, refused = _computed_by_layers(nodes, layers, self.inputs, self._held), set[str](), set[str]()
        allowed = self._writable()
        for node in nodes:
            own = Node.of(node, self._opset)
            places = TRAINED.get(own.operator, ())
            is_reached = any(one is not None and one.name in computed for one in node.inputs)
            for index, value in enumerate(node.inputs):
                if value is None or value.name not in self._held.raw:
                    continue
                is_one = is_reached and index in places and value.name in allowed
                (chosen if is_one and self._is_vector(value.name) else refused).add(value.name or "")
        for name in sorted(chosen - refused):
            key = f"vector_{len(self.vectors)}"
            parameter: Any = nn.Parameter
            self.vectors[key], self._vector_names[name] = parameter(self._held.tensor(name)), key
        return chosen - refused

    def _is_vector(self, name: str | None) -> bool:
        array = self._held.raw[name]
        if self._held.types[name] not in (1, 10, 16) or array.size < 2 or sum(one != 1 for one in array.shape) > 1:
            return False
        return bool((np.abs(array.astype(np.float32)) < LARGEST_TRAINED).all())

    def _is_folded(self, node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...], trained: set[str]) -> bool:
        """Compute what depends on constants alone, once."""
        if any(name and (name in trained or not self._is_constant(name)) for name in inputs):
            return False
        values: dict[str, Any] = {}
        with torch.no_grad():
            self._run(_Step(node, OPERATORS[node.operator], inputs, outputs, None, None), values)
        for name in outputs:
            if isinstance(values.get(name), torch.Tensor):
                self._keep(name, values[name])
        return True

    def _is_constant(self, name: str) -> bool:
        return name in self._held.raw or name in self._sizes or name in self._buffer_names

    def _keep(self, name: str, value: Tensor) -> Tensor:
        """Hold a constant: sizes on the CPU, all else where the module is."""
        if not value.is_floating_point() and value.numel() <= SIZES:
            self._sizes[name] = value
        else:
            self._buffer_names[name] = f"constant_{len(self._buffer_names)}"
            self.register_buffer(self._buffer_names[name], value.contiguous(), persistent=False)
        return value

    def _read(self, name: str, values: dict[str, Any]) -> Value:
        if not name:
            return None
        if name in values:
            return values[name]
        if name in self._vector_names:
            return self.vectors[self._vector_names[name]]
        if name in self._sizes:
            return self._sizes[name]
        if name in self._buffer_names:
            return getattr(self, self._buffer_names[name])
        return self._keep(name, self._held.tensor(name))

    def _run(self, step: _Step, values: dict[str, Any]) -> None:
        try:
            inputs = _together(step.node, [self._read(name, values) for name in step.inputs])
            if step.layer is None:
                found: Any = step.compute(step.node, *inputs)
            else:
                found = step.compute(step.node, self.layers[step.layer], *inputs)
        except ModelError:
            raise
        except (RuntimeError, ValueError, IndexError, KeyError, TypeError) as error:
            raise UnsupportedModelError(
                f"node {step.node.name!r}, operator {step.node.operator}: {first_line(error)}"
            ) from error
        results = cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,))
        values.update({name: value for name, value in zip(step.outputs, results, strict=False) if name})
        if step.state is not None:
            last = next(name for name in reversed(step.outputs) if name)
            values[last] = self.states[step.state](values[last])
        for name in step.freed:
            values.pop(name, None)

    def _mask_zeros(self) -> None:
        """Keep the zeros of weights that were pruned."""
        for key, layer in self._stored.items():
            module = self.layers[key]
            is_zero = module.weight.detach() == 0
            least = PRUNED_CODES * is_zero.numel() if layer.weight.rounding is not None else 1
            if int(is_zero.sum()) >= least:
                set_mask([module], ~is_zero)


def _without_copies(model: onnx_ir.Model, held: Constants) -> list[onnx_ir.Node]:
    """Return the nodes that compute: copies of constants, which exporters make of those that are equal, are these."""
    found = list[onnx_ir.Node]()
    for node in model.graph:
        source = node.inputs[0] if node.inputs else None
        is_copy = node.op_type == "Identity" and source is not None and source.name in held.raw
        if is_copy and source is not None and not node.outputs[0].is_graph_output():
            onnx_ir.convenience.replace_all_uses_with(node.outputs[0], source)
            continue
        if node.op_type != "Constant":
            found.append(node)
    return found


def _with_state(step: _Step, number: int) -> _Step:
    return _Step(step.node, step.compute, step.inputs, step.outputs, step.layer, number)


def _numbered(steps: Iterable[_Step]) -> Iterable[tuple[int, _Step]]:
    """Yield steps with the number of layers before each."""
    count = 0
    for step in steps:
        yield count, step
        count += step.layer is not None


def _freeing(steps: list[_Step], outputs: Iterable[str]) -> list[_Step]:
    """Let each step drop what nobody reads behind it."""
    seen, found = set(outputs), list[_Step]()
    for step in reversed(steps):
        last = tuple({name for name in (*step.inputs, *step.outputs) if name} - seen)
        seen.update(last)
        found.append(_Step(step.node, step.compute, step.inputs, step.outputs, step.layer, step.state, last))
    return found[::-1]


def _root_reads(nodes: Iterable[onnx_ir.Node], held: Constants) -> dict[str, int]:
    """Return how often each constant is read, those behind nodes that only move or widen it included."""
    roots: dict[str, str] = {}
    reads: dict[str, int] = {}
    for node in nodes:
        names = [one.name or "" for one in node.inputs if one is not None]
        first = names[0] if names else ""
        root = roots.get(first, first if first in held.raw else "")
        if root and node.op_type in ("Identity", "Cast", "Transpose", "DequantizeLinear"):
            roots[node.outputs[0].name or ""] = root
            names = names[1:]
        for name in names:
            found = roots.get(name, name if name in held.raw else "")
            if found:
                reads[found] = reads.get(found, 0) + 1
    return reads


def _computed_by_layers(
    nodes: Iterable[onnx_ir.Node],
    layers: Mapping[int, object],
    inputs: Mapping[str, torch.dtype | None],
    held: Constants,
) -> set[str]:
    """Return the values that are activations: made of embeddings, layers, or inputs of floats."""
    found = {name for name, dtype in inputs.items() if dtype is not None and dtype.is_floating_point}
    for node in nodes:
        names = [one.name for one in node.inputs if one is not None]
        is_table = node.op_type == "Gather" and names[0] in held.raw and held.raw[names[0]].ndim > 1
        is_table = is_table and held.types[names[0]] in (1, 10, 16)
        if id(node) in layers or is_table or (node.op_type not in ("Shape", "Size") and any(n in found for n in names)):
            found.update(one.name or "" for one in node.outputs)
    return found


def _together(node: Node, inputs: list[Any]) -> list[Any]:
    """Return inputs on one device; numbers that an operator is told may lie elsewhere."""
    devices = {one.device.type for one in inputs if one is not None}
    if len(devices) < 2:
        return inputs
    place = next(one.device for one in inputs if one is not None and one.device.type != "cpu")
    told = node.operator in KEPT_ON_CPU or node.operator.startswith("Reduce")
    return [one if one is None or (told and index) else one.to(place) for index, one in enumerate(inputs)]
