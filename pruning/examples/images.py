"""ResNet-18 as torch exports it, pruned: `python -m redpebble.pruning.examples.images`; needs the extra `zoo`.

The architecture is that of the paper, for images of 3 x 224 x 224; it is trained for minutes on scikit-learn's digits,
enlarged, until it tells them apart: nothing here says anything about ImageNet.
"""

import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from ...models.digits import DigitImages
from ...models.digits_training import split_digits
from ...verification.oracle import Oracle
from .command_runs import pruned_by_command

Array = NDArray[np.float32]

SIDE: Final = 224
TRAINING: Final = ((64, 3, 1437), (SIDE, 2, 480))
"""Sides of the images, epochs, and samples: most is learned on small images."""

CALIBRATION: Final = 300
BATCH: Final = 32
GOALS: Final = "--sparsity 0.9,--speedup 2"


def enlarged(digits: DigitImages, side: int) -> Array:
    """Return images [samples, 3, side, side] of digits [samples, 64], with pixels about 0."""
    torch: Any = import_module("torch")
    small = torch.from_numpy(digits.images).reshape(-1, 1, 8, 8)
    large = torch.nn.functional.interpolate(small, size=(side, side), mode="bilinear")
    return (large.expand(-1, 3, -1, -1).contiguous().numpy() - 0.3) / 0.35


def trained_network(digits: DigitImages) -> Any:  # noqa: ANN401 - torch has no types here
    """Return ResNet-18, trained."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    network = transformers.ResNetForImageClassification(config)
    labels = torch.from_numpy(np.asarray(digits.labels, np.int64))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for side, epochs, count in TRAINING:
        images = torch.from_numpy(enlarged(DigitImages(digits.images[:count], digits.labels[:count]), side))
        for _ in range(epochs):
            for chosen in torch.randperm(count).split(BATCH):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(network(images[chosen]).logits, labels[chosen])
                loss.backward()
                optimizer.step()
    return network.eval()


def export(network: Any, path: Path) -> None:  # noqa: ANN401 - torch has no types here
    """Write a network on images with a free number of samples."""
    torch: Any = import_module("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            network,
            (torch.ones((2, 3, SIDE, SIDE)),),
            dynamo=True,
            dynamic_shapes={"pixel_values": {0: torch.export.Dim("batch")}},
            input_names=["x"],
            output_names=["logits"],
            verbose=False,
        )
        program.save(str(path), external_data=False)


def accuracy(model: Oracle, images: Array, labels: NDArray[Any]) -> float:
    """Return the share of images that a model classifies right."""
    batches = np.array_split(images, -(-len(images) // BATCH))
    logits = np.concatenate([model.run({"x": batch})[0] for batch in batches])
    return float((logits.argmax(axis=1) == labels).mean())


def main(
    folder: Annotated[Path, typer.Argument(help="Where models and data go.")] = Path("build/images"),
    goals: Annotated[str, typer.Option(help="Goals of pruning, one by one.")] = GOALS,
) -> None:
    """Print a line for each goal."""
    training, tests = split_digits(0)
    dense = folder / "dense.onnx"
    if not dense.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "calibration.npz", x=enlarged(training, SIDE)[:CALIBRATION])
        export(trained_network(training), dense)
    images, labels = enlarged(tests, SIDE), tests.labels
    print(f"{'dense':18} accuracy {accuracy(Oracle(dense), images, labels):.1%}", flush=True)
    for goal in goals.split(","):
        run = pruned_by_command(folder, [*goal.split(), "--rows", "1"])
        print(f"{run}; accuracy {accuracy(Oracle(run.model), images, labels):.1%}", flush=True)


if __name__ == "__main__":
    typer.run(main)
