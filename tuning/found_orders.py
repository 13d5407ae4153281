"""Orders of neurons that searches found: kept, and tried first on networks with groups and weights of the same sizes.

An order moves neurons by their numbers. So it is worth something for weights that were trained on, or pruned further,
from those it was found for; the cost model says for which.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from typing_extensions import override

from ..kernels.machine import Machine
from ..passes.analysis.neuron_view import NeuronView
from ..passes.neuron_order.reorder_neurons import ReorderNeurons
from ..runtime.store.json_cache import recall_list, remember
from ..theory.neuron_order.neuron_groups import NeuronGroups
from ..theory.neuron_order.search import KnownOrder, Reordering, Request, reorder

FILES: Final = "orders-"
"""Names of files with orders begin so."""

MOST_KEPT: Final = 4
"""Orders that are kept of networks of the same sizes, the latest ones: each is priced before a search."""

MOST_NEURONS: Final = 1 << 20


@dataclass(frozen=True)
class ReorderAsBefore(ReorderNeurons):
    """Permute neurons by a search that begins with what searches found before, and keep what it finds."""

    name = "pebble-reorder-neurons"

    folder: Path = field(kw_only=True)
    """The folder of the user's cache."""

    @staticmethod
    def kept_in(folder: Path, machine: Machine, seconds: float) -> "ReorderAsBefore":
        """Return the pass for a machine."""
        plain = ReorderNeurons.on(machine, seconds)
        return ReorderAsBefore(**vars(plain), folder=folder)

    @override
    def search(self, view: NeuronView, request: Request) -> Reordering:
        groups = view.groups
        if groups.neuron_count > MOST_NEURONS:
            return reorder(groups, view.layers, request)
        kept = kept_orders(self.folder, groups, request.seconds)
        found = reorder(groups, view.layers, request._replace(known=tuple(kept)))
        if found.after:
            _keep(self.folder, groups, KnownOrder(found.positions, found.ratio), request.seconds)
        return found


def kept_orders(folder: Path, groups: NeuronGroups, seconds: float) -> list[KnownOrder]:
    """Return the orders that searches of `seconds` or more found for networks of the same sizes."""
    found: list[KnownOrder] = []
    for entry in recall_list(folder, _file(groups)):
        try:
            positions = np.frombuffer(base64.b64decode(entry["positions"]), dtype="<i4").astype(np.int64)
            known, searched = KnownOrder(positions, float(entry["ratio"])), float(entry["seconds"])
        except (TypeError, ValueError, KeyError):
            continue
        if searched >= seconds and groups.takes(positions):
            found.append(known)
    return found


def _keep(folder: Path, groups: NeuronGroups, known: KnownOrder, seconds: float) -> None:
    positions = base64.b64encode(known.positions.astype("<i4").tobytes()).decode()
    entry = {"positions": positions, "ratio": known.ratio, "seconds": seconds}
    remember(folder, _file(groups), [entry, *recall_list(folder, _file(groups))][:MOST_KEPT])


def _file(groups: NeuronGroups) -> str:
    shapes = [(weight.rows.column_count, weight.rows.row_count) for weight in groups.weights]
    text = repr((groups.starts.tolist(), groups.free.tolist(), shapes))
    return FILES + hashlib.sha256(text.encode()).hexdigest()[:16]
