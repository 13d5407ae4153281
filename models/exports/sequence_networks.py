"""Layers over what has any length: letters, samples, features in time, lines of text and tokens; needs torch."""

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
nn: Any = torch.nn

Torch = Any
"""A tensor or a module: torch is an extra, so that its types are not known where types are checked."""


def _convolution(inputs: int, outputs: int, taps: int, stride: int = 1) -> Torch:
    convolution = nn.Conv1d(inputs, outputs, taps, stride=stride, padding=taps // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm1d(outputs), nn.ReLU())


class LetterTagger(nn.Module):
    """Classes of letters: an embedding, and convolutions of several widths over it, as taggers of stress have them."""

    def __init__(self, letters: int, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(letters, width)
        self.body = nn.Sequential(*(_convolution(width, width, 5) for _ in range(3)))
        self.head = nn.Conv1d(width, classes, 1)

    def forward(self, ids: Torch) -> Torch:
        """ids [batch, length] -> [batch, length, classes]."""
        return self.head(self.body(self.embedding(ids).transpose(1, 2))).transpose(1, 2)


class SampleEncoder(nn.Module):
    """Features of audio: convolutions with strides over samples, as wav2vec has them, and their mean."""

    def __init__(self, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.first = _convolution(1, width, 10, 5)
        self.body = nn.Sequential(*(_convolution(width, width, taps, 2) for taps in (3, 3, 3, 2)))
        self.head = nn.Linear(width, classes)

    def forward(self, samples: Torch) -> Torch:
        """samples [batch, length] -> [batch, classes]."""
        return self.head(self.body(self.first(samples.unsqueeze(1))).mean(dim=2))


class FrameClassifier(nn.Module):
    """Classes of frames of features [batch, length, bands]: a reshape to images, and convolutions over both axes."""

    def __init__(self, bands: int, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.stem = nn.Conv2d(1, width, 3, stride=(1, 2), padding=1)
        self.body = nn.Conv2d(width, width, 3, stride=(1, 2), padding=1)
        self.mixed = nn.Sequential(_convolution(width * (bands // 4), 2 * width, 3), _convolution(2 * width, width, 3))
        self.head = nn.Linear(width, classes)

    def forward(self, features: Torch) -> Torch:
        """features [batch, length, bands] -> [batch, length, classes]."""
        batch, length, bands = features.shape
        x = torch.relu(self.stem(features.reshape(batch, 1, length, bands)))
        x = torch.relu(self.body(x))
        x = x.permute(0, 1, 3, 2).reshape(batch, -1, length)
        return self.head(self.mixed(x).transpose(1, 2))


class LineRecognizer(nn.Module):
    """Letters along a line of text of any width: convolutions that halve its height, and classes of each column."""

    def __init__(self, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        sizes = ((3, width), (width, width), (width, 2 * width))
        blocks = [
            nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in sizes
        ]
        self.body = nn.Sequential(blocks[0], nn.MaxPool2d(2), blocks[1], nn.MaxPool2d((2, 1)), blocks[2])
        self.head = nn.Linear(2 * width, classes)

    def forward(self, lines: Torch) -> Torch:
        """lines [batch, 3, 32, width] -> [batch, width / 2, classes]."""
        return self.head(self.body(lines).mean(dim=2).transpose(1, 2))


class StackedEncoder(nn.Module):
    """torch's own encoder over tokens with positions that are learned, which a mask hides some of."""

    def __init__(self, words: int, width: int, heads: int, depth: int) -> None:
        nn.Module.__init__(self)
        self.words, self.positions = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, ids: Torch, mask: Torch) -> Torch:
        """ids and mask [batch, tokens] -> [batch, tokens, width]."""
        states = self.words(ids) + self.positions[:, : ids.shape[1]]
        return self.layers(states, src_key_padding_mask=mask == 0)


def states_encoder(width: int, heads: int, depth: int) -> Torch:
    """Return torch's own encoder over states [tokens, batch, width], with norms in front of layers."""
    layer = nn.TransformerEncoderLayer(width, heads, 2 * width, norm_first=True)
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
