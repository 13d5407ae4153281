"""A run of the dense model on the first batch: what its layers get says what a call costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from redpebble.pruning.runs.segments import SegmentedModel, Values
from redpebble.pruning.runs.traces import Trace, Weights


class ImageSizes(NamedTuple):
    """The values and sizes of an image that a convolution gets, and the places of its window along each axis."""

    values: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class FirstRun:
    """Rows of the first layer that is no convolution, images where all are, and images of convolutions by layer."""

    samples: int
    rows: int
    images: Mapping[str, ImageSizes]

    @staticmethod
    def of(model: SegmentedModel, batch: Values, weights: Weights) -> "FirstRun":
        """Return what a batch says."""
        trace, rows, images = Trace.start(model, [batch]), 0, dict[str, ImageSizes]()
        samples = min((len(value) for value in batch.values() if value.ndim), default=1)
        while not trace.is_over:
            for layer in model.segments[trace.done].layers:
                x = trace.batches[0][layer.x]
                if layer.window is not None:
                    images[layer.name] = ImageSizes(prod(x.shape[1:]), x.shape[2:], layer.window.places(x.shape[2:]))
                elif not rows:
                    rows = x.size // layer.inputs
            trace.advance(weights)
        return FirstRun(samples, rows or samples, images)

    def images_with(self, rows: int) -> float:
        """Return the images of a call by which layers get so many rows."""
        return max(1.0, rows * self.samples / max(1, self.rows))
