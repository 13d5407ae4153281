"""Parts of a graph that can become one node of ours.

A network names its inputs and outputs. The nodes between them, which it replaces, may read more: sizes of tensors
that exporters compute at run time and the network knows. Such values become unused inputs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ...foundation.errors import RedpebbleError
from .graph import GraphNode, OrtGraph

LAYERS: Final = frozenset({"Attention", "Conv", "Gemm", "LayerNormalization", "MatMul", "Softmax"})
"""Operators that are not to be computed twice: once beside the network, for others, and once inside."""


FLOAT: Final = 1
"""`ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT`."""

HALVES: Final = frozenset({10, 16})
"""`ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16` and `..._BFLOAT16`."""

HALVES_STAY: Final = "its tensors are float16 or bfloat16, which redpebble.session and optimize compute as float"


class NotOneNodeError(RedpebbleError):
    """Nodes that compute a network cannot become one node; the message says why."""

    def __init__(self, message: str, cuts: Collection[str] = ()) -> None:
        """Keep the values that are asked for outside, or whose sizes are: cut there, it may be two that can."""
        super().__init__(message)
        self.cuts = frozenset(cuts)


def part_of(graph: OrtGraph, inputs: Collection[str], outputs: Collection[str]) -> tuple[GraphNode, ...]:
    """Return the nodes that one node takes the place of which computes `outputs` from `inputs`, in order.

    Nothing but `outputs` is read from outside, and no path leaves and comes back. Nodes that others need as well, such
    as those that work out sizes, stay outside.

    Raises:
        NotOneNodeError: there are no such nodes.
    """
    try:
        return _part_of(graph, inputs, outputs)
    except NotOneNodeError as error:
        try:
            # what only gives its size to a reshape may stand before the network, and stay there
            return _part_of(graph, inputs, outputs, past_sizes=False)
        except NotOneNodeError:
            raise error from None


def _part_of(
    graph: OrtGraph, inputs: Collection[str], outputs: Collection[str], *, past_sizes: bool = True
) -> tuple[GraphNode, ...]:
    """Return the nodes of `part_of`; with those that work out tensors of which only the size counts, `past_sizes`."""
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    known = {*producers, *graph.inputs}
    if not {*outputs} <= producers.keys() or not {*inputs} <= known:
        halves = any(kind in HALVES for kind, _ in graph.types.values())
        raise NotOneNodeError(HALVES_STAY if halves else "a value at its edge does not belong to the model")
    members = {node.handle for node in _behind(outputs, producers, inputs, past_sizes=past_sizes)}
    cuts = set[str]()
    while shared := _shared(graph, members, outputs):
        node, value = shared
        cuts |= _measured(graph, value, producers) - {*inputs}
        gone = [one for one in _behind([value], producers, inputs) if one.handle in members]
        layer = next((one for one in gone if one.operator[1] in LAYERS), None)
        if layer is not None or any(name in outputs for one in gone for name in one.outputs):
            reader = node.name or node.operator[1]
            raise NotOneNodeError(f"value {value} inside is read by node {reader!r} outside", cuts)
        members.difference_update(one.handle for one in gone)
    chosen = tuple(node for node in graph.nodes if node.handle in members)
    try:
        _check_codes(graph, chosen, outputs)
        _check_edge(graph, chosen, inputs, outputs)
        _check_paths(graph, chosen)
    except NotOneNodeError as error:
        raise NotOneNodeError(str(error), cuts | error.cuts) from error
    return chosen


def _check_codes(graph: OrtGraph, members: Sequence[GraphNode], outputs: Collection[str]) -> None:
    """Check that no dense layer outside computes with codes that are yielded as floats: it would compute with these.

    Behind convolutions it is small beside what they gain.

    Raises:
        NotOneNodeError: one does.
    """
    dequantized = {name for node in graph.nodes if node.operator[1] == "DequantizeLinear" for name in node.outputs}
    inside = {node.handle for node in members}
    if any(node.operator[1] == "Conv" for node in members):
        return
    for node in graph.nodes:
        reads = node.inputs[:2] if node.operator[1] in ("Gemm", "MatMul") and node.handle not in inside else ()
        if dequantized.issuperset(reads) and (found := {*reads}.intersection(outputs)):
            name = node.name or node.operator[1]
            raise NotOneNodeError(f"value {min(found)} are quantized, by which node {name!r} outside multiplies")


def _measured(graph: OrtGraph, value: str, producers: Mapping[str, GraphNode]) -> set[str]:
    """Return the nearest float tensors that a value comes from: itself, or those whose sizes it is made of."""
    found, seen, waiting = set[str](), set[str](), [value]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in producers:
            continue
        seen.add(name)
        if graph.types.get(name, (0, ()))[0] == FLOAT:
            found.add(name)
        else:
            waiting += producers[name].inputs
    return found


def _check_edge(
    graph: OrtGraph, members: Sequence[GraphNode], inputs: Collection[str], outputs: Collection[str]
) -> None:
    """Check that nodes read all inputs, and yield no output of the graph that is none of theirs.

    Raises:
        NotOneNodeError: they do not.
    """
    read = {name for node in members for name in node.inputs}
    made = {name for node in members for name in node.outputs}
    if unread := {*inputs} - read:
        raise NotOneNodeError(f"value {min(unread)} is read by none of its nodes")
    if yielded := made.intersection(graph.outputs) - {*outputs}:
        raise NotOneNodeError(f"value {min(yielded)} inside is an output of the model", yielded)


def _behind(
    names: Collection[str],
    producers: Mapping[str, GraphNode],
    inputs: Collection[str],
    *,
    past_sizes: bool = True,
) -> Iterator[GraphNode]:
    """Yield the nodes that work out some values, from `inputs` and from what no node yields, or sizes of anything."""
    seen: set[int] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        node = None if name in inputs else producers.get(name)
        if node is None or node.handle in seen:
            continue
        seen.add(node.handle)
        if past_sizes or node.operator[1] != "Shape":
            waiting += node.inputs
        yield node


def _shared(graph: OrtGraph, members: Collection[int], outputs: Collection[str]) -> tuple[GraphNode, str] | None:
    """Return a node outside, and a value of `members` that it reads without being one of `outputs`."""
    made = {name for node in graph.nodes if node.handle in members for name in node.outputs if name} - {*outputs}
    for node in graph.nodes:
        if node.handle not in members:
            for name in made.intersection(node.inputs):
                return node, name
    return None


def _check_paths(graph: OrtGraph, members: Sequence[GraphNode]) -> None:
    """Check that no node outside stands between two of `members`; nodes are in order.

    Raises:
        NotOneNodeError: one does.
    """
    handles = {node.handle for node in members}
    made = {name for node in members for name in node.outputs if name}
    behind: set[str] = set()
    for node in graph.nodes:
        if node.handle not in handles:
            if behind.intersection(node.inputs) or made.intersection(node.inputs):
                behind.update(filter(None, node.outputs))
        elif crossing := behind.intersection(node.inputs):
            raise NotOneNodeError(f"value {min(crossing)} comes back from outside")
