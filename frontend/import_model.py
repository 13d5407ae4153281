"""Import of an ONNX model as a module of the `pebble` dialect: the page to read first in this folder.

```
read_model          any source, checked                                   reading/model_source.py, model_checks.py
raise_opset         older opsets, where networks are to be written        reading/raised_opset.py
widen               half precision becomes float32                        folding/half_precision.py
inline_functions    no model-local functions; none with layers (keep)     reading/model_source.py
fold_model          what depends on weights alone becomes a weight,       fold_model.py, folding/fold_weights.py,
                    and sizes that are the same in every call do          fold_model.py
channels_first      images have their channels first              folding/channels_first.py
open_codes          operators on codes become those of floats     folding/open_codes.py
                    between roundings
give_float_ends     layers of bytes read and yield floats at their ends   folding/integer_ends.py
                    (keep)
give_own_roundings  convolutions on codes that stay round for     folding/kept_roundings.py
                    themselves (keep)
translate           a node at a time, by the table of converters          translation.py, operators/table.py
```
"""

from collections.abc import Callable, Mapping, Set
from functools import partial
from itertools import chain
from typing import Final, Literal, NamedTuple

import onnx_ir
from xdsl.dialects.builtin import ModuleOp

from ..dialect.wanted_kernels import METADATA, kernels_in, want_kernels
from ..kernels.machine import ANY_MACHINE, Machine
from ..sparse.densities import MOSTLY_ZEROS
from .errors import NothingToGainError
from .fold_model import fold_model
from .folding.channels_first import with_channels_first
from .folding.half_precision import widen
from .folding.integer_ends import give_float_ends, is_dense_behind
from .folding.open_codes import open_codes
from .limits import check_made_nodes
from .operators.scope import FixedSize
from .operators.shape_inference import check_operators
from .operators.table import LAYERS
from .reading.faults import reading
from .reading.free_axes import state_sizes
from .reading.function_calls import call_tree
from .reading.held_tensors import held_tensors
from .reading.model_source import Source, inline_functions, inline_layers, read_model
from .reading.raised_opset import raise_opset, raising_obstacle
from .sparse_weights import CONVOLUTIONS, weight_zeros
from .translation import Keep, translate

# Convolutions and dense products on codes that stay with the runtime have a rounding of their own, in place.
#
# before: `f = DequantizeLinear(q, s, z)  y = Conv(f, w)`, and f becomes part of a network that yields floats
# after:  `f = DequantizeLinear(q, s, z)  p = QuantizeLinear(f, s, z)  g = DequantizeLinear(p, s, z)  y = Conv(g, w)`
#
# A runtime computes with codes where it sees both nodes. Where it makes f itself, it drops the pair.


def give_own_roundings(
    model: onnx_ir.Model,
    stays: Callable[[onnx_ir.Node], bool],
    is_dense: Callable[[onnx_ir.Model, onnx_ir.Node], bool],
) -> bool:
    """Insert the pairs before convolutions that stay, and dense products; return whether there were any."""
    known: dict[onnx_ir.Value, onnx_ir.Value] = {}
    staying = [node for node in model.graph if _is_convolution(node) and stays(node)]
    for node in [*staying, *(node for node in model.graph if is_dense(model, node))]:
        value = node.inputs[0]
        source = None if value is None else value.producer()
        if value is None or source is None or source.op_type != "DequantizeLinear" or source.inputs[0] is None:
            continue
        if source.inputs[0].producer() is None:
            continue
        if value not in known:
            known[value] = _repeated(model.graph, source, value)
        node.replace_input_with(0, known[value])
    return bool(known)


def _is_convolution(node: onnx_ir.Node) -> bool:
    return node.op_type == "Conv" and node.domain == ""


def _repeated(graph: onnx_ir.Graph, source: onnx_ir.Node, value: onnx_ir.Value) -> onnx_ir.Value:
    """Return what a value is after it was rounded again."""
    parameters, attributes = source.inputs[1:], list(source.attributes.values())
    quantize = onnx_ir.node("QuantizeLinear", [value, *parameters], name=f"{value.name}_again")
    dequantize = onnx_ir.Node(
        "", "DequantizeLinear", [quantize.outputs[0], *parameters], attributes, name=f"{value.name}_back"
    )
    codes, floats, before = quantize.outputs[0], dequantize.outputs[0], source.inputs[0]
    assert before is not None
    codes.name, codes.type, codes.shape = f"{value.name}_codes_again", before.type, value.shape
    floats.name, floats.type, floats.shape = f"{value.name}_floats_again", value.type, value.shape
    graph.insert_after(source, [quantize, dequantize])
    return floats


__all__ = ["Imported", "Source", "import_model"]


class Imported(NamedTuple):
    """A module, and the model that its `pebble.foreign` ops point into by their position in `list(model.graph)`."""

    module: ModuleOp
    model: onnx_ir.Model
    expanded: frozenset[str]
    """Nodes whose values are moved for the sake of a layer, see `node_identity`."""
    reasons: Mapping[int, str]
    """Position of a node that stays -> what is not accepted of it."""
    waiting: frozenset[int]
    """Positions of nodes that wait for the sizes of an image."""
    rewritten: bool
    """Whether `model` computes in float32 what the source computes in half precision or bytes, or without functions."""
    made: frozenset[str]
    """Names of initializers of `model` that the source does not have: folding made them."""


MOST_NODES: Final = 20_000
"""Nodes of a graph that is looked through for what may gain: each takes about a millisecond."""

MOST_WITHOUT_LAYERS: Final = 2_000
"""Nodes of a graph that is looked through though it has no layers, or small ones: weights may still be folded."""

LEAST_VALUES: Final = 64
"""Values for each node that the tensors of a larger graph hold: layers of fewer save less time than they take here."""


def import_model(
    source: Source,
    *,
    foreign: Literal["keep", "refuse", "prologue"],
    whole: Set[str] | None = None,
    may_be_hopeless: bool = True,
    may_add: bool = True,
    may_raise: bool = False,
    leaves_front: bool = False,
    dense_codes: bool = True,
    machine: Machine = ANY_MACHINE,
) -> Imported:
    """Return the model as a module with one function `@main`.

    `refuse` covers every node or fails; `keep` leaves what is not covered as `pebble.foreign`, also a node that would
    have its values moved and is one of `whole`: all such nodes where that is None. `prologue` leaves no node but
    those that are not covered, which are computed before all others.
    Unless it `may_add`, networks read and yield values of the model only. Where it `may_raise`, an older opset becomes
    one that sparse networks can be written in, if all nodes mean the same there. It `leaves_front`, see `Keep`, where
    networks begin at layers with zeros: to find out later takes a second reading. `dense_codes` says whether weights of
    four bits with few zeros may gain, and `machine` where layers of bytes have to.

    Raises:
        InvalidModelError: the model is unreadable or contradicts itself.
        NothingToGainError: unless it `may_be_hopeless`, a graph takes longer to look through than it is worth.
        UnsupportedModelError: something is not covered.
    """
    with reading():
        model = read_model(source)
        if not may_be_hopeless:
            _check_hope(model)
        if may_raise and not raising_obstacle(model):
            raise_opset(model)
        keep = Keep(foreign != "refuse", moving=foreign == "keep", whole=whole, may_add=may_add)
        keep = keep._replace(leaves_front=leaves_front, dense_codes=dense_codes, machine=machine)
        return _imported(model, keep)


def _check_hope(model: onnx_ir.Model) -> None:
    count = len(model.graph)
    if count > MOST_NODES:
        raise NothingToGainError(f"expected a graph of up to {MOST_NODES} nodes, got {count}", model)
    if count <= MOST_WITHOUT_LAYERS:
        return
    # layers of bodies and functions may gain as well
    inside = chain(model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
    if not any((node.domain, node.op_type) in LAYERS for node in inside):
        raise NothingToGainError(f"none of the graph's {count} nodes is a layer", model)
    held = sum(one.tensor.size for one in held_tensors(model))
    if held < LEAST_VALUES * count:
        raise NothingToGainError(
            f"expected {LEAST_VALUES} weights a node of the graph, got {held} for {count} nodes",
            model,
        )


def _imported(original: onnx_ir.Model, keep: Keep) -> Imported:
    keep_foreign = keep.foreign
    if not keep_foreign:
        held = sum(1 for graph in (original.graph, *original.functions.values()) for _ in graph.all_nodes())
        check_made_nodes(call_tree(original).node_count, held)
        inline_functions(original)
    inlined = keep_foreign and inline_layers(original)
    widened = widen(original)
    check_operators(original)
    kept: frozenset[str] = frozenset()
    stored = frozenset(original.graph.initializers)
    while True:
        model = original.clone() if keep_foreign else original
        grown = fold_model(model, keep_foreign=keep_foreign, kept=kept)
        moved = with_channels_first(model) if _may_move(model, keep) else None
        model = model if moved is None else moved
        ended = keep.has_networks and open_codes(model, keep.names, gaining=keep.moving)
        ended |= keep_foreign and keep.has_networks and give_float_ends(model, keep.machine if keep.moving else None)
        if keep.whole is not None and keep.moving and keep.may_add:
            ended |= give_own_roundings(model, keep.names, partial(is_dense_behind, keep.machine))
        try:
            translated = translate(model, keep)
        except FixedSize as fixed:
            state_sizes(original, {fixed.name: fixed.size})
            continue
        wasted = grown - translated.constants - kept
        if not keep_foreign or not wasted:
            made = frozenset(model.graph.initializers) - stored
            want_kernels(translated.module, kernels_in(original.metadata_props.get(METADATA, "")))
            rewritten = inlined or widened or ended or moved is not None
            return Imported(
                translated.module, model, translated.expanded, translated.reasons, translated.waiting, rewritten, made
            )
        # these would only make the file larger: no op of ours uses them
        kept |= wasted


def _may_move(model: onnx_ir.Model, keep: Keep) -> bool:
    """Return whether Transposes may move: where all is ours, or where convolutions may gain that do not stay."""
    if not keep.foreign or not keep.moving:
        return True
    if keep.whole is None or not keep.may_add:
        return False
    convolutions = (node for node in model.graph if (node.domain, node.op_type) in CONVOLUTIONS)
    return any(
        (weight_zeros(node, model.ir_version) or 0.0) >= 1 - MOSTLY_ZEROS and not keep.names(node)
        for node in convolutions
    )
