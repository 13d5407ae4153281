"""Kinds of networks over signals and images that published files are of: norms of groups, transposed and long windows.

Needs torch.
"""

from importlib import import_module
from itertools import pairwise
from typing import Any

torch: Any = import_module("torch")
nn: Any = torch.nn

Torch = Any
"""A tensor or a module: torch is an extra, so that its types are not known where types are checked."""

GROUPS = 8


def _normalized(inputs: int, outputs: int) -> Torch:
    return nn.Sequential(nn.Conv1d(inputs, outputs, 5, padding=2), nn.GroupNorm(GROUPS, outputs), nn.SiLU())


class WaveUNet(nn.Module):
    """A U-Net over samples: norms of groups, halved by a stride, doubled by transposed convolutions."""

    def __init__(self, width: int, depth: int) -> None:
        nn.Module.__init__(self)
        widths = [width << level for level in range(depth + 1)]
        self.first = _normalized(1, width)
        pairs = list(pairwise(widths))
        self.halves = nn.ModuleList(nn.Conv1d(less, more, 4, stride=2, padding=1) for less, more in pairs)
        self.down = nn.ModuleList(_normalized(more, more) for more in widths[1:])
        self.doubles = nn.ModuleList(nn.ConvTranspose1d(more, less, 4, stride=2, padding=1) for less, more in pairs)
        self.up = nn.ModuleList(_normalized(2 * less, less) for less in widths[:-1])
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, samples: Torch) -> Torch:
        """samples [batch, 1, length] -> the same shape."""
        kept = [self.first(samples)]
        for half, block in zip(self.halves, self.down, strict=True):
            kept.append(block(half(kept[-1])))
        x = kept.pop()
        for double, block in zip(reversed(self.doubles), reversed(self.up), strict=True):
            x = block(torch.cat([double(x), kept.pop()], dim=1))
        return self.head(x)


class WordTagger(nn.Module):
    """Classes of words of a text of any length: an embedding, and an LSTM in both directions over it."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, ids: Torch) -> Torch:
        """ids [batch, length] -> [batch, length, classes]."""
        return self.head(self.lstm(self.embedding(ids))[0])


class ImageDecoder(nn.Module):
    """Images of latent values, as decoders of variational autoencoders: transposed convolutions of stride 2."""

    def __init__(self, latent: int, width: int, side: int) -> None:
        nn.Module.__init__(self)
        self.side = side
        self.first = nn.Linear(latent, 4 * width * side * side)
        widths = (4 * width, 2 * width, width)
        self.body = nn.Sequential(
            *(
                nn.Sequential(
                    nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False),
                    nn.BatchNorm2d(after),
                    nn.ReLU(),
                    nn.Conv2d(after, after, 3, padding=1),
                    nn.InstanceNorm2d(after, affine=True),
                    nn.ReLU(),
                )
                for before, after in pairwise(widths)
            )
        )
        self.head = nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1)

    def forward(self, latent: Torch) -> Torch:
        """latent [batch, latent] -> images [batch, 3, 8 side, 8 side]."""
        x = self.first(latent).reshape(latent.shape[0], -1, self.side, self.side)
        return torch.sigmoid(self.head(self.body(x)))


class PitchNetwork(nn.Module):
    """The pitch of frames of 1024 samples, as CREPE finds it: windows of 512 samples, then of 64 features."""

    def __init__(self, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        widths = (8 * width, width, width, width, 2 * width, 4 * width)
        blocks: list[Torch] = []
        for index, (before, after) in enumerate(zip((1, *widths), widths, strict=False)):
            taps, stride = (512, 4) if index == 0 else (64, 1)
            pads = (254, 254) if index == 0 else (31, 32)
            convolution = nn.Conv2d(before, after, (taps, 1), stride=(stride, 1))
            norm = nn.Sequential(nn.ReLU(), nn.BatchNorm2d(after), nn.MaxPool2d((2, 1)))
            blocks += [nn.ZeroPad2d((0, 0, *pads)), convolution, norm]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(16 * width, classes)

    def forward(self, frames: Torch) -> Torch:
        """frames [batch, 1024] -> [batch, classes]."""
        x = self.body(frames[:, None, :, None])
        return torch.sigmoid(self.head(x.permute(0, 2, 1, 3).reshape(-1, self.head.in_features)))


class SeizureDetector(nn.Module):
    """Classes of seconds of an EEG: convolutions over bands of its spectrograms, and an LSTM in both directions."""

    def __init__(self, electrodes: int, bands: int, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        widths = (electrodes, width, 2 * width, 2 * width)
        self.body = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(before, after, 3, padding=1, bias=False),
                    nn.BatchNorm2d(after),
                    nn.ReLU(),
                    nn.MaxPool2d((2, 1)),
                )
                for before, after in pairwise(widths)
            )
        )
        self.lstm = nn.LSTM(2 * width * (bands // 8), 2 * width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, bands: Torch) -> Torch:
        """bands [batch, electrodes, bands, length] -> [batch, length, classes]."""
        x = self.body(bands)
        x = x.permute(0, 3, 1, 2).flatten(2)
        return self.head(self.lstm(x)[0])


class VoiceDetector(nn.Module):
    """Whether there is speech in 512 samples, behind the states of those before: an STFT, convolutions, an LSTM."""

    def __init__(self, width: int) -> None:
        nn.Module.__init__(self)
        self.stft = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        widths = ((129, width, 1), (width, width // 2, 2), (width // 2, width // 2, 2), (width // 2, width, 1))
        self.body = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(before, after, 3, stride=stride, padding=1), nn.ReLU())
                for before, after, stride in widths
            )
        )
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, samples: Torch, h: Torch, c: Torch) -> tuple[Torch, Torch, Torch]:
        """samples [batch, 512], states [1, batch, width] -> [batch, 1], and the states behind them."""
        x = self.stft(nn.functional.pad(samples[:, None], (0, 64), mode="reflect"))
        x = torch.sqrt(x[:, :129] ** 2 + x[:, 129:] ** 2)
        x, (h, c) = self.lstm(self.body(x).transpose(1, 2), (h, c))
        x = torch.sigmoid(self.head(torch.relu(x).transpose(1, 2)))
        return x.mean(dim=2), h, c
