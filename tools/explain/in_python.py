"""The call `explain`: what the command shows of layers and their data movement, as records."""

from redpebble.frontend.import_model import Source
from redpebble.options import Options
from redpebble.tools.explain.commands import native_report, simplified
from redpebble.tools.explain.explanation import ExplainRequest, Explanation
from redpebble.tools.explain.explanation import explain as explain_flat
from redpebble.tools.explain.neuron_graphs import flattened
from redpebble.tools.explain.saved_orders import SearchBudget
from redpebble.tools.explain.search_watch import SearchWatch


def explain(
    model: Source,
    *,
    memory: int | None = None,
    batch_tile: int = 1,
    seconds: float = 2.0,
    proposals: int | None = None,
    seed: int = 0,
) -> Explanation:
    """Return the layers of a model as `compile` runs them, measured kernel by kernel, and what orders of them move.

    Fast memory holds `memory` rows of `batch_tile` values, 48 KiB without; an order is searched for `seconds`, or by so
    many `proposals`, which find the same one with the same seed.

    Raises:
        ModelError: the model is unreadable.
        ValueError: the memory, the tile or the time is none.
    """
    rows = ExplainRequest.default_memory(batch_tile) if memory is None else memory
    request = ExplainRequest(rows, batch_tile, SearchBudget(seconds, proposals, seed))
    options = Options()
    module = simplified(model, options).module
    layers = native_report(module, options)
    return explain_flat(flattened(module, options), layers, request, SearchWatch())
