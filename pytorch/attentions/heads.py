"""Heads of attentions as a structure: found by the names of layers, judged by what is lost, dropped by zeros that stay.

A head's columns of the layer that reads the results become zeros, and so do its rows of queries, keys and values: the
module stays what it is, and in a file the passes leave such heads out. Keys and values that several heads of queries
share go with all of these. Whether names were understood is seen in a run: without values a head has no results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ..batches import Batch, Forward, Run, call, device_of, moved
from ..layer_inputs import layer_inputs, seeing
from ..layers import PACKED, PrunableWeight, prunable_weights
from ..sparsifiers import damped, inverse_of

QUERIES: Final = ("query", "q_proj", "q_lin", "q", "wq", "to_q")
KEYS: Final = ("key", "k_proj", "k_lin", "k", "wk", "to_k")
VALUES: Final = ("value", "v_proj", "v_lin", "v", "wv", "to_v")
TOGETHER: Final = ("qkv", "c_attn", "Wqkv", "to_qkv", "qkv_proj", "query_key_value")
RESULTS: Final = ("out_proj", "o_proj", "out_lin", "proj", "c_proj", "wo", "o", "dense", "to_out", "output.dense")
COUNTS: Final = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
SIZES: Final = ("head_dim", "attention_head_size", "dim_head")

Module = Any


class HeadNames(NamedTuple):
    """The layers of an attention: those of queries, keys and values, or one of all; the one that reads the results."""

    makers: tuple[nn.Module, ...]
    reader: nn.Module
    heads: int
    """Heads of queries."""


ATTENTIONS: Final[dict[type[nn.Module], Callable[[Any], HeadNames]]] = {}


def register_attention(kind: type[nn.Module], describe: Callable[[Any], HeadNames]) -> None:
    """Let heads of a class of modules be dropped: `describe(module)` says which of its layers make and read them."""
    ATTENTIONS[kind] = describe


class Part(NamedTuple):
    """Outputs of a layer that are queries, keys or values."""

    weight: PrunableWeight
    first: int
    outputs: int


@dataclass(frozen=True)
class Heads:
    """The heads of an attention that can be dropped: each has its keys and values, and one head of queries or more."""

    name: str
    count: int
    makers: tuple[Part, Part, Part]
    reader: PrunableWeight
    heads_of_queries: int

    @property
    def weights(self) -> tuple[PrunableWeight, ...]:
        """All weights, each once."""
        return tuple(dict.fromkeys([*(part.weight for part in self.makers), self.reader]))

    def inputs_of(self, head: int) -> slice:
        """Return the inputs of the reader that are a head's results."""
        size = self.reader.matrix.shape[1] // self.count
        return slice(head * size, (head + 1) * size)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The heads that nothing reads."""
        matrix = self.reader.matrix
        return tuple(head for head in range(self.count) if not bool(matrix[:, self.inputs_of(head)].any()))

    def drop(self, heads: Iterable[int], reader: Tensor | None = None) -> None:
        """Drop heads, and let the reader have another matrix in place of its own."""
        heads = list(heads)
        masks = {one: _mask(one) for one in self.weights}
        for part in self.makers:
            size = part.outputs // self.count
            for head in heads:
                masks[part.weight][part.first + head * size : part.first + (head + 1) * size] = False
        for head in heads:
            masks[self.reader][:, self.inputs_of(head)] = False
        if reader is not None:
            with torch.no_grad():
                self.reader.values.copy_(self.reader.as_stored(reader))
        for weight, mask in masks.items():
            weight.set_mask(mask)


def drop_heads(
    module: nn.Module, data: Iterable[Batch] | None, drop: int | Mapping[str, Sequence[int]], *, forward: Forward = call
) -> dict[str, tuple[int, ...]]:
    """Drop so many heads of each attention, those without which least is lost, or those that are named; return them.

    What is left of the layer that reads the results makes up for what is gone, as far as it can.

    Raises:
        ValueError: there are no such heads, or an attention is none that is known.
    """
    run = Run(list(data or ()), forward)
    if not run.batches:
        raise ValueError("expected data for drop_heads, which looks at inputs of layers, got none")
    found = {one.name: one for one in heads_of(module, run)}
    wanted = dict.fromkeys(found, drop) if isinstance(drop, int) else dict(drop)
    for name, those in wanted.items():
        if name not in found:
            raise ValueError(f"attention: expected one of {', '.join(found) or 'none'}, got {name!r}")
        count, several = found[name].count, range(those) if isinstance(those, int) else those
        if not all(0 <= head < count for head in several) or len({*several}) >= count:
            raise ValueError(f"heads to drop: expected fewer than the {count} of {name}, got {those}")
    inputs = layer_inputs(module, [found[name].reader for name in wanted], run, "products")
    for name, those in wanted.items():
        one = found[name]
        if isinstance(those, int):
            if those:
                one.drop(*without_heads(one, inputs[one.reader.name])[those])
        else:
            one.drop(those)
    return {name: found[name].dropped for name in wanted}


def without_heads(heads: Heads, hessian: Tensor) -> list[tuple[tuple[int, ...], Tensor]]:
    """Return for 0, 1, ... heads dropped which these are, and what the reader's matrix becomes.

    Each time that head goes without which the results of the reader move least, once its other inputs make up for it.

    Source: Kurtic, Frantar and Alistarh, ZipLM: Inference-Aware Structured Pruning of Language Models, 2023.
    """
    matrix, inverse = heads.reader.matrix.clone(), inverse_of(damped(hessian))
    gone, steps = [*heads.dropped], [(tuple(heads.dropped), matrix.clone())]
    while len(gone) < heads.count - 1:
        losses = dict[int, tuple[float, Tensor]]()
        for head in set(range(heads.count)) - {*gone}:
            own = heads.inputs_of(head)
            moved_by = matrix[:, own] @ torch.linalg.pinv(inverse[own, own])
            losses[head] = float((moved_by * matrix[:, own]).sum()), moved_by
        head = min(losses, key=lambda one: losses[one][0])
        own = heads.inputs_of(head)
        matrix = matrix - losses[head][1] @ inverse[own]
        inverse = inverse - inverse[:, own] @ torch.linalg.pinv(inverse[own, own]) @ inverse[own]
        gone.append(head)
        for one in gone:
            matrix[:, heads.inputs_of(one)] = 0
        steps.append((tuple(gone), matrix.clone()))
    return steps


def heads_of(module: nn.Module, run: Run) -> dict[Heads, tuple[int, ...]]:
    """Return the attentions of a module whose heads can be dropped, and the shape of the results of each.

    A run of the first batch, in which one head of each has no values, shows whether its results are zeros.
    """
    weights = prunable_weights(module, more_than=0)
    owners = {one: weight for weight in weights if weight.is_whole for one in weight.modules}
    found = [
        heads
        for name, one in module.named_modules()
        if (names := _names(module, name, one)) is not None
        if (heads := _described(name, names, owners)) is not None
    ]
    found += [
        Heads(name, one.num_heads, parts, owners[one.out_proj], one.num_heads)
        for name, one in module.named_modules()
        if isinstance(one, nn.MultiheadAttention) and one.out_proj in owners
        if (parts := _packed(one, weights)) is not None
    ]
    shapes = _shapes(module, found, run)
    return {one: shapes[one.name] for one in found if one.name in shapes}


def _shapes(module: nn.Module, attentions: Sequence[Heads], run: Run) -> dict[str, tuple[int, ...]]:
    """Run the first batch without the values of each first head; return the shapes of results that show it."""
    seen = dict[str, tuple[int, ...]]()

    by_reader = {one.reader.name: one for one in attentions}

    def see(name: str, _: nn.Module, x: Tensor) -> None:
        heads = by_reader[name]
        own = heads.inputs_of(_live_head(heads))
        if x.dim() > 2 and not bool(x[..., own].any()) and bool(x.any()):
            seen[heads.name] = tuple(x.shape)

    before = [(one, one.detach().clone()) for heads in attentions for one in _values_of(heads)]
    was_training = module.training
    module.eval()
    try:
        with seeing(module, [one.reader for one in attentions], see), torch.no_grad():
            for heads in attentions:
                part = heads.makers[-1]
                size, head = part.outputs // heads.count, _live_head(heads)
                for one in _values_of(heads):
                    rows = one.T if part.weight.is_turned and one.dim() > 1 else one
                    rows[part.first + head * size : part.first + (head + 1) * size] = 0
            run.forward(module, moved(run.batches[0], device_of(module)))
    finally:
        with torch.no_grad():
            for one, stored in before:
                one.copy_(stored)
        module.train(was_training)
    return seen


def _live_head(heads: Heads) -> int:
    return next((head for head in range(heads.count) if head not in heads.dropped), 0)


def _values_of(heads: Heads) -> list[Tensor]:
    """Return the weight and the bias that make values."""
    weight = heads.makers[-1].weight
    return [weight.values] + ([] if weight.bias is None else [weight.bias])


def _mask(weight: PrunableWeight) -> Tensor:
    return torch.ones_like(weight.matrix, dtype=torch.bool) if weight.mask is None else weight.mask


def _packed(attention: nn.MultiheadAttention, weights: Sequence[PrunableWeight]) -> tuple[Part, Part, Part] | None:
    """Return the weights of torch's own attention that make queries, keys and values."""
    found = [one for one in weights if attention in one.modules and not one.is_whole]
    parts = [Part(one, 0, len(one.matrix)) for one in found]
    return (parts[0], parts[1], parts[2]) if len(parts) == len(PACKED) else None


def _described(name: str, names: HeadNames, owners: Mapping[nn.Module, PrunableWeight]) -> Heads | None:
    if any(one not in owners for one in (*names.makers, names.reader)):
        return None
    weights, reader = [owners[one] for one in names.makers], owners[names.reader]
    features = reader.matrix.shape[1]
    outputs = [one.matrix.shape[0] for one in weights]
    if len(weights) == 1:
        # keys and values are as wide as each other
        shared = (outputs[0] - features) // 2
        parts = [Part(weights[0], 0, features), Part(weights[0], features, shared)]
        parts.append(Part(weights[0], features + shared, shared))
    else:
        parts = [Part(one, 0, count) for one, count in zip(weights, outputs, strict=True)]
    if names.heads < 1 or features % names.heads or parts[2].outputs < 1:
        return None
    size = features // names.heads
    count, odd = divmod(parts[2].outputs, size)
    if odd or not count or names.heads % count or any(part.outputs % count for part in parts):
        return None
    return Heads(name, count, (parts[0], parts[1], parts[2]), reader, names.heads) if count > 1 else None


def _names(module: nn.Module, name: str, one: nn.Module) -> HeadNames | None:
    """Return the layers of an attention by what libraries call them."""
    if type(one) in ATTENTIONS:
        return ATTENTIONS[type(one)](one)
    apart = [_child(one, names) for names in (QUERIES, KEYS, VALUES)]
    makers: tuple[Any, ...] = (_child(one, TOGETHER),) if None in apart else tuple(apart)
    parents = [one, *([module.get_submodule(name.rpartition(".")[0])] if name else [])]
    reader = next((found for parent in parents if (found := _child(parent, RESULTS)) is not None), None)
    if makers[0] is None or reader is None:
        return None
    holders: list[Module] = [*parents, getattr(one, "config", None)]
    count = _number(holders, COUNTS)
    size = _number(holders[:1], SIZES)
    features = getattr(reader, "in_features", 0) or reader.weight.shape[0]
    return HeadNames(makers, reader, features // size if size else count)


def _child(parent: nn.Module, names: Sequence[str]) -> Any:  # noqa: ANN401
    for name in names:
        found: Any = parent
        for word in name.split("."):
            found = getattr(found, word, None)
        if isinstance(found, nn.Sequential) and len(found):
            found = found[0]
        if isinstance(found, nn.Module) and isinstance(getattr(found, "weight", None), Tensor):
            return found
    return None


def _number(holders: Sequence[object], names: Sequence[str]) -> int:
    for holder in holders:
        for name in names:
            if isinstance(value := getattr(holder, name, None), int) and value > 0:
                return value
    return 0
