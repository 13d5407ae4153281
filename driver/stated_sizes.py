"""A model whose inputs have sizes that are stated: for what has no use for images of any size."""

from collections.abc import Mapping

from ..export.save_model import model_bytes
from ..frontend.import_model import Source
from ..frontend.reading.free_axes import state_sizes
from ..frontend.reading.model_source import read_model


def with_sizes(source: Source, sizes: Mapping[str, int] | None) -> Source:
    """Return a model whose inputs have these sizes by name; as bytes, which caches know, where it is not too large.

    Raises:
        ModelError: the model is unreadable.
        ValueError: no input has a free axis of that name, or its size is less than 1.
    """
    if not sizes:
        return source
    model = read_model(source, any_version=True)
    state_sizes(model, sizes)
    return model_bytes(model) or model
