"""Digests of graphs: of all that can change which networks they have, and the code of these."""

import hashlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from .graph import GraphNode, OrtGraph


def graph_digest(graph: OrtGraph, threads: int) -> bytes:
    """Return a digest of a graph; its constants are read by some threads at once."""
    digest = hashlib.sha256()
    opsets, types = sorted(graph.opsets.items()), sorted(graph.types.items())
    digest.update(repr((graph.inputs, graph.outputs, graph.ir_version, opsets, types)).encode())
    for node in graph.nodes:
        for words in _node_words(node):
            digest.update(words)
    tables = _tables(graph)
    read = sorted(name for name in graph.constants if name not in tables)
    with ThreadPoolExecutor(threads) as pool:
        contents = pool.map(_content_digest, [graph.constants[name] for name in read])
        for name, content in zip(read, contents, strict=True):
            array = graph.constants[name]
            digest.update(repr((name, array.dtype.str, array.shape)).encode() + content)
    return digest.digest()


def _node_words(node: GraphNode) -> Iterator[bytes]:
    yield repr((node.name, node.operator, node.inputs, node.outputs)).encode()
    for attribute in sorted(node.attributes, key=lambda attribute: attribute.name):
        yield _attribute_words(attribute)
    for body in node.bodies:
        yield repr((body.name, len(body.nodes), body.outputs)).encode()
        for inner in body.nodes:
            yield from _node_words(inner)


def _attribute_words(attribute: onnx_ir.Attr) -> bytes:
    if attribute.type == onnx_ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return repr((attribute.name, str(tensor.dtype), tensor.shape)).encode() + tensor.tobytes()
    return repr((attribute.name, attribute.type, attribute.value)).encode()


def _content_digest(array: NDArray[Any]) -> bytes:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()


def _tables(graph: OrtGraph) -> Collection[str]:
    """Return the constants of which runs take rows, and nothing else: what they hold matters to no network.

    An encoder's table of words is half of the encoder.
    """
    taken: set[str] = set()
    read = {*graph.outputs}
    for node in graph.nodes:
        is_choice = node.operator == ("", "Gather") and node.inputs[1] not in graph.constants
        taken.update(node.inputs[:1] if is_choice else [])
        read.update(node.inputs[1:] if is_choice else node.inputs)
    return taken - read
