import numpy as np
import pytest

from redpebble.models import zoo
from tests.models.zoo_oracle import density, weights

WIDTHS = (64, 48, 48, 16)


def test_the_order_that_walks_the_windows_needs_only_the_promised_memory() -> None:
    """Counted by hand: run neurons as late as possible, and ask how many values are still needed at any time."""
    memory = 40
    masks = [weight != 0 for weight in weights(zoo.build(f"compact(widths={WIDTHS}, memory={memory})")).values()]
    assert [mask.shape for mask in masks] == [(48, 64), (48, 48), (16, 48)]
    uses = [mask.sum(axis=0) for mask in masks]
    live: set[tuple[int, int]] = set()
    computed: set[tuple[int, int]] = set()
    largest = 0

    def compute(layer: int, neuron: int) -> None:
        nonlocal largest
        computed.add((layer, neuron))
        if layer > 0:
            sources = np.flatnonzero(masks[layer - 1][neuron])
            for source in range(int(sources.max()) + 1):
                if (layer - 1, source) not in computed:
                    compute(layer - 1, source)
            # The neuron itself and the weight are in memory beside what is live.
            largest = max(largest, len(live) + 2)
            for source in sources.tolist():
                uses[layer - 1][source] -= 1
                if uses[layer - 1][source] == 0:
                    live.discard((layer - 1, source))
        if layer < len(masks):
            live.add((layer, neuron))

    for neuron in range(WIDTHS[-1]):
        compute(len(masks), neuron)
    assert not live
    assert largest <= memory


def test_every_neuron_is_used_and_the_density_is_kept() -> None:
    for weight in weights(zoo.build("compact")).values():
        assert weight.any(axis=0).all()
        assert weight.any(axis=1).all()
        assert density(weight) == pytest.approx(0.1, abs=0.01)


def test_a_memory_too_small_for_the_density_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"^compact: windows of \[26, 26, 26\] neurons need a memory of 80 values, not 10$"
    ):
        zoo.build("compact(memory=10)")
    with pytest.raises(ValueError, match=r"^compact: widths: expected a tuple of whole numbers, got \(4, 2.5\)$"):
        zoo.build("compact(widths=(4, 2.5))")
    with pytest.raises(ValueError, match=r"^compact: widths \[4\] need two layers and a neuron in each$"):
        zoo.build("compact(widths=[4])")
    with pytest.raises(ValueError, match=r"^compact: memory: expected 3 or more, got 2$"):
        zoo.build("compact(memory=2)")
