"""A graph of dynamo that is run by a session where that is right and faster, and by torch where it is not.

The first call runs the graph in torch and looks at what it did: a graph that changes its inputs, draws random numbers,
returns parts of its inputs or needs gradients stays with torch. Then a session is made of the graph and its weights,
its answer compared, and both are timed.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from ...foundation.errors import RedpebbleError
from ...foundation.log import LOG
from ...frontend.sparse_weights import LEAST_ZEROS
from ...verification.measuring import Budget, interleave
from ..batches import Output
from ..torch_zeros import dense_of, is_sparse
from .onnx_bytes import onnx_bytes
from .tensor_session import TensorSession, difference

MOST_WEIGHTS: Final = 64
"""Sets of weights that one graph has sessions for: torch runs layers that are alike by one graph."""

LEAST_VALUES: Final = 1024
"""Values of a weight below which its zeros gain nothing."""

COMPARED: Final = Budget(seconds=0.2, least_rounds=2)
"""The length of comparing the session's speed with torch's."""

Graph = Any
"""A `torch.fx.GraphModule`."""

Node = Any
"""A `torch.fx.Node`."""


@dataclass(frozen=True)
class Settings:
    """Options of the backend."""

    rest: str = "eager"
    """The backend of graphs without sparse layers."""
    threads: int = field(default_factory=torch.get_num_threads)

    @staticmethod
    def of(options: Mapping[str, Any] | None) -> "Settings":
        """Return the settings of `torch.compile`'s `options`.

        Raises:
            ValueError: there is no such option.
        """
        names = Settings.__annotations__
        for name in options or {}:
            if name not in names:
                raise ValueError(f"option of the backend redpebble: expected one of {', '.join(names)}, got {name!r}")
        return Settings(**dict(options or {}))


class _Taken(NamedTuple):
    """A session of a graph with certain weights."""

    weights: tuple[Tensor, ...]
    state: list[tuple[int, int]]
    """Versions and addresses of the weights as they were read."""
    running: TensorSession
    tensors: tuple[int, ...]
    """Inputs of the graph that are inputs of the session."""
    constants: Mapping[int, Any]
    """Outputs that are the same in every call."""
    outputs: int
    is_one: bool
    """Whether the graph returns a tensor and no tuple of them."""

    def run(self, inputs: Sequence[Any]) -> Output:
        found = iter(self.running([inputs[i] for i in self.tensors]))
        answer = tuple(self.constants[i] if i in self.constants else next(found) for i in range(self.outputs))
        return answer[0] if self.is_one else answer


class GraphPart(nn.Module):
    """A graph whose calls run in a session, for each set of weights that it is called with."""

    def __init__(
        self, graph: Graph, weights: Sequence[int], settings: Settings, split: Callable[[Graph], Graph] | None = None
    ) -> None:
        """Take a graph, and which of its inputs are weights; `split` cuts one that cannot be taken as a whole."""
        super().__init__()
        self._graph, self._weights, self._settings, self._split = graph, tuple(weights), settings, split
        self._taken: dict[tuple[int, ...], _Taken | None] = {}
        self._deciding = threading.Lock()
        self._has_changed = False

    def forward(self, *inputs: object) -> Output:
        key = tuple([id(inputs[i]) for i in self._weights])
        if key not in self._taken:
            if len(self._taken) >= MOST_WEIGHTS or not self._deciding.acquire(blocking=False):
                return self._graph(*inputs)
            try:
                return self._decide(key, inputs)
            finally:
                self._deciding.release()
        taken = self._taken[key]
        if taken is None:
            return self._graph(*inputs)
        if _state(taken.weights) != taken.state:
            self._tell_of_change()
            return self._graph(*inputs)
        try:
            return taken.run(inputs)
        except Exception as error:
            # torch says what is wrong about inputs, and takes those that the session does not
            LOG.debug("torch runs a graph again: %s", error)
            return self._graph(*inputs)

    def _decide(self, key: tuple[int, ...], inputs: Sequence[Any]) -> Output:
        """Run the graph for the first time with some weights, and decide how it is run from now on."""
        self._taken[key] = None
        if why := _obstacle(inputs, self._weights):
            LOG.info("torch keeps a graph: %s", why)
            return self._graph(*inputs)
        answer, why = _watched(self._graph, inputs)
        if not why:
            try:
                self._taken[key] = self._made(inputs, answer)
            except (RedpebbleError, ValueError) as error:
                why = str(error)
        if why:
            LOG.info("torch keeps a graph: %s", why)
            if self._split is not None and not _needs_gradients(answer):
                self._graph, self._split = self._split(self._graph), None
        return answer

    def _made(self, inputs: Sequence[Any], answer: Output) -> _Taken | None:
        is_one, answer = isinstance(answer, Tensor), _outputs(answer)
        weights = tuple(inputs[i] for i in self._weights)
        state, bound = _state(weights), _Bound(self._graph, inputs, self._weights)
        constants = {i: one for i, one in enumerate(answer) if i not in bound.kept}
        tensors = [inputs[i] for i in bound.tensors]
        model = onnx_bytes(bound, tuple(tensors), {}, bound.free, "the graph")
        running = TensorSession(model, self._settings.threads)
        if differs := difference([answer[i] for i in bound.kept], running(tensors)):
            raise ValueError(differs)
        taken = _Taken(weights, state, running, bound.tensors, constants, len(answer), is_one)
        calls: dict[str, Callable[[], object]] = {
            "torch": lambda: self._graph(*inputs),
            "session": lambda: taken.run(inputs),
        }
        times = interleave(calls, COMPARED)
        ours, theirs = times["session"].min_us, times["torch"].min_us
        if ours > theirs:
            LOG.info("torch keeps a graph: it takes %.0f us, a session %.0f", theirs, ours)
            return None
        LOG.info("a session runs a graph in %.0f us, which takes torch %.0f", ours, theirs)
        return taken

    def _tell_of_change(self) -> None:
        if not self._has_changed:
            LOG.warning("weights have changed since they were compiled, torch runs them; see torch.compiler.reset()")
        self._has_changed = True


class _Bound(nn.Module):
    """A graph with its weights inside: inputs are tensors, and outputs those that depend on them."""

    def __init__(self, graph: Graph, inputs: Sequence[Any], weights: Sequence[int]) -> None:
        super().__init__()
        self._graph = graph
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self.tensors = tuple(i for i, one in enumerate(inputs) if isinstance(one, Tensor) and i not in weights)
        for i in weights:
            value = inputs[i].detach()
            self.register_buffer(f"weight_{i}", dense_of(value) if is_sparse(value) else value)
        self._sizes = {i: _size_of(places, i, self.tensors) for i, one in enumerate(inputs) if isinstance(one, int)}
        self._weights, self._count = tuple(weights), len(inputs)
        free = [
            {axis: torch.export.Dim.AUTO for axis, size in enumerate(_shape(places[i])) if not isinstance(size, int)}
            for i in self.tensors
        ]
        self.free = {"tensors": tuple(free)}
        """Axes of the tensors whose sizes dynamo leaves open."""
        self.kept = _outputs_of_calls(graph, {places[i] for i in range(len(inputs)) if i not in self._weights})

    def forward(self, *tensors: Tensor) -> tuple[Any, ...]:
        values: list[Any] = [None] * self._count
        for i, one in zip(self.tensors, tensors, strict=True):
            values[i] = one
        for i in self._weights:
            values[i] = getattr(self, f"weight_{i}")
        for i, (place, axis) in self._sizes.items():
            values[i] = values[place].shape[axis]
        answer = _outputs(self._graph(*values))
        return tuple(answer[i] for i in self.kept)


def _obstacle(inputs: Sequence[Any], weights: Sequence[int]) -> str:
    """Return why no session can gain, by a look at what a graph gets."""
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    if not has_zeros([inputs[i] for i in weights]):
        return "no weight has enough zeros"
    if any(one.device.type != "cpu" for one in tensors):
        return "it does not run on the CPU"
    if torch.is_autocast_enabled("cpu"):
        return "types are chosen by autocast"
    if any(inputs[i].is_inference() for i in weights):
        return "changes of weights made in inference mode are not seen"
    if any(not isinstance(one, Tensor | int) for one in inputs):
        return "an input is neither a tensor nor a whole number"
    return ""


def has_zeros(weights: Sequence[Tensor]) -> bool:
    """Return whether one of some weights, or of their masks, may gain by its zeros."""
    for one in weights:
        if is_sparse(one):
            return True
        if one.dim() >= 2 and one.numel() >= LEAST_VALUES:
            zeros = one.numel() - int(torch.count_nonzero(one.detach()))
            if zeros >= LEAST_ZEROS * one.numel():
                return True
    return False


def _state(weights: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(one._version, one.data_ptr()) if one.layout == torch.strided else (one._version, 0) for one in weights]


def _watched(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, str]:
    """Run a graph in torch; return its answer, and why nothing else can run it."""
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    before = [one.detach().clone() if one.is_inference() else one._version for one in tensors]
    seed = torch.get_rng_state()
    answer = graph(*inputs)
    for one, old in zip(tensors, before, strict=True):
        if not (torch.equal(one, old) if isinstance(old, Tensor) else one._version == old):
            return answer, "it changes an input"
    if not torch.equal(seed, torch.get_rng_state()):
        return answer, "it draws random numbers"
    if _needs_gradients(answer):
        return answer, "its outputs have gradients"
    found = [one for one in _outputs(answer) if isinstance(one, Tensor)]
    if any(one.layout != torch.strided for one in found):
        return answer, "an output is sparse"
    stores = [one.untyped_storage().data_ptr() for one in found if one.numel()]
    given = {one.untyped_storage().data_ptr() for one in tensors if one.layout == torch.strided and one.numel()}
    if given & {*stores} or len({*stores}) < len(stores):
        return answer, "outputs share memory"
    return answer, ""


def _needs_gradients(answer: Output) -> bool:
    return any(isinstance(one, Tensor) and one.requires_grad for one in _outputs(answer))


def _outputs(answer: Output) -> tuple[Any, ...]:
    return tuple(cast("Sequence[Any]", answer)) if isinstance(answer, tuple | list) else (answer,)


def _shape(place: Node) -> Sequence[Any]:
    return getattr(place.meta.get("example_value"), "shape", ())


def _size_of(places: Sequence[Any], number: int, tensors: Sequence[int]) -> tuple[int, int]:
    """Return the tensor and the axis whose size a whole number among the inputs is.

    Raises:
        ValueError: it is none.
    """
    wanted = str(places[number].meta.get("example_value"))
    for i in tensors:
        for axis, size in enumerate(_shape(places[i])):
            if not isinstance(size, int) and str(size) == wanted:
                return i, axis
    raise ValueError("a whole number among the inputs: expected the size of an axis, got another")


def _outputs_of_calls(graph: Graph, inputs: set[Any]) -> tuple[int, ...]:
    """Return the outputs of a graph that depend on what differs from call to call.

    Raises:
        ValueError: there is none, or one of them is no tensor.
    """
    reached = set(inputs)
    for node in graph.graph.nodes:
        if any(one in reached for one in node.all_input_nodes):
            reached.add(node)
    (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
    kept = tuple(i for i, one in enumerate(_outputs(outputs)) if one in reached)
    if not kept:
        raise ValueError("outputs: expected one that depends on inputs, got none")
    return kept
