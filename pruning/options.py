"""Options of `prune`: one goal, and how to get there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal

from numpy.typing import NDArray

from ..runtime.threads import checked_threads
from .solving.methods import Method, method_of
from .solving.structures import Structure, structure_of

Measure = Literal["speedup", "time", "sparsity", "loss"]

Precision = Literal["f32", "int8", "int4"]

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
    def of(numbers: Mapping[Measure, float | None], structure: str | Structure, prefix: str = "") -> "Goal":
        """Return the goal whose number is not None, or the sparsity of a structure that has only one.

        `prefix` stands before names of goals in messages.

        Raises:
            ValueError: there is none or more than one, its number is out of range, or the structure is unknown.
        """
        given = [Goal(name, value) for name, value in numbers.items() if value is not None]
        density = _structure(structure).density
        if not given and density is not None:
            return Goal("sparsity", 1 - density)
        if len(given) != 1:
            names = " and ".join(prefix + goal.measure for goal in given) or "none"
            accepted = ", ".join(prefix + name for name in numbers)
            raise ValueError(f"goal: expected one of {accepted}, got {names}")
        return given[0]

    def __post_init__(self) -> None:
        least, most = {
            "speedup": (1.0, 1000.0),
            "time": (0.0, inf),
            "sparsity": (0.0, MOST_SPARSE),
            "loss": (0.0, 1.0),
        }[self.measure]
        if not least < self.value <= most or self.value == inf:
            bound = "" if most == inf else f" and up to {most:g}"
            raise ValueError(f"{self.measure}: expected more than {least:g}{bound}, got {self.value}")


@dataclass(frozen=True)
class PruneOptions:
    """Choices of `prune`; `redpebble.prune` says what they do.

    Raises:
        ValueError: a number is out of range, or a name is none.
    """

    goal: Goal
    rows: int | None = None
    """None for what is usual: 128 rows, or one image."""
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
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"rows: expected 1 or more, got {self.rows}")
        if not 0 <= self.finetune < float("inf"):
            raise ValueError(f"finetune: expected 0 seconds or more, got {self.finetune}")
        if self.stages < 1 or (self.stages > 1 and not self.finetune):
            raise ValueError(f"stages: expected 1, or more together with finetune, got {self.stages}")
        if self.labels is not None and not self.finetune:
            raise ValueError("labels: expected them only together with finetune, got labels alone")
        if self.precision not in ("f32", "int8", "int4"):
            raise ValueError(f"precision: expected f32, int8 or int4, got {self.precision!r}")
        # names are looked up before any work is done
        _ = self.chosen_structure, self.chosen_method

    @property
    def chosen_structure(self) -> Structure:
        return _structure(self.structure)

    @property
    def chosen_method(self) -> Method:
        return self.method if isinstance(self.method, Method) else method_of(self.method)


def _structure(structure: str | Structure) -> Structure:
    return structure if isinstance(structure, Structure) else structure_of(structure)
