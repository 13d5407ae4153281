"""Questions of the provider to the compiler: which nodes of a graph become networks, and the code of each."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from ...frontend.reading.free_axes import axes_in_question, dims_of, size_options
from ...frontend.sparse_weights import graph_of, has_sparse_convolution
from ...lowering.calls.network_table import ParameterNumbers
from ...runtime.store.artefact import Artefact, Sealed
from ..custom_ops.node import one_line
from .context_nodes import (
    ContextReader,
    ContextWriter,
    check_boundary,
    detached,
    fitting,
    is_context,
)
from .graph import BEHIND, Boundary, GraphNode, GraphReader, OrtGraph
from .graph_parts import NotOneNodeError, part_of
from .settings import EpSettings

MOST_CUTTINGS: Final = 3
"""Times that a graph is cut anew, which takes as long as planning it."""

NetworkModel = Callable[[], onnx.ModelProto]
"""Makes a network as a model of its own, with the inputs and outputs of its boundary under other names."""


class Found(NamedTuple):
    """A network that is predicted to gain."""

    boundary: Boundary
    model: NetworkModel


class Planned(NamedTuple):
    """A network of a graph: its boundary, its native code, and the key of the code."""

    boundary: Boundary
    artefact: Artefact
    key: str


class Plan(NamedTuple):
    """Plan for a graph: its networks, and a line for each network that stays with onnxruntime after all."""

    networks: Sequence[Planned] = ()
    given_up: Sequence[str] = ()


class Compiler(Protocol):
    """A compiler for the provider: where sparse networks lie in a model, and native code for one."""

    def recall(self, digest: bytes) -> Plan | None:
        """Return the plan of a graph that was seen before, None where it was not."""
        ...

    def remember(self, digest: bytes, plan: Plan) -> None:
        """Keep the plan of a graph."""
        ...

    def networks(self, model: onnx_ir.Model) -> list[Found]:
        """Return the networks that are predicted to gain.

        Raises:
            ModelError: the model is not read.
        """
        ...

    def compile(self, digest: bytes, model: NetworkModel) -> tuple[str, Artefact]:
        """Return native code for the network that `digest` tells from others, and `model` gives; and its key.

        Raises:
            ModelError: the network is not covered.
        """
        ...

    @property
    def cpus(self) -> int:
        """Number of threads that onnxruntime may give to a node."""
        ...


class Network(NamedTuple):
    """A network of a graph: its nodes, and what was planned; its model where a context is to be written."""

    nodes: tuple[GraphNode, ...]
    planned: Planned
    model: onnx.ModelProto | None = None


@dataclass(frozen=True)
class EpSession:
    """The provider in one session: what was asked of it, onnxruntime's logger, and the nodes that it has taken."""

    settings: EpSettings
    logger: int = 0
    networks: dict[frozenset[str], Network] = field(default_factory=dict[frozenset[str], Network])
    """Networks taken, by the names of their outputs, which no other node has."""


@dataclass(frozen=True)
class FusedNode:
    """Nodes that became one, in the graph that holds nothing else."""

    reader: GraphReader
    graph: int
    node: int

    @property
    def name(self) -> str:
        return self.reader.name(self.node)

    @cached_property
    def boundary(self) -> Boundary:
        """Inputs without constants, and outputs; also inputs that its network has no use for."""
        inputs, outputs = self.reader.inputs(self.node), self.reader.outputs(self.node)
        return tuple(name for name in inputs if name not in self.reader.constants), outputs

    @cached_property
    def context(self) -> GraphNode | None:
        """The one node of the graph, where that is one of ours."""
        return next((node for node in self.reader.graph(self.graph).nodes if is_context(node)), None)


class Networks(NamedTuple):
    """The networks of a graph, and a line for each one that stays with onnxruntime all the same."""

    taken: Sequence[Network]
    given_up: Sequence[str]


def networks_of(compiler: Compiler, seen: OrtGraph, *, anew: bool = False) -> Networks:
    """Return the networks of a graph, as they were planned before if it was seen before; `anew` with their models."""
    if any(map(is_context, seen.nodes)):
        return Networks((), ())  # what became no network then is none now
    digest = graph_digest(seen, compiler.cpus)
    found = None if anew else _recalled(compiler.recall(digest), seen)
    if found is None:
        found = _planned(compiler, seen, digest, with_models=anew)
        compiler.remember(digest, Plan([one.planned for one in found.taken], found.given_up))
    return found


def _recalled(plan: Plan | None, seen: OrtGraph) -> Networks | None:
    if plan is None:
        return None
    try:
        taken = [Network(part_of(seen, *one.boundary), one) for one in plan.networks]
    except NotOneNodeError:
        return None
    return Networks(taken, plan.given_up)


def _planned(compiler: Compiler, seen: OrtGraph, digest: bytes, *, with_models: bool) -> Networks:
    """Return the networks of a graph that is new.

    A network whose inside is needed outside, as the sizes of a tensor often are, is looked for again with the graph cut
    there: on one side of it, or on both, there may still be one.
    """
    cuts, parts = frozenset[str](), list[_Part]()
    whole = seen.model(cuts)
    left = _left_images(whole)
    for _ in range(MOST_CUTTINGS):
        try:
            networks = compiler.networks(seen.model(cuts) if cuts else whole)
        except Exception as error:  # whatever it is: onnxruntime runs the model
            return Networks((), [f"all of the model stays with onnxruntime: {one_line(error)}"])
        parts = _parts(seen, networks)
        more = {name for part in parts if isinstance(part.nodes, NotOneNodeError) for name in part.nodes.cuts}
        if more <= cuts:
            break
        cuts |= more
    found = _compiled(compiler, parts, digest, with_models=with_models)
    return Networks(found.taken, [*left, *found.given_up])


def _left_images(model: onnx_ir.Model) -> list[str]:
    """Return a line on sparse convolutions whose images have any size: code is made for sizes that are known."""
    if not axes_in_question(dims_of(model)).images or not has_sparse_convolution(graph_of(model)):
        return []
    return [
        "sparse convolutions stay with onnxruntime: images of any size; "
        f"`redpebble optimize {size_options(model)}` states one, redpebble.session takes all"
    ]


class _Part(NamedTuple):
    """A network with its nodes, or the reason why the nodes cannot become one."""

    found: Found
    nodes: tuple[GraphNode, ...] | NotOneNodeError


def _parts(seen: OrtGraph, networks: Sequence[Found]) -> list[_Part]:
    parts: list[_Part] = []
    members: set[int] = set()
    for boundary, model in networks:
        inputs, outputs = boundary
        found = Found((tuple(name.removeprefix(BEHIND) for name in inputs), outputs), model)
        try:
            nodes = part_of(seen, *found.boundary)
            found = _as_read(found, seen, nodes)
            if members.intersection(node.handle for node in nodes):
                raise NotOneNodeError("another network has some of its nodes")
        except NotOneNodeError as error:
            parts.append(_Part(found, error))
            continue
        parts.append(_Part(found, nodes))
        members.update(node.handle for node in nodes)
    return parts


def _as_read(found: Found, seen: OrtGraph, nodes: Sequence[GraphNode]) -> Found:
    """Return a network without the outputs that its own nodes alone read: onnxruntime's node would not have them.

    Where the graph was cut a network yields what others asked for, before they were cut or left to it as well.
    """
    (inputs, outputs), model = found
    members = {node.handle for node in nodes}
    read = {*seen.outputs, *(name for node in seen.nodes if node.handle not in members for name in node.inputs)}
    numbers = [number for number, name in enumerate(outputs) if name in read]
    if len(numbers) == len(outputs):
        return found
    return Found((inputs, tuple(outputs[number] for number in numbers)), partial(_with_outputs, model, numbers))


def _with_outputs(model: NetworkModel, numbers: Sequence[int]) -> onnx.ModelProto:
    proto = model()
    outputs = [proto.graph.output[number] for number in numbers]
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    return proto


def _compiled(compiler: Compiler, parts: Sequence[_Part], digest: bytes, *, with_models: bool) -> Networks:
    taken: list[Network] = []
    given_up: list[str] = []
    for (boundary, model), nodes in parts:
        try:
            if isinstance(nodes, NotOneNodeError):
                raise nodes
            key, artefact = compiler.compile(digest + repr(boundary).encode(), model)
        except Exception as error:  # whatever it is: onnxruntime has the nodes
            outputs = ", ".join(boundary[1])
            given_up.append(f"the sparse network that gives {outputs} stays with onnxruntime: {one_line(error)}")
            continue
        # made now: the constants that it copies are onnxruntime's, and gone when the context is written
        taken.append(Network(nodes, Planned(boundary, artefact, key), model() if with_models else None))
    return Networks(taken, given_up)


class Code(NamedTuple):
    """The code of a node, and which of the node's inputs and outputs are those of the network."""

    artefact: Artefact
    numbers: ParameterNumbers


def code_of(compiler: Compiler, session: EpSession, jobs: Sequence[FusedNode]) -> list[Code]:
    """Return the code of fused nodes.

    Raises:
        ValueError: a node is not covered, or what it holds cannot be used.
        ModelError: the network that a node holds is not covered.
    """
    with ThreadPoolExecutor(compiler.cpus) as pool:
        # checksums of many megabytes, which threads can look at together
        held = list(pool.map(partial(_held, session), jobs))
    return [_code_of(compiler, session, *pair) for pair in zip(jobs, held, strict=True)]


def _held(session: EpSession, job: FusedNode) -> Sealed | None:
    """Return the content of an EPContext node; None for other nodes."""
    node = None if _network(session, job) is not None else job.context
    if node is None:
        return None
    if session.settings.writes_context:
        raise ValueError(f"node {node.name!r}: expected the model that it was made from, got one compiled before")
    return ContextReader(job.reader, session.settings).open(node, job.graph)


def _network(session: EpSession, job: FusedNode) -> Network | None:
    return session.networks.get(frozenset(job.boundary[1]))


def _code_of(compiler: Compiler, session: EpSession, job: FusedNode, held: Sealed | None) -> Code:
    """Return the code of a fused node; of an EPContext node its own where that is trusted and fits, else made anew."""
    network = _network(session, job)
    if network is not None:
        artefact, boundary = network.planned.artefact, network.planned.boundary
    elif held is not None and job.context is not None:
        boundary = job.context.boundary
        artefact = (fitting(held) if session.settings.trusts_code else None) or _compiled_anew(compiler, held)
        check_boundary(job.name, job.boundary, boundary, artefact)
    else:
        raise ValueError(f"nodes that give {', '.join(job.boundary[1])} are not covered")
    found_inputs, found_outputs = job.boundary
    inputs, outputs = boundary
    return Code(
        artefact, ParameterNumbers(tuple(map(found_inputs.index, inputs)), tuple(map(found_outputs.index, outputs)))
    )


def _compiled_anew(compiler: Compiler, held: Sealed) -> Artefact:
    content = held.attachment.tobytes()
    return compiler.compile(content, partial(detached, held.name, content))[1]


def context_of(session: EpSession, job: FusedNode) -> int:
    """Return an EPContext node for a network.

    Raises:
        ValueError: the node holds none that was planned in this session.
    """
    network = _network(session, job)
    if network is None or network.model is None:
        raise ValueError(f"node {job.name!r} has no network to write")
    writer = ContextWriter(job.reader.functions, session.settings)
    payload = writer.payload(job.name, job.graph, network.planned.artefact, network.model)
    return writer.node(job.name, network.planned.boundary, payload)


# Digests of graphs: they cover everything that can change a graph's networks or their code.


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
