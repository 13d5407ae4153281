"""Options of `finetune`."""

from dataclasses import dataclass
from math import cos, pi
from typing import Final, Literal, get_args

from ..passes.training.losses import LOSSES, LossName
from ..runtime.threads import checked_threads
from .optimizers import OPTIMIZERS, OptimizerName
from .quantized_sums import MOST_BITS

Schedule = Literal["constant", "cosine"]

Exchange = Literal["f32", "bits", "signs", "directions"]

EXCHANGES: Final[tuple[Exchange, ...]] = get_args(Exchange)

SCHEDULES: Final[tuple[Schedule, ...]] = get_args(Schedule)


@dataclass(frozen=True)
class FinetuneOptions:
    """Choices of `finetune`; `redpebble.finetune` says what they do.

    Raises:
        ValueError: a number is out of range, or a name is none.
    """

    loss: LossName = "mse"
    optimizer: OptimizerName = "adam"
    epochs: int = 10
    batch: int = 256
    rate: float = 1e-3
    schedule: Schedule = "cosine"
    warm_up: int = 0
    patience: int = 0
    seed: int = 0
    threads: int = 1
    exchange: Exchange = "f32"
    """Numbers that replicas send each other: gradients, these in a few bits, signs of Lion's steps, or what these are
    the signs of, in a few bits."""
    sync: int = 0
    """Steps after which replicas that exchange signs average their momentum; 0: never."""
    sync_of: tuple[str, ...] = ()
    """Initializers whose momentum is averaged; all, where none is named."""
    bits: int = 4
    """Bits of a value, 1 to 8 of a gradient, 2 to 8 of a direction, where these are exchanged."""

    def __post_init__(self) -> None:
        checked_threads(self.threads)
        names = (("loss", self.loss, LOSSES), ("optimizer", self.optimizer, OPTIMIZERS))
        further = (("schedule", self.schedule, SCHEDULES), ("exchange", self.exchange, EXCHANGES))
        for what, name, accepted in (*names, *further):
            if name not in accepted:
                raise ValueError(f"{what}: expected one of {', '.join(accepted)}, got {name!r}")
        for what, number, least in (
            ("epochs", self.epochs, 1),
            ("batch", self.batch, 1),
            ("warm_up", self.warm_up, 0),
            ("patience", self.patience, 0),
            ("sync", self.sync, 0),
        ):
            if number < least:
                raise ValueError(f"{what}: expected {least} or more, got {number}")
        if not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"bits: expected 1 to {MOST_BITS}, got {self.bits}")
        if self.by_sign and self.optimizer != "lion":
            raise ValueError(f"optimizer: expected lion where {self.exchange} are exchanged, got {self.optimizer}")
        if self.exchange == "directions" and self.bits == 1:
            raise ValueError("bits: expected 2 or more, or signs, where directions are exchanged, got 1")
        if self.sync and not self.by_sign:
            raise ValueError(
                f"sync: expected 0 where {self.exchange} is exchanged, as momentum is alike, got {self.sync}"
            )
        if self.sync_of and not self.sync:
            raise ValueError("sync: expected 1 or more where sync_of names initializers, got 0")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate: expected more than 0, got {self.rate}")

    @property
    def by_sign(self) -> bool:
        """Whether replicas agree on signs of steps, each with momentum of its own."""
        return self.exchange in ("signs", "directions")

    def rate_at(self, step: int, steps: int) -> float:
        """Return the rate of one of so many steps: up from 0 through the warm-up, then as the schedule says."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        if self.schedule == "constant":
            return self.rate
        share = (step - self.warm_up) / max(1, steps - self.warm_up)
        return self.rate * (1 + cos(pi * share)) / 2
