"""Architectures that no package of the extra `zoo` has, written in torch as their papers' code does; needs torch.

TabNet-like, FT-transformer-like, MLP-Mixer, DLRM and a stack of LSTMs, in any size.
"""

from importlib import import_module
from itertools import pairwise
from typing import Any

torch: Any = import_module("torch")
nn: Any = torch.nn

Torch = Any
"""A tensor or a module: torch is an extra, so that its types are not known where types are checked."""


class GatedUnit(nn.Module):
    """Linear layer whose one half opens and shuts the other: what TabNet calls a GLU block."""

    def __init__(self, inputs: int, outputs: int) -> None:
        nn.Module.__init__(self)
        self.linear = nn.Linear(inputs, 2 * outputs, bias=False)
        self.norm = nn.BatchNorm1d(2 * outputs)

    def forward(self, x: Torch) -> Torch:
        """x [batch, inputs] -> [batch, outputs]."""
        value, gate = self.norm(self.linear(x)).chunk(2, dim=-1)
        return value * torch.sigmoid(gate)


class FeatureTransformer(nn.Module):
    """TabNet's feature transformer: GLU blocks with scaled residuals."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        nn.Module.__init__(self)
        self.blocks = nn.ModuleList([GatedUnit(inputs if index == 0 else width, width) for index in range(depth)])

    def forward(self, x: Torch) -> Torch:
        """x [batch, inputs] -> [batch, width]."""
        x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = (x + block(x)) * 0.7071067811865476
        return x


class TabNet(nn.Module):
    """TabNet's steps: masked features, a feature transformer, its decision summed up."""

    def __init__(self, features: int, width: int, steps: int) -> None:
        nn.Module.__init__(self)
        self.width = width
        self.entry = nn.BatchNorm1d(features)
        self.first = FeatureTransformer(features, 2 * width, 4)
        self.attentive = nn.ModuleList([nn.Linear(width, features) for _ in range(steps)])
        self.transformers = nn.ModuleList([FeatureTransformer(features, 2 * width, 4) for _ in range(steps)])
        self.head = nn.Linear(width, 4)

    def forward(self, x: Torch) -> Torch:
        """x [batch, features] -> [batch, 4]."""
        x = self.entry(x)
        attended = self.first(x)[:, self.width :]
        total = 0.0
        for attentive, transformer in zip(self.attentive, self.transformers, strict=True):
            mask = torch.softmax(attentive(attended), dim=-1)
            out = transformer(mask * x)
            total = total + torch.relu(out[:, : self.width])
            attended = out[:, self.width :]
        return self.head(total)


class TabularBlock(nn.Module):
    """Pre-norm block of FT-transformer: attention between features, then a feed-forward layer with ReGLU."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        nn.Module.__init__(self)
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def _split(self, x: Torch) -> Torch:
        batch, tokens, width = x.shape
        return x.reshape(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Torch) -> Torch:
        """x [batch, tokens, width] -> the same shape."""
        y = self.norm1(x)
        query, key, value = (self._split(layer(y)) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(-1, -2) / (query.shape[-1] ** 0.5), dim=-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(x.shape))
        gate, value = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(torch.relu(gate) * value)


class FtTransformer(nn.Module):
    """FT-transformer: every number becomes a token of its own, a class token stands in front."""

    def __init__(self, features: int, width: int, heads: int, depth: int) -> None:
        nn.Module.__init__(self)
        self.scale = nn.Parameter(torch.randn(features, width))
        self.bias = nn.Parameter(torch.randn(features, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.ModuleList([TabularBlock(width, heads, 4 * width // 3) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 2)

    def forward(self, x: Torch) -> Torch:
        """x [batch, features] -> [batch, 2]."""
        tokens = x.unsqueeze(-1) * self.scale + self.bias
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(torch.relu(self.norm(tokens[:, 0])))


class MixerBlock(nn.Module):
    """Block of MLP-Mixer: a network along the tokens, then one along the channels."""

    def __init__(self, tokens: int, width: int) -> None:
        nn.Module.__init__(self)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Torch) -> Torch:
        """x [batch, tokens, width] -> the same shape."""
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """MLP-Mixer for square images of 3 channels."""

    def __init__(self, side: int, patch: int, width: int, depth: int) -> None:
        nn.Module.__init__(self)
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*[MixerBlock((side // patch) ** 2, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Torch) -> Torch:
        """x [batch, 3, side, side] -> [batch, 10]."""
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def _perceptron(*widths: int) -> Torch:
    layers = [part for one, two in pairwise(widths) for part in (nn.Linear(one, two), nn.ReLU())]
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    """DLRM: numbers through a network, categories through tables, products of all pairs through another network."""

    def __init__(self, dense: int, tables: int, width: int, hidden: int) -> None:
        nn.Module.__init__(self)
        self.bottom = _perceptron(dense, hidden, hidden, width)
        self.tables = nn.ModuleList([nn.Embedding(50, width) for _ in range(tables)])
        rows, columns = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("pairs", rows * (tables + 1) + columns)
        self.top = nn.Sequential(_perceptron(width + len(rows), hidden, hidden), nn.Linear(hidden, 1))

    def forward(self, x: Torch, categories: Torch) -> Torch:
        """x [batch, dense], categories int64 [batch, tables] -> [batch, 1]."""
        x = self.bottom(x)
        stacked = torch.stack([x, *[table(categories[:, index]) for index, table in enumerate(self.tables)]], dim=1)
        products = (stacked @ stacked.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([x, products], dim=1)))


class Recurrent(nn.Module):
    """Two LSTMs over a sequence, and a linear layer on every step."""

    def __init__(self, inputs: int, width: int) -> None:
        nn.Module.__init__(self)
        self.lstm = nn.LSTM(inputs, width, num_layers=2, batch_first=True)
        self.up, self.head = nn.Linear(width, 4 * width), nn.Linear(4 * width, 8)

    def forward(self, x: Torch) -> Torch:
        """x [batch, steps, inputs] -> [batch, steps, 8]."""
        return self.head(torch.relu(self.up(self.lstm(x)[0])))


class FirstOutput(nn.Module):
    """A network of transformers with named inputs, reduced to its first result: hidden states, or logits."""

    def __init__(self, network: Torch, names: tuple[str, ...]) -> None:
        nn.Module.__init__(self)
        self.network, self.names = network, names

    def forward(self, *inputs: Torch) -> Torch:
        """The inputs in the order of their names -> the first result."""
        return self.network(**dict(zip(self.names, inputs, strict=True)))[0]


class DecoderStep(nn.Module):
    """One step of a decoder of transformers: its past goes in and comes out as tensors, two a layer."""

    def __init__(self, network: Torch) -> None:
        nn.Module.__init__(self)
        self.network = network

    def forward(self, tokens: Torch, mask: Torch, past: Torch) -> Torch:
        """tokens [batch, steps], mask [batch, past + steps], past of keys and values -> logits and the longer past."""
        cache = import_module("transformers").DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        out = self.network(input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True)
        longer = [part for layer in out.past_key_values.layers for part in (layer.keys, layer.values)]
        return (out.logits, *longer)
