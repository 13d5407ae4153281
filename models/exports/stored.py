"""Stored exports as models: the graph that torch wrote, with pruned weights made of a seed."""

import gzip
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from ..pruned_weights import magnitude_mask

FOLDER: Final = Path(__file__).parent / "graphs"
LARGEST_KEPT: Final = 64
"""Entries of the largest initializer that is stored with its values."""

COLOURS: Final = 4
"""Channels of the images that a first convolution reads, at most; one channel each has a depthwise one."""

CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})

RECURRENCES: Final = frozenset({"GRU", "LSTM", "RNN"})

LINEAR: Final = frozenset({"Gemm", "MatMul"})


def stored_names() -> list[str]:
    """Return the names of all stored exports, such as `bert.classic`."""
    return sorted(path.name.removesuffix(".onnx.gz") for path in FOLDER.glob("*.onnx.gz"))


def stored_graph(name: str) -> onnx.ModelProto:
    """Return a stored export as it is: its large initializers hold nothing.

    Raises:
        ValueError: there is none of this name.
    """
    path = FOLDER / f"{name}.onnx.gz"
    if not path.is_file():
        raise ValueError(f"export: expected one of {', '.join(stored_names())}, got {name!r}")
    return onnx.ModelProto.FromString(gzip.decompress(path.read_bytes()))


def stored_export(name: str, sparsity: float = 0.9, seed: int = 0) -> onnx.ModelProto:
    """Return a stored export with weights: linear layers and recurrences lose the share `sparsity` of theirs.

    Those of smallest magnitude go. So it is with convolutions where most weights are theirs, but for the first one.

    Raises:
        ValueError: there is none of this name.
    """
    model, rng = stored_graph(name), np.random.default_rng(seed)
    pruned = pruned_names(model.graph)
    for tensor in model.graph.initializer:
        if not _is_hollow(tensor):
            continue
        array = _values(tuple(tensor.dims), rng)
        if tensor.name in pruned:
            array *= magnitude_mask(array, sparsity)
        tensor.raw_data = array.tobytes()
    return model


def pruned_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the weights that lose some: layers, recurrences, and convolutions but those of pictures."""
    of_pictures = {one.name for one in graph.initializer if len(one.dims) == 4 and one.dims[1] <= COLOURS}
    return {*_linear_weights(graph), *_convolution_weights(graph), *_recurrent_weights(graph)} - of_pictures


def hollow(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without what large float initializers hold, and without traces of the machine it was made on."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.metadata_props[:]
    del copy.graph.metadata_props[:]
    graphs: list[Any] = [copy.graph, *copy.functions]
    while graphs:
        graph = graphs.pop()
        for value in (*getattr(graph, "input", ()), *getattr(graph, "value_info", ()), *getattr(graph, "output", ())):
            if not isinstance(value, str):
                del value.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        for tensor in getattr(graph, "initializer", ()):
            del tensor.metadata_props[:]
            _hollow_tensor(tensor)
    copy.graph.doc_string = ""
    return copy


def _hollow_tensor(tensor: onnx.TensorProto) -> None:
    size = onnx.numpy_helper.to_array(tensor).size
    if tensor.data_type == onnx.TensorProto.FLOAT and size > LARGEST_KEPT:
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")


def random_feeds(model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Return inputs by name, in the shapes that `sizes` gives free axes; a mask hides the end of every second row."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, NDArray[np.generic]] = {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feeds[value.name] = rng.standard_normal(shape, dtype=np.float32)
        elif "mask" in value.name:
            mask = np.ones(shape, np.int64)
            mask[1::2, shape[1] // 2 + 1 :] = 0
            feeds[value.name] = mask
        else:
            feeds[value.name] = rng.integers(0, 2 if "type" in value.name else 50, shape)
    return feeds


def _is_hollow(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == onnx.TensorProto.FLOAT and prod(tensor.dims) > LARGEST_KEPT and not tensor.raw_data


def _linear_weights(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of initializers that linear layers read, maybe by way of a transpose."""
    transposed = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose"}
    for node in graph.node:
        if node.op_type in LINEAR:
            yield from node.input
            yield from (transposed[name] for name in node.input if name in transposed)


def _recurrent_weights(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of initializers that recurrences multiply inputs and states by."""
    for node in graph.node:
        if node.op_type in RECURRENCES:
            yield from node.input[1:3]


def _convolution_weights(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of initializers that convolutions of images read, where these hold most weights."""
    sizes = {tensor.name: prod(tensor.dims) for tensor in graph.initializer if len(tensor.dims) > 1}
    read = {name for node in graph.node if node.op_type in CONVOLUTIONS for name in node.input[1:2] if name in sizes}
    if 2 * sum(sizes[name] for name in read) > sum(sizes.values()):
        yield from read


def _values(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return values that keep the size of activations: positive along one axis, for variances are among them."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(prod(shape[1:]) ** -0.5)
