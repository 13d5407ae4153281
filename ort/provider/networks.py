"""Questions of the provider to the compiler: which nodes of a graph become networks, and the code of each."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import onnx_ir

from redpebble.ort.provider.context_nodes import (
    ContextReader,
    ContextWriter,
    check_boundary,
    detached,
    fitting,
    is_context,
)
from redpebble.ort.provider.digest import graph_digest
from redpebble.ort.provider.graph import Boundary, GraphNode, GraphReader, OrtGraph, in_order, part_of
from redpebble.ort.provider.settings import EpSettings
from redpebble.runtime.store.artefact import Artefact, Sealed


class Planned(NamedTuple):
    """A network of a graph: its boundary, its native code, and the name under which that is found again."""

    boundary: Boundary
    artefact: Artefact
    key: str


class Compiler(Protocol):
    """A compiler for the provider: where sparse networks lie in a model, and native code for one."""

    def recall(self, digest: bytes) -> list[Planned] | None:
        """Return the networks of a graph that was seen before, None where it was not."""
        ...

    def remember(self, digest: bytes, networks: Sequence[Planned]) -> None:
        """Keep the networks of a graph."""
        ...

    def networks(self, model: onnx_ir.Model) -> list[Boundary]:
        """Return inputs and outputs of the networks that are predicted to gain."""
        ...

    def compile(self, digest: bytes, model: Callable[[], onnx_ir.Model]) -> tuple[str, Artefact] | None:
        """Return native code for the network that `digest` tells from others, and `model` gives; and its key.

        None for a network that is not covered.
        """
        ...

    @property
    def cpus(self) -> int:
        """Number of threads that onnxruntime may give to a node."""
        ...


@dataclass(frozen=True)
class EpSession:
    """The provider in one session: what was asked of it, and the code of the nodes that it has taken."""

    settings: EpSettings
    artefacts: dict[Boundary, Artefact]


@dataclass(frozen=True)
class FusedNode:
    """Nodes that became one, in the graph that holds nothing else."""

    reader: GraphReader
    graph: int
    node: int

    @property
    def name(self) -> str:
        """The name that onnxruntime gave it."""
        return self.reader.name(self.node)

    @cached_property
    def boundary(self) -> Boundary:
        """Inputs without constants, and outputs."""
        inputs, outputs = self.reader.inputs(self.node), self.reader.outputs(self.node)
        return tuple(name for name in inputs if name not in self.reader.constants), outputs

    @cached_property
    def _seen(self) -> OrtGraph:
        return self.reader.graph(self.graph)

    @property
    def context(self) -> GraphNode | None:
        """The one node of the graph, where that is one of ours."""
        return next((node for node in self._seen.nodes if is_context(node)), None)

    def digest(self, threads: int) -> bytes:
        """Return what tells the network from others."""
        return graph_digest(self._seen, threads) + repr(self.boundary).encode()

    def model(self) -> onnx_ir.Model:
        """Return the nodes as a model of their own."""
        return self._seen.part(self._seen.nodes, *self.boundary)


class Network(NamedTuple):
    """A network of a graph: its boundary, its nodes, its native code, and the name under which that is found again."""

    boundary: Boundary
    nodes: tuple[GraphNode, ...]
    artefact: Artefact
    key: str


def networks_of(compiler: Compiler, seen: OrtGraph) -> list[Network]:
    """Return the networks of a graph, as they were planned before if it was seen before."""
    if any(map(is_context, seen.nodes)):
        return []  # what became no network then is none now
    digest = graph_digest(seen, compiler.cpus)
    found = _recalled(compiler.recall(digest), seen)
    if found is None:
        found = _planned(compiler, seen, digest)
        compiler.remember(digest, [Planned(one.boundary, one.artefact, one.key) for one in found])
    return found


def _recalled(planned: Sequence[Planned] | None, seen: OrtGraph) -> list[Network] | None:
    found: list[Network] = []
    for one in planned or []:
        nodes = part_of(seen, *one.boundary)
        if nodes is None:
            return None
        found.append(Network(one.boundary, nodes, one.artefact, one.key))
    return None if planned is None else found


def _planned(compiler: Compiler, seen: OrtGraph, digest: bytes) -> list[Network]:
    found: list[Network] = []
    taken: set[int] = set()
    for inputs, outputs in compiler.networks(seen.model()):
        nodes = part_of(seen, inputs, outputs)
        if nodes is None or taken.intersection(node.handle for node in nodes):
            continue
        boundary = in_order(nodes, inputs, outputs)
        compiled = compiler.compile(digest + repr(boundary).encode(), partial(seen.part, nodes, *boundary))
        if compiled is None:
            continue
        key, artefact = compiled
        found.append(Network(boundary, nodes, artefact, key))
        taken.update(node.handle for node in nodes)
    return found


class Code(NamedTuple):
    """The code of a node, and which of the node's outputs are those of the network."""

    artefact: Artefact
    output_places: tuple[int, ...]


def code_of(compiler: Compiler, session: EpSession, jobs: Sequence[FusedNode]) -> list[Code]:
    """Return the code of fused nodes.

    Raises:
        ValueError: a node is not covered, or what it holds cannot be used.
    """
    with ThreadPoolExecutor(compiler.cpus) as pool:
        # checksums of many megabytes, which threads can look at together
        held = list(pool.map(partial(_held, session), jobs))
    return [_code_of(compiler, session, *pair) for pair in zip(jobs, held, strict=True)]


def _held(session: EpSession, job: FusedNode) -> Sealed | None:
    """Return what an EPContext node holds; None for other nodes."""
    node = None if job.boundary in session.artefacts else job.context
    if node is None:
        return None
    if session.settings.writes_context:
        raise ValueError(f"node {node.name!r} was compiled before, expected the model that it was made from")
    return ContextReader(job.reader, session.settings).open(node, job.graph)


def _code_of(compiler: Compiler, session: EpSession, job: FusedNode, held: Sealed | None) -> Code:
    """Return the code of a fused node; of an EPContext node its own where that is trusted and fits, else made anew.

    Inputs and outputs may stand in an order of onnxruntime's own, for which there is no code yet.
    """
    artefact = session.artefacts.get(job.boundary)
    if artefact is None and held is not None and session.settings.trusts_code:
        artefact = fitting(held)
    if artefact is None:
        compiled = _compiled_anew(compiler, job, held)
        if compiled is None:
            raise ValueError(f"nodes that give {', '.join(job.boundary[1])} are not covered")
        artefact = compiled[1]
    inputs, outputs = job.boundary if held is None or job.context is None else job.context.boundary
    check_boundary(job.name, job.boundary, (inputs, outputs), artefact)
    return Code(artefact, tuple(map(job.boundary[1].index, outputs)))


def _compiled_anew(compiler: Compiler, job: FusedNode, held: Sealed | None) -> tuple[str, Artefact] | None:
    if held is None:
        return compiler.compile(job.digest(compiler.cpus), job.model)
    content = held.attachment.tobytes()
    return compiler.compile(content, partial(detached, held.name, content))


def context_of(session: EpSession, job: FusedNode, artefact: Artefact) -> int:
    """Return an EPContext node for a network."""
    writer = ContextWriter(job.reader.functions, session.settings)
    return writer.node(job.name, job.boundary, writer.payload(job.name, job.graph, artefact, job.model()))
