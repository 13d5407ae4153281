"""The layers of YOLOv5s, release 6, as a module of torch: its outputs are the maps of three scales, not boxes."""

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

from .torch_networks import Torch

torch: Any = import_module("torch")
nn: Any = torch.nn

WIDTHS: Final = (32, 64, 128, 256, 512)
"""Channels after each halving of the image."""

DEPTHS: Final = (1, 2, 3, 1)
ANCHORS: Final = 3
CLASSES: Final = 80


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, padding: int | None = None) -> Torch:
    """Return a convolution, its batch norm and SiLU."""
    pads = kernel // 2 if padding is None else padding
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, pads, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class Bottleneck(nn.Module):
    """1x1, then 3x3, maybe with the input added."""

    def __init__(self, channels: int, *, adds: bool) -> None:
        nn.Module.__init__(self)
        self.one, self.two, self.adds = _conv(channels, channels), _conv(channels, channels, 3), adds

    def forward(self, x: Torch) -> Torch:
        """x [batch, channels, height, width] -> the same shape."""
        y = self.two(self.one(x))
        return x + y if self.adds else y


class Partial(nn.Module):
    """Half of the channels through bottlenecks, the other half beside them (C3)."""

    def __init__(self, inputs: int, outputs: int, depth: int, *, adds: bool = True) -> None:
        nn.Module.__init__(self)
        half = outputs // 2
        self.into, self.beside, self.out = _conv(inputs, half), _conv(inputs, half), _conv(outputs, outputs)
        self.blocks = nn.Sequential(*[Bottleneck(half, adds=adds) for _ in range(depth)])

    def forward(self, x: Torch) -> Torch:
        """x [batch, inputs, height, width] -> [batch, outputs, height, width]."""
        return self.out(torch.cat([self.blocks(self.into(x)), self.beside(x)], dim=1))


class Pyramid(nn.Module):
    """Three poolings one behind the other, all of them kept (SPPF)."""

    def __init__(self, channels: int) -> None:
        nn.Module.__init__(self)
        self.into, self.out = _conv(channels, channels // 2), _conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Torch) -> Torch:
        """x [batch, channels, height, width] -> the same shape."""
        parts: list[Torch] = [self.into(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.out(torch.cat(parts, dim=1))


class YoloV5s(nn.Module):
    """The body, the pyramid of features and the heads of the detector."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        _, _, third, fourth, fifth = WIDTHS
        self.stem = _conv(3, WIDTHS[0], 6, 2, 2)
        halved = [_conv(one, two, 3, 2) for one, two in pairwise(WIDTHS)]
        blocks = [Partial(width, width, depth) for width, depth in zip(WIDTHS[1:], DEPTHS, strict=True)]
        self.stages = nn.ModuleList([nn.Sequential(*pair) for pair in zip(halved, blocks, strict=True)])
        self.pyramid, self.up = Pyramid(fifth), nn.Upsample(scale_factor=2, mode="nearest")
        self.narrow = nn.ModuleList([_conv(fifth, fourth), _conv(fourth, third)])
        self.upward = nn.ModuleList([_joined(fifth, fourth), _joined(fourth, third)])
        self.halve = nn.ModuleList([_conv(third, third, 3, 2), _conv(fourth, fourth, 3, 2)])
        self.downward = nn.ModuleList([_joined(fourth, fourth), _joined(fifth, fifth)])
        results = ANCHORS * (CLASSES + 5)
        self.heads = nn.ModuleList([nn.Conv2d(width, results, 1) for width in (third, fourth, fifth)])

    def forward(self, x: Torch) -> Sequence[Torch]:
        """x [batch, 3, height, width] -> three maps of 255 channels, at an 8th, a 16th and a 32nd of the size."""
        x = self.stem(x)
        seen: list[Torch] = []
        for stage in self.stages:
            x = stage(x)
            seen.append(x)
        top = self.narrow[0](self.pyramid(x))
        middle = self.narrow[1](self.upward[0](torch.cat([self.up(top), seen[2]], dim=1)))
        small = self.upward[1](torch.cat([self.up(middle), seen[1]], dim=1))
        medium = self.downward[0](torch.cat([self.halve[0](small), middle], dim=1))
        large = self.downward[1](torch.cat([self.halve[1](medium), top], dim=1))
        return tuple(head(value) for head, value in zip(self.heads, (small, medium, large), strict=True))


def _joined(inputs: int, outputs: int) -> Torch:
    return Partial(inputs, outputs, 1, adds=False)
