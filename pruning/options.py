"""Options of `prune`: one goal, and how to get there."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from numpy.typing import NDArray

from redpebble.pruning.solving.methods import Method, method_of
from redpebble.pruning.solving.structures import Structure, structure_of
from redpebble.runtime.threads import checked_threads

Measure = Literal["speedup", "time", "sparsity", "loss"]

Precision = Literal["f32", "int8"]

MOST_SPARSE: Final = 0.99


@dataclass(frozen=True)
class Goal:
    """The one number that a model is pruned for.

    speedup: times as fast as the original, by onnxruntime's clock. time: milliseconds of a call. sparsity: share of
    zeros in each layer. loss: share of the variance of the outputs that may be lost, see `redpebble.pruning.losses`.
    """

    measure: Measure
    value: float

    @staticmethod
    def of(speedup: float | None, time: float | None, sparsity: float | None, loss: float | None) -> "Goal":
        """Return the goal that is not None.

        Raises:
            ValueError: there is none or more than one, or its number is out of range.
        """
        numbers: dict[Measure, float | None] = {"speedup": speedup, "time": time, "sparsity": sparsity, "loss": loss}
        given = [Goal(name, value) for name, value in numbers.items() if value is not None]
        if len(given) != 1:
            names = ", ".join(goal.measure for goal in given) or "nothing"
            raise ValueError(f"goal is {names}, accepted is one of speedup, time, sparsity and loss")
        return given[0]

    def __post_init__(self) -> None:
        least, most = {
            "speedup": (1.0, 1000.0),
            "time": (0.0, float("inf")),
            "sparsity": (0.0, MOST_SPARSE),
            "loss": (0.0, 1.0),
        }[self.measure]
        if not least < self.value < most and self.value != (most if self.measure == "sparsity" else None):
            raise ValueError(f"{self.measure} is {self.value}, accepted is more than {least:g} and up to {most:g}")


@dataclass(frozen=True)
class PruneOptions:
    """Choices of `prune`; `redpebble.prune` says what they do.

    Raises:
        ValueError: a number is out of range, or a name is none.
    """

    goal: Goal
    rows: int = 128
    threads: int = 1
    structure: str | Structure = "equal"
    method: str | Method = "admm"
    keep: tuple[str, ...] = ()
    seed: int = 0
    finetune: float = 0.0
    stages: int = 1
    """Times that layers are pruned while what is left is trained, sparser each time."""
    labels: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    precision: Precision = "f32"
    compares: bool = False
    """Whether every layer is measured alone, and every method tried, for a page that shows it."""

    def __post_init__(self) -> None:
        checked_threads(self.threads)
        if self.rows < 1:
            raise ValueError(f"rows is {self.rows}, accepted is 1 or more")
        if not 0 <= self.finetune < float("inf"):
            raise ValueError(f"finetune is {self.finetune} seconds, expected 0 or more")
        if self.stages < 1 or (self.stages > 1 and not self.finetune):
            raise ValueError(f"stages is {self.stages}, accepted is 1, and more together with finetune")
        if self.labels is not None and not self.finetune:
            raise ValueError("labels are for finetuning, accepted together with finetune alone")
        if self.precision not in ("f32", "int8"):
            raise ValueError(f"precision is {self.precision!r}, accepted is f32 or int8")
        # names are looked up before any work is done
        _ = self.chosen_structure, self.chosen_method

    @property
    def chosen_structure(self) -> Structure:
        """The structure of all masks."""
        return self.structure if isinstance(self.structure, Structure) else structure_of(self.structure)

    @property
    def chosen_method(self) -> Method:
        """The method for each layer."""
        return self.method if isinstance(self.method, Method) else method_of(self.method)
