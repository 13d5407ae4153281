"""Digits, dense to 90 % zeros: `python -m redpebble.pruning.examples.digits`; needs scikit-learn for its images.

A classifier 64-1024-1024-10 is trained, then pruned by every method without any training, and finetuned. Accuracy is on
test images with noise, where methods differ more than on clean ones.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...models.digits import DigitImages, Layer, dense_model
from ...models.digits_training import Training, split_digits, train
from ...verification.oracle import Oracle
from ..prune import prune
from ..solving.methods import METHODS

NOISE: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
"""Standard deviations that are added to pixels 0 .. 1, one after the other."""


def trained_layers(seed: int = 0) -> tuple[Layer, ...]:
    """Return the layers of the classifier before any pruning."""
    training_set, _ = split_digits(seed)
    return train(training_set, Training(seed, pruning_epochs=1, final_epochs=1)).dense


def noisy(images: DigitImages, seed: int = 1) -> DigitImages:
    """Return the images with every noise."""
    rng = np.random.default_rng(seed)
    shifted = [images.images + rng.normal(0, deviation, images.images.shape) for deviation in NOISE]
    pixels = np.clip(np.concatenate(shifted), 0, 1).astype(np.float32)
    return DigitImages(pixels, np.tile(images.labels, len(NOISE)))


def accuracy(oracle: Oracle, data: DigitImages) -> float:
    """Return the share of images that a model classifies right."""
    logits: NDArray[np.float32] = oracle.run({"x": data.images})[0]
    return float((logits.argmax(axis=1) == data.labels).mean())


def example(layers: tuple[Layer, ...], finetune: float = 20.0) -> Iterator[tuple[str, float, float]]:
    """Yield the treatment of the classifier, its accuracy, and its speed-up for 64 rows."""
    training_set, test_set = split_digits(0)
    model, data, tests = dense_model(layers), {"x": training_set.images}, noisy(test_set)
    yield "dense", accuracy(Oracle(model), tests), 1.0
    milliseconds: dict[str, float] = {}
    for method in METHODS:
        result = prune(model, data, sparsity=0.9, rows=64, method=method)
        yield f"90 % {method}", accuracy(Oracle(result.model), tests), result.report.measured.speedup
        milliseconds[method] = result.report.measured.pruned_us / 1000
    result = prune(model, data, time=milliseconds["admm"], rows=64)
    name = f"{1 - result.report.density:.0%} admm, in the time of 90 %"
    yield name, accuracy(Oracle(result.model), tests), result.report.measured.speedup
    for name, labels in (("the dense model", None), ("labels", training_set.labels)):
        result = prune(model, data, sparsity=0.9, rows=64, finetune=finetune, labels=labels)
        right = accuracy(Oracle(result.model), tests)
        yield f"90 % admm, {finetune:g} s for {name}", right, result.report.measured.speedup


def main() -> None:
    """Print a line for each."""
    for name, right, speedup in example(trained_layers()):
        print(f"{name:36} accuracy {right:.1%}  {speedup:.2f}x as fast", flush=True)


if __name__ == "__main__":
    main()
