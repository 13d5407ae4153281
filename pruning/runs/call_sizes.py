"""A run of the dense model on the inputs of a call: how much each layer gets says what the call costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from .segments import SegmentedModel, Values
from .traces import Trace, Weights


class ImageSizes(NamedTuple):
    """The images that a convolution gets in a call, values and sizes of one, and the places of its window by axis."""

    number: int
    values: int
    sizes: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class CallSizes:
    """Rows of layers that are no convolutions, and images of those that are, by name: each as the data has it."""

    samples: int
    """Samples of the call."""
    rows_by_layer: Mapping[str, int]
    images: Mapping[str, ImageSizes]

    @property
    def rows(self) -> int:
        """The rows of the first layer that is no convolution, samples where all are."""
        return next(iter(self.rows_by_layer.values()), self.samples)

    @staticmethod
    def of(model: SegmentedModel, batch: Values, weights: Weights) -> "CallSizes":
        """Return the sizes that a run of a batch has."""
        trace, rows, images = Trace.start(model, [batch]), dict[str, int](), dict[str, ImageSizes]()
        samples = min((len(value) for value in batch.values() if value.ndim), default=1)
        while not trace.is_over:
            for layer in model.segments[trace.done].layers:
                x = trace.batches[0][layer.x]
                if layer.window is not None:
                    sizes, places = x.shape[2:], layer.window.places(x.shape[2:])
                    images[layer.name] = ImageSizes(len(x), prod(x.shape[1:]), sizes, places)
                else:
                    rows[layer.name] = prod(x.shape[:-1])
            trace.advance(weights)
        return CallSizes(samples, rows, images)
