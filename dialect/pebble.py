"""The dialect object: all ops and attributes of `pebble`, by module, in the order in which readers should meet them."""

from collections.abc import Iterator
from types import ModuleType
from typing import Final, TypeVar

from xdsl.ir import Attribute, Dialect, Operation

from . import tensors
from .attributes import (
    activations,
    codes,
    depth_first_order,
    few_bits,
    io_bounds,
    kernels,
    partition,
    product_order,
    resampling,
    row_panels,
    schedule,
    structure_facts,
    target_walk,
    transfers,
    window,
)
from .ops import (
    attention,
    constants,
    elementwise,
    foreign,
    graphs,
    grouped_layers,
    image_bands,
    image_network,
    images,
    layers,
    movement,
    network,
    recurrences,
    regions,
    sparse_network,
    tile,
    tile_dead_rows,
    tile_depth_first,
)
from .ops.training import edge_slopes, gradients

Kind = TypeVar("Kind")

OPS: Final = (
    constants,
    layers,
    elementwise,
    attention,
    images,
    graphs,
    recurrences,
    gradients,
    edge_slopes,
    movement,
    network,
    tile,
    image_network,
    regions,
    sparse_network,
    grouped_layers,
    foreign,
)
ATTRIBUTES: Final = (
    activations,
    codes,
    few_bits,
    tensors,
    kernels,
    io_bounds,
    schedule,
    tile_dead_rows,
    tile_depth_first,
    image_bands,
    transfers,
    partition,
    movement,
    window,
    resampling,
    row_panels,
    product_order,
    target_walk,
    structure_facts,
    depth_first_order,
    foreign,
    graphs,
)


def _defined_in(module: ModuleType, kind: type[Kind]) -> Iterator[type[Kind]]:
    """Yield the classes of a module that have a name in the IR."""
    for one in vars(module).values():
        if (
            isinstance(one, type)
            and issubclass(one, kind)
            and one.__module__ == module.__name__
            and "name" in vars(one)
        ):
            yield one


Pebble = Dialect(
    "pebble",
    [op for module in OPS for op in _defined_in(module, Operation)],
    [attribute for module in ATTRIBUTES for attribute in _defined_in(module, Attribute)],
)
