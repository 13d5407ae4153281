"""A model up to its sparse networks, which `optimize` writes as nodes and the provider runs."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

import onnx_ir
from xdsl.dialects.builtin import ModuleOp

from ..dialect.ops.attention import Attention
from ..dialect.ops.constants import ConstantOp, SparseConstantOp
from ..dialect.ops.graphs import OverEdgesOp
from ..dialect.ops.images import ImageLayerOp
from ..dialect.ops.layers import LayerNormOp, LinearOp, RmsNormOp
from ..dialect.ops.sparse_network import SparseNetworkOp
from ..dialect.provenance import node_key
from ..dialect.tensors import shape_of
from ..frontend.foreign_nodes import ForeignNodes
from ..frontend.import_model import Imported, Source, import_model
from ..options import Options
from ..passes.rewriting.erase_unused import drop_weights
from ..passes.rewriting.values_of_the_model import read_and_yield_what_the_model_has
from ..pipeline import run_stages
from .model_rows import stated_rows
from .placement import left_alone

MOST_WEIGHTS: Final = 0.99
"""Part of the weights that may be left: constants of a few values come and go with each rewriting."""


EXPANDED: Final = LinearOp | Attention | ImageLayerOp | LayerNormOp | OverEdgesOp | RmsNormOp
"""Ops that a node becomes one of, with others around it, where it is part of a network."""


class Extracted(NamedTuple):
    """A model up to its sparse networks, and the module as it was imported."""

    imported: Imported
    before: ModuleOp
    obstacle: str
    """Reason why there are no sparse networks though they were asked for; empty otherwise."""
    left: str  # reason why convolutions were


def extracted(
    source: Source,
    options: Options,
    obstacle_of: Callable[[onnx_ir.Model], str] = lambda _: "",
) -> Extracted:
    """Return a model after the stages up to the one that extracts sparse networks.

    A node that becomes several ops, whose values would be moved to and fro, does so inside of networks alone. Unless
    options `may_add`, networks read and yield values of the model only.

    Raises:
        ModelError: the model is unreadable, or of versions that are not covered.
    """
    whole, left, obstacle = frozenset[str](), "", ""
    while True:
        names = whole if options.sparse_networks and not obstacle else None
        imported = import_model(
            source,
            foreign="keep",
            whole=names,
            may_be_hopeless=False,
            may_add=options.may_add,
            may_raise=names is not None and options.may_add,
            # a dense convolution before all layers with zeros is in no network, unless it is rounded
            leaves_front=options.samples is None and not options.bfloat,
            dense_codes=options.dense_codes and options.machine.places_bytes,
            machine=options.machine,
        )
        if names is not None:
            obstacle = obstacle_of(imported.model)
            if obstacle:
                continue  # what only networks gain by stays as it is
        module, before = imported.module, imported.module.clone()
        rows = options.rows or stated_rows(imported.model)
        is_open = options.sparse_networks and not obstacle
        opset = imported.model.opset_imports.get("", 0)
        known = replace(options, sparse_networks=is_open, rows=rows, opset=opset)
        run_stages(module, replace(known, foreign=ForeignNodes(imported.model)), until="extract")
        left = left or left_alone(module)
        wasted = imported.expanded - _nodes_in_networks(module)
        if not wasted:
            if not options.may_add:
                read_and_yield_what_the_model_has(module)
            return Extracted(imported, before, obstacle, left)
        whole |= wasted
        drop_weights(module)
        drop_weights(before)


def _nodes_in_networks(module: ModuleOp) -> set[str]:
    networks = (op for op in module.walk() if isinstance(op, SparseNetworkOp))
    ops = (op for network in networks for op in network.walk())
    return {node_key(op) for op in ops if isinstance(op, EXPANDED)}


def has_fewer_weights(after: ModuleOp, before: ModuleOp) -> bool:
    """Return whether passes have dropped weights, with neurons that nothing needs or that are there twice."""
    return _weight_count(after) < MOST_WEIGHTS * _weight_count(before)


def _weight_count(module: ModuleOp) -> int:
    constants = (op for op in module.walk() if isinstance(op, ConstantOp | SparseConstantOp))
    return sum(prod(shape_of(op.results[0])) for op in constants if op.results[0].uses.get_length())
