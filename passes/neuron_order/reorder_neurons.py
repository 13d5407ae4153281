"""Put the neurons of hidden layers into the order in which kernels are predicted to be fastest.

```mlir
%h = pebble.linear %x, %w activation <relu> : ...
%y = pebble.linear %h, %v : ...
// -> the columns of %w and the rows of %v in another order
%h = pebble.linear %x, %w activation <relu> {pebble.order = "cuthill-mckee; 2.1 -> 1.4 us at 1"} : ...
```

Neurons that share connections come together, so that layers read few values at a time, also where the network came
shuffled; neurons that are read often are dealt to blocks of lookups; then pairs are swapped as the cost model
says. The order that stands is a candidate, and stays where none is predicted to be faster. Values, groups and what is
free to be permuted: see `redpebble.passes.analysis.permutation_groups`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.provenance import ORDER
from ...kernels.machine import Machine
from ...theory.neuron_order.search import ORDERS, Reordering, Request, reorder
from ..analysis.neuron_view import NeuronView, neuron_view
from .permute_neurons import permute

AUTO: Final = "auto"


@dataclass(frozen=True)
class ReorderNeurons(ModulePass):
    """Permute the free groups of neurons if that is predicted to pay."""

    name = "pebble-reorder-neurons"

    order: str = AUTO
    """An order by name, or `auto`: all that suit the network."""
    seconds: float = 0.0
    """Seconds to anneal, about; the same number gives the same order on every machine."""
    seed: int = 0
    batch: tuple[int, ...] = (1, 64)
    """Batch sizes that count alike."""
    lanes: int = Machine.lanes
    """The first of the numbers of a `Machine`: see there."""
    l1_bytes: int = Machine.l1_bytes
    l2_bytes: int = Machine.l2_bytes
    l3_bytes: int = Machine.l3_bytes

    @staticmethod
    def on(machine: Machine, seconds: float = 0.0) -> "ReorderNeurons":
        """Return the pass for a machine."""
        return ReorderNeurons(
            seconds=seconds,
            lanes=machine.lanes,
            l1_bytes=machine.l1_bytes,
            l2_bytes=machine.l2_bytes,
            l3_bytes=machine.l3_bytes,
        )

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        view = neuron_view(op)
        try:
            found = self.search(view, self._request())
        except ValueError as error:
            raise PassFailedException(f"{self.name}: {error}") from error
        op.attributes.pop(ORDER, None)
        for linear in view.linears:
            linear.attributes.pop(ORDER, None)
        if found.tried:
            op.attributes[ORDER] = StringAttr(_trace(found))
        _apply(view, found)

    def search(self, view: NeuronView, request: Request) -> Reordering:
        """Return the order that is written; who knows orders of other networks gives them to the search here.

        Raises:
            ValueError: the request asks for what there is not.
        """
        return reorder(view.groups, view.layers, request)

    def _request(self) -> Request:
        """Return what the options say.

        Raises:
            ValueError: they ask for what there is not.
        """
        if self.order not in (AUTO, *ORDERS):
            raise ValueError(f"expected an order of {', '.join((AUTO, *ORDERS))}, got {self.order!r}")
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"expected a search of 0 seconds or more, got {self.seconds}")
        if not self.batch or min(self.batch) < 1:
            raise ValueError(f"expected one or more batches from 1 on, got {list(self.batch)}")
        machine = Machine(self.lanes, self.l1_bytes, self.l2_bytes, self.l3_bytes)
        wanted = None if self.order == AUTO else (self.order,)
        return Request(self.batch, machine, self.seconds, self.seed, wanted)


def _apply(view: NeuronView, found: Reordering) -> None:
    """Permute the groups, and write on every layer that changed what it gains."""
    identity = view.groups.identity()
    changed: list[int] = np.unique(view.groups.group_of[found.positions != identity]).tolist()
    moved = {view.members[group]: view.groups.order_of(group, found.positions) for group in changed}
    for linear, weight, times in zip(view.linears, view.groups.weights, found.layer_times, strict=True):
        neurons = np.concatenate((weight.inputs.neurons, weight.outputs.neurons))
        if np.isin(view.groups.group_of[neurons], changed).any():
            linear.attributes[ORDER] = StringAttr(f"{found.name}; {_times(*times)}")
    permute(moved)


def _times(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    return ", ".join(f"{time:.3g} -> {after[batch]:.3g} us at {batch}" for batch, time in before.items())


def _trace(found: Reordering) -> str:
    """Return the order, the times it is predicted to take, and all that was tried."""
    tried: list[str] = []
    for one in found.tried:
        steps = f" in {one.trace[-1].proposals} proposals" if one.trace else ""
        tried.append(f"{one.name} {one.ratio:.3f}{steps}")
    return f"{found.name}; {_times(found.before, found.after)}; tried {', '.join(tried)}"
