"""Train, prune and distil the models `digits_cnn`: `python -m redpebble.pytorch.recipes.digits_cnn FOLDER`.

A dense network learns the labels of images that are moved down or right by -1, 0 or 1 pixels. Then its convolutions
are pruned by ADMM on training images, as many zeros in each output, and what is left learns what the dense one answers,
and the labels. The first layer and the classifier, a hundredth of the work, stay dense. The test images, those of
`digits`, only give the accuracies on the cards.
"""

import argparse
import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...models.digits import DigitImages
from ...models.digits_cnn import LAYERS, card_file, weight_shapes, weights_file, write_weights
from ...models.digits_training import Training, split_digits
from ..batches import Batch, Module
from ..distil import distil
from ..losses import Labels
from ..prune import prune

STEPS: Final = 350
"""Steps of the dense training, and of each distillation."""

BATCH: Final = Training().batch

PRUNED: Final = [f"layers.{index}" for index in range(1, len(LAYERS))]

Arrays = dict[str, NDArray[np.float32]]


class Network(nn.Module):
    """The network of `redpebble.models.digits_cnn`: images [batch, 1, 8, 8] -> logits [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        # the stubs of torch know no arguments of layers
        convolution, linear = cast("Any", nn.Conv2d), cast("Any", nn.Linear)
        convolutions = [
            convolution(one.inputs, one.outputs, one.taps, stride=one.stride, padding=one.taps // 2) for one in LAYERS
        ]
        self.layers = nn.ModuleList(convolutions)
        self.classes = linear(LAYERS[-1].outputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits."""
        value, results = images, list[Tensor]()
        for layer, module in zip(LAYERS, self.layers, strict=True):
            value = torch.relu(module(value) if layer.added < 0 else module(value) + results[layer.added])
            results.append(value)
        return self.classes(value.flatten(2).mean(2))


def batches_of(data: DigitImages, epoch: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of an epoch: images in another order, each moved by a pixel at most."""
    rng = np.random.default_rng([seed, epoch])
    padded = np.pad(data.images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    order, shifts = rng.permutation(len(padded)), rng.integers(0, 3, (len(padded), 2))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        places = zip(chosen, shifts[chosen], strict=True)
        images = np.stack([padded[one, row : row + 8, column : column + 8] for one, (row, column) in places])
        yield {"images": torch.from_numpy(images[:, None]), "labels": torch.from_numpy(data.labels[chosen])}


def forward(module: Module, batch: Batch) -> Tensor:
    """Return what a network answers to the images of a batch."""
    return module(batch["images"])


def accuracy(module: nn.Module, data: DigitImages) -> float:
    """Return the share of images that are classified right."""
    with torch.no_grad():
        found: Any = module(torch.from_numpy(data.images.reshape(-1, 1, 8, 8))).argmax(1)
    return float((found.numpy() == data.labels).mean())


def trained(data: DigitImages, seed: int, steps: int = STEPS) -> Network:
    """Return a dense network."""
    torch.manual_seed(seed)
    dense = Network()
    settings: dict[str, Any] = {"losses": [Labels()], "forward": forward, "rate": 2e-3, "steps": steps}
    distil(dense, None, lambda epoch: batches_of(data, epoch, seed), **settings)
    return dense


def pruned(dense: nn.Module, data: DigitImages, zeros: int, seed: int, steps: int = STEPS) -> nn.Module:
    """Return a sparse network that was distilled from a dense one."""
    student = copy.deepcopy(dense)
    prune(student, batches_of(data, 0, seed), sparsity=zeros / 100, layers=PRUNED, forward=forward)
    settings: dict[str, Any] = {"losses": ["logits", (Labels(), 0.5)], "forward": forward, "steps": steps}
    distil(student, dense, lambda epoch: batches_of(data, epoch + 1, seed), rate=2e-3, **settings)
    return student


def arrays_of(module: nn.Module) -> Arrays:
    """Return weights and biases by the names of the stored ones."""
    state = module.state_dict()
    return {name: state[name].numpy() for name in weight_shapes()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a dense network and sparse ones, and write their weights and cards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--zeros", default="80,90", help="shares of zeros in %%, with commas between")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seed = Training().seed
    training_set, test_set = split_digits(seed)
    dense = trained(training_set, seed)
    before = accuracy(dense, test_set)
    print(f"dense: {before:.2%}", flush=True)
    for zeros in map(int, chosen.zeros.split(",")):
        student = pruned(dense, training_set, zeros, seed)
        weights = arrays_of(student)
        write_weights(chosen.folder / weights_file(zeros).name, weights)
        card = {
            "data": "sklearn.datasets.load_digits, 1797 images of 8 x 8 pixels; the test images are those of digits",
            "seed": seed,
            "steps": {"dense": STEPS, "distilled": STEPS, "batch": BATCH},
            "accuracy_dense": before,
            "accuracy_pruned": accuracy(student, test_set),
            "sparsity": {name: float((one == 0).mean()) for name, one in weights.items() if one.ndim == 4},
        }
        (chosen.folder / card_file(zeros).name).write_text(json.dumps(card, indent=2) + "\n")
        print(f"{zeros} % zeros: {card['accuracy_pruned']:.2%}", flush=True)


if __name__ == "__main__":
    main()
