"""`torch.compile(model, backend="redpebble")`: sparse layers run in sessions, all else in torch.

A graph is taken as a whole where torch can export it and the session's answer is the same, or else in parts, of
functions that depend on nothing but their inputs. What has no zeros, is trained, or is not faster stays with torch.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from torch import Tensor, nn

from .graph_part import Graph, GraphPart, Node, Settings, has_zeros

VIEWS: Final = frozenset(
    "view reshape flatten permute transpose unsqueeze squeeze expand expand_as getitem chunk split unbind".split()  # noqa: SIM905
)
"""Functions and methods whose outputs may be parts of their inputs."""

PURE: Final = VIEWS | frozenset(
    """
    linear conv1d conv2d conv3d matmul bmm baddbmm addmm einsum scaled_dot_product_attention
    relu relu6 gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu mish softplus log_softmax softmax
    add sub mul truediv neg pow sqrt rsqrt exp log abs clamp clamp_min where maximum minimum
    layer_norm batch_norm group_norm instance_norm rms_norm
    contiguous size cat stack pad roll mean sum amax max_pool1d max_pool2d avg_pool2d adaptive_avg_pool2d interpolate
    pixel_shuffle to float type_as masked_fill
    """.split()  # noqa: SIM905
)
"""Functions and methods that compute outputs from inputs and do nothing else."""


def redpebble(graph: Graph, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Return what runs a graph of dynamo: the backend `redpebble` of `torch.compile`.

    Options are `rest`, the backend of graphs without sparse layers (`eager`, or `inductor`), and `threads`.

    Raises:
        ValueError: there is no such option.
    """
    settings = Settings.of(options)
    weights = _weights_of(graph, inputs)
    if not has_zeros([inputs[i] for i in weights]):
        if settings.rest == "eager":
            return graph.forward
        return import_module("torch._dynamo").lookup_backend(settings.rest)(graph, inputs)

    def split(whole: Graph) -> Graph:
        return _in_parts(whole, weights, settings)

    return GraphPart(graph, weights, settings, split)


def _weights_of(graph: Graph, inputs: Sequence[Any]) -> tuple[int, ...]:
    """Return the inputs of a graph that are parameters or buffers of modules."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return tuple(
        i
        for i, (place, value) in enumerate(zip(places, inputs, strict=True))
        if isinstance(value, nn.Parameter)
        or (isinstance(value, Tensor) and "_dynamo_static_input_type" in (place.meta.get("tensor_dict") or {}))
    )


def _in_parts(graph: Graph, weights: Sequence[int], settings: Settings) -> Graph:
    """Return a graph whose pure functions are together in parts, each of which decides for itself."""
    partitioner = import_module("torch.fx.passes.infra.partitioner")
    support = import_module("torch.fx.passes.operator_support")

    class Pure(support.OperatorSupportBase):
        def is_node_supported(self, submodules: object, node: Node) -> bool:
            if node.op not in ("call_function", "call_method") or (name := _name_of(node)) not in PURE:
                return False
            # a session returns no part of what else it returns
            return name not in VIEWS or any(self.is_node_supported(submodules, user) for user in node.users)

    names = {node.name for i, node in enumerate(graph.graph.nodes) if node.op == "placeholder" and i in weights}
    cut = partitioner.CapabilityBasedPartitioner(graph, Pure()).partition_and_fuse()
    for node in cut.graph.nodes:
        if node.op == "call_module":
            own = [i for i, one in enumerate(node.args) if one.name in names]
            setattr(cut, node.target, GraphPart(getattr(cut, node.target), own, settings))
    return cut


def _name_of(node: Node) -> str:
    # functions that write into their inputs have other names, or say so
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        return ""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
