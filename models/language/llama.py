# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""A decoder of the Llama shape as plain torch, with the names of transformers: token ids -> logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention to the tokens before, of heads that share keys and values."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, size = config["hidden_size"], config["head_dim"]
        self.heads, self.shared, self.size = config["num_attention_heads"], config["num_key_value_heads"], size
        self.q_proj = nn.Linear(width, self.heads * size, bias=False)
        self.k_proj = nn.Linear(width, self.shared * size, bias=False)
        self.v_proj = nn.Linear(width, self.shared * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, width, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """x [texts, tokens, width]; turns are cosines and sines [tokens, features of a head]."""
        batch, length, _ = x.shape
        q, k, v = (
            one.view(batch, length, -1, self.size).transpose(1, 2)
            for one in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        )
        copies = self.heads // self.shared
        k, v = _turned(k, turns).repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        mixed = functional.scaled_dot_product_attention(_turned(q, turns), k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = (one.to(x.dtype) for one in turns)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


class FeedForward(nn.Module):
    """Gate, up and down projection."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, wide, bias=False)
        self.up_proj = nn.Linear(width, wide, bias=False)
        self.down_proj = nn.Linear(wide, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [texts, tokens, width]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = nn.RMSNorm(width, epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(width, epsilon)
        self.mlp = FeedForward(width, config["intermediate_size"])

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """x [texts, tokens, width]."""
        x = x + self.self_attn(self.input_layernorm(x), turns)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Token ids -> hidden states."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.base, self.size = config["rope_theta"], config["head_dim"]

    def forward(self, ids: Tensor) -> Tensor:
        """ids [texts, tokens]."""
        steps = torch.arange(0, self.size, 2, device=ids.device, dtype=torch.float32) / self.size
        angles = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)[:, None] / self.base**steps
        angles = torch.cat((angles, angles), -1)
        x, turns = self.embed_tokens(ids), (angles.cos(), angles.sin())
        for layer in self.layers:
            x = layer(x, turns)
        return self.norm(x)


class Llama(nn.Module):
    """Token ids [texts, tokens] -> logits [texts, tokens, words]; embeddings are the head as well."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.model = Body(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight
        state = {name: torch.from_numpy(np.array(one, np.float32)) for name, one in weights.items()}
        self.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})

    def forward(self, ids: Tensor) -> Tensor:
        """ids [texts, tokens]."""
        return self.lm_head(self.model(ids))
