"""Small modules and batches that tests share."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn = torch.nn
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.tanh(self.up(x)))


class Encoder(nn.Module):
    """A stack of blocks over word embeddings, whose head is tied to these."""

    def __init__(self, width: int = 40, depth: int = 4, words: int = 200) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Any, attention_mask: Any = None) -> Any:
        del attention_mask
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return {"last_hidden_state": x, "logits": self.head(x)}


def token_batches(count: int = 6, words: int = 200) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones((16, 10), dtype=torch.int64)
    mask[:8, 6:] = 0
    return [
        {"ids": torch.randint(0, words, (16, 10), generator=generator), "attention_mask": mask} for _ in range(count)
    ]


def images() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.ReLU()
    )
