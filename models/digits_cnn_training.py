"""Train, prune and write the model `digits_cnn`: `python -m redpebble.models.digits_cnn_training`; needs torch.

Adam on the cross-entropy, images moved down or right by -1, 0 or 1 pixels; then weights are pruned by magnitude, layer
by layer, along a cubic schedule, with training in between and after. The first layer and the classifier, a hundredth
of the work, stay dense. The test images, those of `digits`, only give the accuracies in `digits_cnn.json`.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .digits import DigitImages
from .digits_cnn import LAYERS, RECORD_FILE, WEIGHTS_FILE, weight_shapes, write_weights
from .digits_training import Training, split_digits
from .pruned_weights import magnitude_mask

torch: Any = import_module("torch")

EPOCHS: Final = (10, 10, 14)
"""Epochs of dense training, of pruning, and after it."""
SPARSITY: Final = 0.9
SETTINGS: Final = Training()
"""Seed, and images of a step, are those of `digits`."""

Tensor = Any
"""A tensor of torch, which is an extra, so that its types are not known where types are checked."""

Parameters = dict[str, Tensor]


def initial_parameters() -> Parameters:
    """Return random weights and biases of 0."""
    rng, found = np.random.default_rng(SETTINGS.seed), Parameters()
    for name, shape in weight_shapes().items():
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
        values = (rng.standard_normal(shape) * scale).astype(np.float32)
        found[name] = torch.nn.Parameter(torch.from_numpy(values))
    return found


def logits(parameters: Parameters, images: Tensor) -> Tensor:
    """Return the network's answer to images [batch, 1, 8, 8]."""
    value, results = images, list[Any]()
    for index, layer in enumerate(LAYERS):
        weight, bias = parameters[f"layers.{index}.weight"], parameters[f"layers.{index}.bias"]
        value = torch.nn.functional.conv2d(value, weight, bias, stride=layer.stride, padding=layer.taps // 2)
        value = torch.relu(value if layer.added < 0 else value + results[layer.added])
        results.append(value)
    return value.mean((2, 3)) @ parameters["classes.weight"].T + parameters["classes.bias"]


def accuracy(parameters: Parameters, data: DigitImages) -> float:
    """Return the share of images that are classified right."""
    with torch.no_grad():
        found = logits(parameters, torch.from_numpy(data.images.reshape(-1, 1, 8, 8))).argmax(1).numpy()
    return float((found == data.labels).mean())


def train(parameters: Parameters, data: DigitImages, epochs: int, masks: dict[str, NDArray[np.bool_]]) -> None:
    """Train for some epochs; what the masks leave out stays 0."""
    rng = np.random.default_rng(SETTINGS.seed + epochs)
    optimizer = torch.optim.Adam(parameters.values(), lr=1e-3)
    kept = {name: torch.from_numpy(mask) for name, mask in masks.items()}
    padded = np.pad(data.images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    for _ in range(epochs):
        order, shifts = rng.permutation(len(padded)), rng.integers(0, 3, (len(padded), 2))
        for start in range(0, len(order), SETTINGS.batch):
            chosen = order[start : start + SETTINGS.batch]
            places = zip(chosen, shifts[chosen], strict=True)
            images = np.stack([padded[one, row : row + 8, column : column + 8] for one, (row, column) in places])
            loss = torch.nn.functional.cross_entropy(
                logits(parameters, torch.from_numpy(images[:, None])), torch.from_numpy(data.labels[chosen])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for name, mask in kept.items():
                    parameters[name].mul_(mask)


def masks_of(parameters: Parameters, sparsity: float) -> dict[str, NDArray[np.bool_]]:
    """Return the masks of the convolutions, without the first one."""
    names = [f"layers.{index}.weight" for index in range(1, len(LAYERS))]
    return {name: magnitude_mask(parameters[name].detach().numpy(), sparsity) for name in names}


def write(folder: Path) -> None:
    """Train, prune, train on, and write both files."""
    torch.set_num_threads(1)
    training_set, test_set = split_digits(SETTINGS.seed)
    parameters = initial_parameters()
    train(parameters, training_set, EPOCHS[0], {})
    before = accuracy(parameters, test_set)
    for step in range(1, EPOCHS[1] // 2 + 1):
        sparsity = SPARSITY * (1 - (1 - 2 * step / EPOCHS[1]) ** 3)
        train(parameters, training_set, 2, masks_of(parameters, sparsity))
    train(parameters, training_set, EPOCHS[2], masks_of(parameters, SPARSITY))
    weights = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
    write_weights(folder / WEIGHTS_FILE.name, weights)
    record = {
        "data": "sklearn.datasets.load_digits, 1797 images of 8 x 8 pixels; the test images are those of digits",
        "seed": SETTINGS.seed,
        "epochs": dict(zip(("dense", "pruning", "final"), EPOCHS, strict=True)),
        "accuracy_dense": before,
        "accuracy_pruned": accuracy(parameters, test_set),
        "sparsity": {name: float((weight == 0).mean()) for name, weight in weights.items() if weight.ndim == 4},
    }
    (folder / RECORD_FILE.name).write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    write(Path(__file__).parent)
