"""A training as it is at a moment, and the file that it goes on from."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .history import Point
from .masks import masks_of, set_mask


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training, beside the weights and its optimizer."""

    step: int = 0
    seconds: float = 0.0
    epoch: int = 0
    position: int = 0
    """Batches of the epoch that are done."""
    samples: int = 0
    points: tuple[Point, ...] = ()
    best: Mapping[str, Tensor] | None = field(default=None, repr=False)
    """The weights of the best quality; None where nobody measured it."""
    best_step: int = 0
    best_score: float = float("-inf")
    stopped_early: bool = False
    is_complete: bool = False

    def with_point(self, point: Point, student: nn.Module) -> "Checkpoint":
        """Return the state with one more moment; weights that are the best so far are copied."""
        found = replace(self, points=(*self.points, point))
        if point.score is None or not point.score > self.best_score:
            return found
        best = {name: value.detach().clone() for name, value in student.state_dict().items()}
        return replace(found, best=best, best_step=point.step, best_score=point.score)

    def restore_best(self, student: nn.Module) -> None:
        """Give the student the weights of the best quality."""
        if self.best is not None and self.best_step != self.step:
            student.load_state_dict(self.best)

    def save(self, path: Path, student: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write a file that is whole at any moment."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content = {
            **values,
            "points": [asdict(one) for one in self.points],
            "best": None if self.best is None else dict(self.best),
            "student": student.state_dict(),
            "masks": {name: mask.bool() for name, mask in masks_of(student)},
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        torch.save(content, beside)
        beside.replace(path)

    @staticmethod
    def load(path: Path, student: nn.Module, optimizer: torch.optim.Optimizer) -> "Checkpoint":
        """Read a file, and give student and optimizer what they had.

        Raises:
            ValueError: the file is no checkpoint of such a student.
        """
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            student.load_state_dict(content.pop("student"))
            optimizer.load_state_dict(content.pop("optimizer"))
            masks = content.pop("masks")
        except (KeyError, RuntimeError, AttributeError) as error:
            raise ValueError(f"{path} is no checkpoint of this student: {error}") from error
        for name, mask in masks.items():
            owner, _, key = name.rpartition(".")
            set_mask([student.get_submodule(owner)], mask, key)
        torch.set_rng_state(content.pop("random"))
        points = tuple(Point(**one) for one in content.pop("points"))
        return Checkpoint(**content, points=points)
