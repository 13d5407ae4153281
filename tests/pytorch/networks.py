"""Small modules and batches that tests share."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn = torch.nn

# torch is untyped where it is not installed
Tensor = Any
Module = Any
Batch = Any
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        nn.Module.__init__(self)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Encoder(nn.Module):
    """A stack of blocks over word embeddings, whose head is tied to these."""

    def __init__(self, width: int = 40, depth: int = 4, words: int = 200) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(0)
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor, attention_mask: Tensor = None) -> dict[str, Tensor]:
        del attention_mask
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return {"last_hidden_state": x, "logits": self.head(x)}


def token_batches(count: int = 6, words: int = 200) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones((16, 10), dtype=torch.int64)
    mask[:8, 6:] = 0
    return [
        {"ids": torch.randint(0, words, (16, 10), generator=generator), "attention_mask": mask} for _ in range(count)
    ]


def images() -> Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.ReLU()
    )


class Attention(nn.Module):
    """Attention as libraries write it: `fused` has one layer for queries, keys and values."""

    def __init__(self, width: int, num_heads: int, kv_heads: int, fused: bool) -> None:
        nn.Module.__init__(self)
        self.num_heads, self.kv_heads, self.size = num_heads, kv_heads, width // num_heads
        shared = kv_heads * self.size
        if fused:
            self.qkv = nn.Linear(width, width + 2 * shared)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, one) for one in (width, shared, shared))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        shared, repeats = self.kv_heads * self.size, self.num_heads // self.kv_heads
        if not hasattr(self, "qkv"):
            parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            q, k, v = (one.unflatten(-1, (-1, self.size)).transpose(1, 2) for one in parts)
        elif repeats > 1:
            parts = self.qkv(x).split([x.shape[-1], shared, shared], -1)
            q, k, v = (one.unflatten(-1, (-1, self.size)).transpose(1, 2) for one in parts)
        else:
            q, k, v = self.qkv(x).unflatten(-1, (3, -1, self.size)).permute(2, 0, 3, 1, 4).unbind(0)
        if repeats > 1:
            k, v = (one.repeat_interleave(repeats, 1) for one in (k, v))
        weights = (q @ k.transpose(-1, -2) / self.size**0.5).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Blocks of attention and a layer, over images' patches or the like: x [samples, tokens, width]."""

    def __init__(
        self, width: int = 64, heads: int = 4, kv_heads: int | None = None, depth: int = 2, fused: bool = False
    ) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(0)
        self.attentions = nn.ModuleList(Attention(width, heads, kv_heads or heads, fused) for _ in range(depth))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for attention, block, norm in zip(self.attentions, self.blocks, self.norms, strict=True):
            x = block(norm(x + attention(x)))
        return x


def token_states(count: int = 4, width: int = 64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 10, width, generator=generator) for _ in range(count)]
