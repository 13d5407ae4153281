"""Lion by votes: all replicas take the steps that most want, and average momentum where and when it is asked for."""

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.models import zoo
from redpebble.training.finetune import finetuned
from redpebble.training.optimizers import Places, VotedLion
from redpebble.training.options import FinetuneOptions
from redpebble.training.replicas import Alone
from redpebble.training.samples import Samples

Floats = NDArray[np.float32]

OTHER = np.float32(3)


class BesideAnother(Alone):
    """One of two replicas; the other one's momentum is `OTHER` everywhere, and it votes as this one does."""

    size = 2

    def __init__(self) -> None:
        """Count what is added."""
        self.added: list[int] = []

    def add(self, values: Floats) -> None:
        """Add the other one's."""
        values += OTHER
        self.added.append(len(values))


@pytest.mark.parametrize(
    ("places", "chosen"),
    [
        pytest.param(None, [0, 1, 2, 3, 4], id="all"),
        pytest.param(np.array([1, 2, 4]), [1, 2, 4], id="some"),
    ],
)
def test_momentum_is_averaged_every_so_many_steps_where_it_is_chosen(places: Places | None, chosen: list[int]) -> None:
    replicas = BesideAnother()
    gradient = np.array([1, -2, 3, -4, 5], np.float32)
    steps = VotedLion(5, replicas, 3, places)
    values, moved = np.zeros(5, np.float32), np.zeros(5, np.float32)
    for number in range(1, 7):
        before = values.copy()
        steps.update(values, gradient.copy(), 0.5)
        np.testing.assert_allclose(values - before, -0.5 * np.sign(9 * moved + gradient), rtol=1e-5)
        moved = np.float32(0.99) * moved + np.float32(0.01) * gradient
        if number % 3 == 0:
            moved[chosen] = (moved[chosen] + OTHER) / 2
    assert replicas.added == [len(chosen)] * 2


def options(**further: object) -> FinetuneOptions:
    """Options of votes."""
    return FinetuneOptions(**{"optimizer": "lion", "exchange": "signs", "batch": 8, "epochs": 1, **further})  # pyright: ignore[reportArgumentType]


def test_layers_that_are_not_there_are_refused() -> None:
    x = np.zeros((8, 12), np.float32)
    model = zoo.build("ffnn(depth=2,width=12,density=0.3)")
    with pytest.raises(ValueError, match=r"momentum to average: expected .*, got 'x'"):
        finetuned(model, Samples({"x": x}, x), options(sync=1, sync_of=("x",)))
    with pytest.raises(ValueError, match="sync: expected 1 or more where sync_of names initializers, got 0"):
        options(sync_of=("w",))
    with pytest.raises(ValueError, match="sync: expected 0 where bits is exchanged, as momentum is alike, got 4"):
        options(sync=4, exchange="bits")
    with pytest.raises(ValueError, match="bits: expected 2 or more, or signs, where directions are exchanged, got 1"):
        options(exchange="directions", bits=1)
    with pytest.raises(ValueError, match="optimizer: expected lion where directions are exchanged, got adam"):
        options(exchange="directions", optimizer="adam")
