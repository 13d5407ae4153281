"""Train, prune and distil ResNet-18 on handwritten digits: `python -m redpebble.pytorch.recipes.resnet18 FOLDER`.

The network is that of He et al. 2015 as torchvision has it, 11 million weights. Images of scikit-learn's digits are
enlarged to 32 x 32 pixels, and moved and turned a little. All convolutions but the first get as many zeros in each
output, the smallest weights; what is left learns what the dense network answers, and the labels. A third of the images
is held out, and only gives the numbers on the card: accuracies with intervals of 95 %, and that of their difference.
The folder gets `dense.onnx` and `sparse.onnx`, and what the zoo stores: `resnet18_80.npz.xz` and
`resnet18_80.json`.
"""

import argparse
import copy
import json
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import pi
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from ...frontend.reading.model_source import read_runnable_model
from ...models.resnet18 import CARD, SIDE, WEIGHTS, packed
from ..batches import Batch, Module
from ..distil import distil
from ..losses import Labels
from ..prune import prune

HELD_OUT: Final = 600
IMAGES_A_STEP: Final = 32
EPOCHS: Final = 10
"""Passes over the images, of the dense training and of the distillation each."""


class Block(nn.Module):
    """Two convolutions with batch norms, and a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channels, height, width]."""
        past = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + past)


class ResNet18(nn.Module):
    """Images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(3, width, 7, 2), nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = [
            nn.Sequential(Block(before, after, 1 + (index > 0)), Block(after, after, 1))
            for index, (before, after) in enumerate(pairwise(widths))
        ]
        self.layer1, self.layer2, self.layer3, self.layer4 = blocks
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits."""
        x = functional.max_pool2d(torch.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def _convolution(inputs: int, outputs: int, taps: int, stride: int) -> nn.Conv2d:
    # the stubs of torch know no arguments of layers
    return cast("Any", nn.Conv2d)(inputs, outputs, taps, stride=stride, padding=taps // 2, bias=False)


class Images(NamedTuple):
    """Images [count, 1, SIDE, SIDE] and their labels [count]."""

    images: Tensor
    labels: Tensor


def read_images(seed: int) -> tuple[Images, Images]:
    """Return images to train on, and those that are held out."""
    pixels, labels = cast("Any", load_digits(return_X_y=True))
    order = np.random.default_rng(seed).permutation(len(labels))
    small = torch.from_numpy(pixels[order].astype(np.float32) / 16).view(-1, 1, 8, 8)
    images = functional.interpolate(small, (SIDE, SIDE), mode="bilinear", align_corners=False)
    found = torch.from_numpy(labels[order].astype(np.int64))
    return Images(images[:-HELD_OUT], found[:-HELD_OUT]), Images(images[-HELD_OUT:], found[-HELD_OUT:])


def batches_of(data: Images, epoch: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of an epoch: images in another order, turned by up to 10 degrees, moved by up to 3 pixels."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(len(data.images), generator=generator)
    for chosen in order.split(IMAGES_A_STEP):
        turn, down, right = (2 * torch.rand(3, len(chosen), generator=generator) - 1) * torch.tensor(
            [[10 * pi / 180], [6 / SIDE], [6 / SIDE]]
        )
        rows = [torch.stack([turn.cos(), -turn.sin(), right], 1), torch.stack([turn.sin(), turn.cos(), down], 1)]
        grid = functional.affine_grid(torch.stack(rows, 1), [len(chosen), 1, SIDE, SIDE], align_corners=False)
        images = functional.grid_sample(data.images[chosen], grid, align_corners=False)
        yield {"images": images.expand(-1, 3, -1, -1), "labels": data.labels[chosen]}


def forward(module: Module, batch: Batch) -> Tensor:
    """Return what a network answers to the images of a batch."""
    return module(batch["images"])


def answers(module: nn.Module, data: Images) -> Tensor:
    """Return the classes that a network finds."""
    module.eval()
    with torch.no_grad():
        return torch.cat([module(one.expand(-1, 3, -1, -1)).argmax(1) for one in data.images.split(100)])


def trained(data: Images, seed: int, epochs: int = EPOCHS, width: int = 64) -> ResNet18:
    """Return a dense network."""
    torch.manual_seed(seed)
    dense = ResNet18(width=width)
    settings: dict[str, Any] = {"forward": forward, "rate": 1e-3, "steps": _steps(data, epochs)}
    distil(dense, None, lambda epoch: batches_of(data, epoch, seed), losses=[Labels()], **settings)
    return dense


def pruned(dense: nn.Module, data: Images, zeros: float, seed: int, epochs: int = EPOCHS) -> nn.Module:
    """Return a sparse network that was distilled from a dense one."""
    student = copy.deepcopy(dense)
    prune(student, sparsity=zeros, layers=lambda name, _: name.startswith("layer"))
    settings: dict[str, Any] = {"forward": forward, "rate": 1e-3, "steps": _steps(data, epochs)}
    losses = ["logits", (Labels(), 0.5)]
    distil(student, dense, lambda epoch: batches_of(data, epochs + epoch, seed), losses=losses, **settings)
    return student


def _steps(data: Images, epochs: int) -> int:
    return epochs * -(-len(data.images) // IMAGES_A_STEP)


def share_interval(right: int, count: int) -> tuple[float, float]:
    """Return the bounds of 95 % of a share (Wilson 1927)."""
    z, share = 1.96, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return middle - half, middle + half


def difference_interval(gained: int, lost: int, count: int) -> tuple[float, float]:
    """Return the bounds of 95 % of a difference of shares of the same images (Agresti and Min 2005)."""
    gained, lost, count = gained + 1, lost + 1, count + 4
    middle = (gained - lost) / count
    half = 1.96 * (gained + lost - (gained - lost) ** 2 / count) ** 0.5 / count
    return middle - half, middle + half


def card_of(dense: nn.Module, sparse: nn.Module, data: Images) -> dict[str, Any]:
    """Return what the held-out images say of two networks."""
    before, after = (answers(one, data) == data.labels for one in (dense, sparse))
    gained, lost, count = int((after & ~before).sum()), int((before & ~after).sum()), len(data.labels)
    weights = [one.weight for one in sparse.modules() if isinstance(one, nn.Conv2d)]
    card: dict[str, Any] = {"held_out": count}
    for name, hits in (("dense", before), ("sparse", after)):
        card[f"accuracy_{name}"] = float(hits.float().mean())
        card[f"interval_{name}"] = share_interval(int(hits.sum()), count)
    zeros = sum(int((one == 0).sum()) for one in weights) / sum(one.numel() for one in weights)
    return card | {
        "difference": (gained - lost) / count,
        "interval_difference": difference_interval(gained, lost, count),
        "zeros": zeros,
    }


def export(module: nn.Module, path: Path) -> None:
    """Write a network with a free batch; batch norms become part of the convolutions."""
    free: Any = {"images": {0: "batch"}}
    module.eval()
    torch.onnx.export(
        module, (torch.zeros(1, 3, SIDE, SIDE),), path, input_names=["images"], dynamic_axes=free, dynamo=False
    )


def weights_of(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """Return weights and biases of an exported network by the names of its layers, batch norms folded into them."""
    graph = read_runnable_model(path).graph
    found = dict[str, NDArray[np.float32]]()
    for node in graph:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        # such as /conv1/Conv, and /layer2/layer2.0/downsample/downsample.0/Conv
        path_of = (node.name or "").strip("/").split("/")
        name = path_of[0] if len(path_of) == 2 else f"{path_of[1]}.{path_of[-2]}"
        for part, value in zip(("weight", "bias"), node.inputs[1:3], strict=True):
            assert value is not None
            assert value.const_value is not None
            found[f"{name}.{part}"] = value.const_value.numpy()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Train a dense network and a sparse one, and write both and the card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--zeros", type=float, default=0.8, help="share of zeros")
    parser.add_argument("--seed", type=int, default=0, help="the split, the first weights and the order of images")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data, held_out = read_images(chosen.seed)
    dense = trained(data, chosen.seed)
    sparse = pruned(dense, data, chosen.zeros, chosen.seed)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    export(dense, chosen.folder / "dense.onnx")
    export(sparse, chosen.folder / "sparse.onnx")
    weights = packed(weights_of(chosen.folder / "sparse.onnx"))
    (chosen.folder / WEIGHTS.name).write_bytes(weights)
    card = {
        "data": f"sklearn.datasets.load_digits, {len(data.labels)} images to train on",
        "seed": chosen.seed,
        "epochs": {"dense": EPOCHS, "distilled": EPOCHS, "batch": IMAGES_A_STEP},
        "cpu_seconds": round(time.process_time()),
        **card_of(dense, sparse, held_out),
    }
    (chosen.folder / CARD.name).write_text(json.dumps(card, indent=2) + "\n")
    print(json.dumps(card, indent=2))


if __name__ == "__main__":
    main()
