"""Structures of masks by name, on any device: (scores [outputs, inputs], density) -> mask of the same shape.

```
free          the largest of the layer
equal         as many in each output: what the kernels like best
n:32          the same number in every 32 inputs of an output
2:4           two of every four inputs
64:2:8        V:N:M: outputs beside each other, 64 at a time, share 4 of every 8 inputs; each keeps 2 of those
blocks:4      blocks of 4 inputs of an output; blocks:1:8 are inputs that 8 outputs share, blocks:4:4 tiles
```

Outputs that share inputs lie beside each other. All other names are those of `redpebble prune`, chosen on the CPU.
A structure from outside has a name after `register_structure("mine", make)`, and numbers behind it (`mine:4`) are the
arguments of `make`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

SHARED: Final = 4
"""Inputs of M that V outputs share in V:N:M."""

Choose = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Structure:
    """A way to choose masks, which have any density or only one."""

    choose: Choose
    density: float | None = None
    window: int = 128
    """Neighbouring inputs whose mask can be chosen without the other inputs."""


@dataclass(frozen=True)
class Sparsity:
    """A structure at a density."""

    structure: Structure
    density: float

    def mask(self, scores: Tensor) -> Tensor:
        """Return a mask for scores [outputs, inputs], which are not negative."""
        return self.structure.choose(scores, self.density)


Maker = Callable[..., Structure | Choose]


def register_structure(name: str, make: Maker) -> None:
    """Give a structure a name: `make(*numbers)` returns a `Structure`, or the function that chooses a mask."""
    STRUCTURES[name] = make


def structure_of(text: str | Structure) -> Structure:
    """Return the structure of a text such as `equal` or `2:4`.

    Raises:
        ValueError: there is none.
    """
    if isinstance(text, Structure):
        return text
    words = text.split(":")
    is_numbers = all(word.isdecimal() for word in words)
    name = {2: "n:m", 3: "V:N:M"}.get(len(words), "") if is_numbers else words[0]
    numbers = words if is_numbers else words[1:]
    if name not in STRUCTURES:
        return _on_cpu(text)
    try:
        made = STRUCTURES[name](*map(int, numbers))
    except (TypeError, ValueError) as error:
        raise ValueError(f"structure {text!r}: {error}") from error
    return made if isinstance(made, Structure) else Structure(made)


def kept_of(density: float, of: int) -> int:
    """Return how many of so many stay, at least one."""
    return max(1, round(density * of))


def largest(scores: Tensor, kept: int) -> Tensor:
    """Return a mask of the `kept` largest along the last axis."""
    if kept >= scores.shape[-1]:
        return torch.ones_like(scores, dtype=torch.bool)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    return mask.scatter_(-1, scores.topk(kept, dim=-1, sorted=False).indices, True)


def _n_of_each(scores: Tensor, kept: int, of: int) -> Tensor:
    """Return a mask of the `kept` largest of every `of` inputs."""
    outputs, inputs = scores.shape
    missing = -inputs % of
    # nobody chooses what is only there to fill the last group
    padded = torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
    return largest(padded.view(outputs, -1, of), kept).view(outputs, -1)[:, :inputs].contiguous()


def _free() -> Choose:
    return lambda scores, density: largest(scores.flatten(), kept_of(density, scores.numel())).view_as(scores)


def _equal() -> Choose:
    return lambda scores, density: largest(scores, kept_of(density, scores.shape[1]))


def _n(of: int) -> Structure:
    return Structure(lambda scores, density: _n_of_each(scores, kept_of(density, of), of), window=of)


def _n_of_m(kept: int, of: int) -> Structure:
    if not 0 < kept < of:
        raise ValueError("expected one such as 2:4")
    return Structure(lambda scores, _: _n_of_each(scores, kept, of), kept / of, of)


def _v_n_m(height: int, kept: int, of: int) -> Structure:
    if not 0 < kept <= SHARED <= of:
        raise ValueError("expected one such as 64:2:8")

    def choose(scores: Tensor, density: float) -> Tensor:
        del density
        shared = _n_of_each(_of_neighbours(scores, height), SHARED, of)
        shared = shared.repeat_interleave(height, 0)[: len(scores)]
        # inputs that are not shared rank last, so that the n best shared ones are chosen
        return _n_of_each(torch.where(shared, scores, -1.0), kept, of) & shared

    return Structure(choose, kept / of, of)


def _blocks(length: int, height: int = 1) -> Structure:
    def choose(scores: Tensor, density: float) -> Tensor:
        outputs, inputs = scores.shape
        sums = _of_neighbours(_of_neighbours(scores, height).T, length).T.contiguous()
        kept = largest(sums, kept_of(density, sums.shape[1]))
        return kept.repeat_interleave(height, 0)[:outputs].repeat_interleave(length, 1)[:, :inputs].contiguous()

    return Structure(choose, window=max(1, 128 // length) * length)


def _of_neighbours(scores: Tensor, count: int) -> Tensor:
    """Return the sums of so many rows beside each other; the last ones may be fewer."""
    padded = torch.nn.functional.pad(scores, (0, 0, 0, -len(scores) % count))
    return padded.view(-1, count, scores.shape[1]).sum(1)


def _on_cpu(text: str) -> Structure:
    from ..pruning.solving import structures

    try:
        found = structures.structure_of(text)
    except ValueError:
        names = ", ".join(dict.fromkeys([*STRUCTURES, *structures.STRUCTURES]))
        raise ValueError(f"structure: expected one of {names} with their numbers, got {text!r}") from None

    def choose(scores: Tensor, density: float) -> Tensor:
        mask = found.choose(scores.T.float().cpu().numpy(), density)
        return torch.from_numpy(mask).T.to(scores.device).contiguous()

    return Structure(choose, found.density, found.window)


STRUCTURES: Final[dict[str, Any]] = {
    "free": _free,
    "equal": _equal,
    "n": _n,
    "n:m": _n_of_m,
    "V:N:M": _v_n_m,
    "blocks": _blocks,
}
