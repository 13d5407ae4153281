"""Losses by name: distances of what a student answers from what its teacher does, or from labels.

```
embedding    1 - cosine of pooled embeddings
similarity   KL of each sample's similarities to the others of the batch: who is whose neighbour
hidden       mean square by which hidden states differ over the teacher's variance, of three blocks each
logits       KL of the distributions over classes or next tokens
outputs      mean square by which all floating outputs differ, over their variance
labels       the module's own loss where it answers one, or cross-entropy (mean square of floats) with batch["labels"]
```

A loss is any function `(student, teacher) -> scalar tensor` of two `Answer`s; it has a name after
`register_loss("mine", make)`, where `make()` returns it. One that needs hidden states has a method
`blocks(student, teacher)` as well, which returns the modules whose outputs it wants.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from .batches import Batch, Output, token_mask
from .depth import blocks_of

Context = Any
"""The memory of a function between forward and backward."""

CHUNK: Final = 1 << 26
"""Logits, about, that are looked at as float32 at a time."""


@dataclass(frozen=True)
class Answer:
    """The answer of a module to a batch."""

    output: Output
    """The value that the module returns; None where there is no teacher."""
    batch: Batch
    states: Sequence[Tensor] = ()
    """Outputs of the blocks that the loss asked for."""
    share: float = 0.0
    """The part of the training that is done, from 0 to 1: losses may change with it."""

    @property
    def tensor(self) -> Tensor:
        """The output itself, its logits, or the states of its last layer: the first tensor that there is."""
        for name in ("logits", "last_hidden_state"):
            if (found := _named(self.output, name)) is not None:
                return found
        return first_tensor(self.output)

    def tokens_of(self, states: Tensor) -> Tensor:
        """Return the mask of tokens [samples, tokens, 1] for states; ones where the batch has none of their shape."""
        mask = token_mask(self.batch)
        if mask is None or mask.shape != states.shape[:-1]:
            return states.new_ones((*states.shape[:-1], 1))
        return mask[..., None].to(states.dtype)

    def pooled(self, pool: "Pool") -> Tensor:
        """Return embeddings [samples, features] in float32."""
        found = _named(self.output, "last_hidden_state")
        states = (first_tensor(self.output) if found is None else found).float()
        if states.dim() < 3:
            return states
        if pool == "first":
            return states[:, 0]
        mask = token_mask(self.batch)
        if mask is None or mask.shape != states.shape[:2]:
            return states.flatten(1, -2).mean(1)
        weights = mask[..., None].float()
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


Pool = Literal["mean", "first"]
"""The way in which tokens of a sample become one embedding."""

Loss = Callable[[Answer, Answer], Tensor]


def first_tensor(output: Output) -> Tensor:
    """Return the first tensor of an output.

    Raises:
        ValueError: there is none.
    """
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        return first_tensor(next(iter(cast("Mapping[str, Output]", output).values())))
    if isinstance(output, tuple | list):
        return first_tensor(output[0])
    raise ValueError(f"expected a tensor or several from the module, got {type(output).__name__}")


def _named(output: Output, name: str) -> Tensor | None:
    is_mapping = isinstance(output, Mapping)
    found = cast("Mapping[str, Output]", output).get(name) if is_mapping else getattr(output, name, None)
    return found if isinstance(found, torch.Tensor) else None


@dataclass(frozen=True)
class Embedding:
    """1 - cosine of pooled embeddings."""

    pool: Pool = "mean"

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        return 1 - functional.cosine_similarity(student.pooled(self.pool), teacher.pooled(self.pool)).mean()


@dataclass(frozen=True)
class Similarity:
    """KL of each sample's similarities to the others of the batch, as shares of a softmax."""

    temperature: float = 0.05
    pool: Pool = "mean"

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        ours, theirs = (self._logits(one) for one in (student, teacher))
        return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")

    def _logits(self, answer: Answer) -> Tensor:
        embeddings = functional.normalize(answer.pooled(self.pool))
        similar = embeddings @ embeddings.T / self.temperature
        # a sample's similarity to itself says nothing
        itself = torch.eye(len(similar), dtype=torch.bool, device=similar.device)
        return similar.masked_fill(itself, -1e4).log_softmax(1)


@dataclass(frozen=True)
class Hidden:
    """Mean square by which hidden states differ over their variance, of some blocks as far apart as can be.

    Blocks of a student with fewer layers are compared with those as deep in the teacher.
    """

    count: int = 3

    def blocks(self, student: nn.Module, teacher: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
        """Return the blocks of the student, and for each one of the teacher."""
        (_, ours), (_, theirs) = blocks_of(student), blocks_of(teacher)
        count = min(self.count, len(ours))
        own = [-(-len(ours) * step // count) for step in range(1, count + 1)]
        pairs = [(number, max(1, round(number * len(theirs) / len(ours)))) for number in own]
        return [ours[number - 1] for number, _ in pairs], [theirs[number - 1] for _, number in pairs]

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        total = torch.zeros((), device=student.tensor.device)
        for ours, theirs in zip(student.states, teacher.states, strict=True):
            wanted, mask = theirs.float(), teacher.tokens_of(theirs).float()
            axes, rows = tuple(range(wanted.dim() - 1)), mask.sum().clamp(min=1)
            centred = (wanted - (wanted * mask).sum(axes) / rows) * mask
            moved = (ours.float() - wanted) * mask
            total = total + moved.square().sum() / centred.square().sum().clamp(min=1e-12)
        return total / max(1, len(teacher.states))


@dataclass(frozen=True)
class Logits:
    """KL of distributions, softened by a temperature (Hinton et al. 2015)."""

    temperature: float = 1.0

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        ours, theirs = student.tensor, teacher.tensor
        mask = student.tokens_of(ours).float() if ours.dim() > 1 else ours.new_ones(1, dtype=torch.float32)
        weights = (mask / mask.sum().clamp(min=1)).flatten()
        rows = [one.reshape(-1, one.shape[-1]) for one in (ours, theirs)]
        return self.temperature**2 * _Divergence.apply(*rows, weights, self.temperature)


class _Divergence(torch.autograd.Function):
    """Weighed sum of the rows' KL; its gradient is found with it, some rows at a time.

    Of a language model, logits of a batch take gigabytes: this keeps no floats of all of them, only the gradient, in
    the type of the logits.
    """

    @staticmethod
    def forward(ctx: Context, ours: Tensor, theirs: Tensor, weights: Tensor, temperature: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = torch.empty_like(ours) if ctx.needs_input_grad[0] else None
        total = torch.zeros((), device=ours.device)
        count = max(1, CHUNK // ours.shape[-1])
        for at in range(0, len(ours), count):
            part = slice(at, at + count)
            log_ours, log_theirs = ((one[part].float() / temperature).log_softmax(-1) for one in (ours, theirs))
            shares, weight = log_theirs.exp(), weights[part]
            # no product of matrices, which autocast would compute in few digits
            total += (weight * (shares * (log_theirs - log_ours)).sum(-1)).sum()
            if gradient is not None:
                gradient[part] = (log_ours.exp_() - shares) * (weight / temperature)[:, None]
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, scale: Tensor) -> tuple[Tensor | None, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (gradient,) = ctx.saved_tensors
        return None if gradient is None else gradient * scale.to(gradient.dtype), None, None, None


@dataclass(frozen=True)
class Outputs:
    """Mean square by which floating outputs differ over their variance: what `prune` calls lost."""

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        pairs = list(zip(_floats(student.output), _floats(teacher.output), strict=True))
        losses = [_variance_lost(ours.float(), theirs.float()) for ours, theirs in pairs]
        return torch.stack(losses).mean()


def _floats(output: Output) -> list[Tensor]:
    """Return the floating tensors of an output; keys and values that decoders hand on are none."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        named = cast("Mapping[str, Output]", output)
        return [one for name, value in named.items() if not name.startswith("present") for one in _floats(value)]
    if isinstance(output, tuple | list):
        return [one for value in cast("Sequence[Output]", output) for one in _floats(value)]
    return []


def _variance_lost(ours: Tensor, theirs: Tensor) -> Tensor:
    rows = theirs.reshape(-1, theirs.shape[-1] if theirs.dim() > 1 else 1)
    variance = (rows - rows.mean(0)).square().sum()
    return (ours - theirs).square().sum() / variance.clamp(min=1e-12)


@dataclass(frozen=True)
class Labels:
    """The module's own loss where it answers one, or else that of labels in the batch."""

    name: str | int = "labels"
    """The key of the labels in a batch, or their position."""

    def __call__(self, student: Answer, teacher: Answer) -> Tensor:
        del teacher
        own = _named(student.output, "loss")
        if own is not None:
            return own
        labels, output = student.batch[self.name], student.tensor.float()
        if labels.is_floating_point():
            return functional.mse_loss(output.view_as(labels), labels)
        return functional.cross_entropy(output.flatten(0, -2), labels.flatten())


def register_loss(name: str, make: Callable[[], Loss]) -> None:
    """Give a loss a name."""
    LOSSES[name] = make


LOSSES: Final[dict[str, Callable[[], Loss]]] = {
    "embedding": Embedding,
    "similarity": Similarity,
    "hidden": Hidden,
    "logits": Logits,
    "outputs": Outputs,
    "labels": Labels,
}

Weighed = str | Loss | tuple[str | Loss, float]
"""A loss or its name, and maybe its weight."""


def losses_of(losses: Sequence[Weighed]) -> list[tuple[Loss, float]]:
    """Return losses with their weights.

    Raises:
        ValueError: there are none, or a name is unknown.
    """
    if not losses:
        raise ValueError("losses: expected one or more, got none")
    found = list[tuple[Loss, float]]()
    for one in losses:
        loss, weight = cast("tuple[str | Loss, float]", one) if isinstance(one, tuple) else (one, 1.0)
        if isinstance(loss, str):
            if loss not in LOSSES:
                raise ValueError(f"loss: expected one of {', '.join(LOSSES)}, got {loss!r}")
            loss = LOSSES[loss]()
        found.append((loss, weight))
    return found
