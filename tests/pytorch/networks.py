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
