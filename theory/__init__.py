"""Data movement of sparse networks: bounds, counting, orders and schedules; pure algorithms, no IR.

What studies of orders begin with can be imported from here: networks, memories, counts, bounds, orders and searches.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..sparse.neuron_graph import NeuronGraph as NeuronGraph
    from ..sparse.neuron_graph import from_layers as from_layers
    from .pebbling.bounds.bounds import instance_bounds as instance_bounds
    from .pebbling.bounds.bounds import lower_bound as lower_bound
    from .pebbling.machine import Memory as Memory
    from .pebbling.machine_compiled import count_transfers as count_transfers
    from .pebbling.orders.compact_growth import grow_layers as grow_layers
    from .pebbling.orders.simple_orders import pull_order as pull_order
    from .pebbling.orders.simple_orders import push_order as push_order
    from .pebbling.search.search import SearchRequest as SearchRequest
    from .pebbling.search.search import search_order as search_order

__all__ = [
    "Memory",
    "NeuronGraph",
    "SearchRequest",
    "count_transfers",
    "from_layers",
    "grow_layers",
    "instance_bounds",
    "lower_bound",
    "pull_order",
    "push_order",
    "search_order",
]

_HOMES = {
    "Memory": "redpebble.theory.pebbling.machine",
    "NeuronGraph": "redpebble.sparse.neuron_graph",
    "SearchRequest": "redpebble.theory.pebbling.search.search",
    "count_transfers": "redpebble.theory.pebbling.machine_compiled",
    "from_layers": "redpebble.sparse.neuron_graph",
    "grow_layers": "redpebble.theory.pebbling.orders.compact_growth",
    "instance_bounds": "redpebble.theory.pebbling.bounds.bounds",
    "lower_bound": "redpebble.theory.pebbling.bounds.bounds",
    "pull_order": "redpebble.theory.pebbling.orders.simple_orders",
    "push_order": "redpebble.theory.pebbling.orders.simple_orders",
    "search_order": "redpebble.theory.pebbling.search.search",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: the loops of a search take a second to load, and the compiler needs few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
