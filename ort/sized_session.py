"""Sessions of models whose images have any size: what is sparse gets code for each size, when it is first seen."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import onnxruntime
from numpy.typing import NDArray
from typing_extensions import override

from ..driver.stated_sizes import with_sizes
from ..export.save_model import model_bytes
from ..foundation.log import LOG
from ..frontend.errors import ModelError
from ..frontend.import_model import Source
from ..frontend.reading.image_sizes import MOST_SIZES, free_sizes, sizes_of
from ..frontend.reading.model_source import read_model
from ..frontend.sparse_weights import graph_of, has_sparse_convolution
from .session_arguments import SessionArguments

Opening = Callable[[Source], onnxruntime.InferenceSession]
"""Makes a session of a model."""


@dataclass(frozen=True)
class Images:
    """A model with sparse convolutions, and the sizes of its images that calls choose, by input."""

    source: Source
    free: Mapping[str, Sequence[str]]


def images_of(model: Source) -> Images | None:
    """Return the images of a model; None where all sizes are known, or no convolution is sparse."""
    read = read_model(model, any_version=True)
    free = free_sizes(read)
    if not free or not has_sparse_convolution(graph_of(read)):
        return None
    is_stored = isinstance(model, str | os.PathLike | bytes)
    return Images(model if is_stored else model_bytes(read) or read, free)


class SizedSession(onnxruntime.InferenceSession):
    """A session that hands calls on to one for the sizes of their images, up to `MOST_SIZES`; others run as they are.

    So do calls by `run_with_iobinding`, `run_with_ort_values` and `run_async`.
    """

    def __init__(
        self,
        ready: str | bytes,
        arguments: SessionArguments,
        images: Images,
        opening: Opening,
    ) -> None:
        """Make a session of `ready`, which runs images of any size; `opening` makes those for one size."""
        super().__init__(ready, **arguments.by_name)
        self._images, self._opening = images, opening
        self._sessions: dict[tuple[int, ...], onnxruntime.InferenceSession | None] = {}
        self._lock = Lock()

    @override
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[NDArray[Any]]:
        """Run the model, as every session does."""
        chosen = self._session_of(input_feed)
        if chosen is None:
            return super().run(output_names, input_feed, run_options)
        return chosen.run(output_names, input_feed, run_options)

    def _session_of(self, feeds: Mapping[str, Any]) -> onnxruntime.InferenceSession | None:
        """Return the session of the sizes of these images; None where they run as they are."""
        shapes = {name: tuple(getattr(feeds.get(name), "shape", ())) for name in self._images.free}
        sizes = sizes_of(self._images.free, shapes)
        if not sizes or min(sizes.values()) < 1:
            return None
        key = tuple(sizes.values())
        if key not in self._sessions:
            with self._lock:
                if key not in self._sessions and len(self._sessions) < MOST_SIZES:
                    self._sessions[key] = self._opened(sizes)
        return self._sessions.get(key)

    def _opened(self, sizes: Mapping[str, int]) -> onnxruntime.InferenceSession | None:
        words = ", ".join(f"{name}={size}" for name, size in sizes.items())
        LOG.info("code is made for images of %s", words)
        try:
            made = self._opening(with_sizes(self._images.source, sizes))
        except (ModelError, OSError, RuntimeError) as error:  # onnxruntime says what it does not take by the latter
            LOG.warning("images of %s run as they are: %s", words, error)
            return None
        return made
