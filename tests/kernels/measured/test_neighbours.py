import numpy as np
import pytest

from redpebble.kernels.measured.neighbours import MOST_EXAMPLES, NEAREST, Example, Examples, Place
from redpebble.kernels.work import Layer


def layer(size: int) -> Layer:
    return Layer(size, np.full(size, size // 4))


def measured(size: int, **factors: float) -> Example:
    return Example(Place.of(layer(size)), {f"strips@{name[1:]}": factor for name, factor in factors.items()})


@pytest.mark.parametrize("numbers", [(0, 0, 0.0, 0.0, 0.0), (1024, 768, 0.1234, 1.5, 0.875)])
def test_an_example_reads_back_as_it_was_written(numbers: tuple[int, int, float, float, float]) -> None:
    example = Example(Place(*numbers), {"strips@64": 0.1, "permute_lookup@1": 9.875})
    assert Example.parse(example.word) == example


@pytest.mark.parametrize(
    "word",
    [
        "",
        "walk",
        "1/2/3/4/5",
        "1/2/3/4|a@1=1",
        "1/2/3/4/5|a=1",
        "1/2/3/4/5|a@1=0",
        "-1/2/3/4/5|a@1=1",
        "1/2/nan/4/5|a@1=1",
        "1/2/3/4/5|a@0=1",
    ],
)
def test_a_word_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"^expected INPUTS/OUTPUTS/DENSITY/SPREAD/SHARING.*, got "):
        Examples((word,))


def test_the_mean_of_the_nearest_layers_counts_and_of_no_other() -> None:
    near = [measured(size, w64=factor) for size, factor in zip((96, 104, 112, 120, 128), (2, 2, 4, 8, 8), strict=True)]
    far = [measured(4000, w64=100.0), measured(8, w64=100.0)]
    assert len(near) == NEAREST
    found = Examples.of([*far, *near]).near(layer(112))
    assert found is not None
    assert found.factor("strips", 64) == pytest.approx(4)
    assert set(found.places) == {one.place for one in near}
    assert found.places[0] == Place.of(layer(112))


def test_widths_between_measured_ones_lie_between_and_what_was_never_measured_is_as_all_others() -> None:
    found = Examples.of([measured(64, w16=2.0, w64=8.0)]).near(layer(64))
    assert found is not None
    assert [found.factor("strips", width) for width in (8, 16, 32, 64, 144)] == pytest.approx([2, 2, 4, 8, 8])
    assert found.factor("sparse_rows", 8) == pytest.approx(4)


def test_a_layer_counts_once_and_the_latest_are_kept() -> None:
    first, again = Examples.of([measured(64, w64=2.0)]), Examples.of([measured(64, w64=4.0)])
    assert first.with_more(again) == again
    many = Examples.of([measured(size, w64=2.0) for size in range(8, 8 + MOST_EXAMPLES)])
    assert len(many.with_more(Examples.of([measured(9999, w64=2.0)])).words) == MOST_EXAMPLES
    assert Examples().near(layer(64)) is None
