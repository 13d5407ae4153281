import numpy as np
import pytest

from redpebble.dialect.tensors import CscMatrix
from redpebble.lowering.kernels import FAMILIES, SINGLE_ROW_FAMILIES
from redpebble.passes.choose_kernels import CHOICES, kernel_for


def a_weight(density: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rng = np.random.default_rng(0)
    return np.where(rng.random((200, 200)) < density, np.float32(1), np.float32(0))


@pytest.mark.parametrize("density", [0.0, 0.005, 0.1, 0.3, 0.47, 0.5, 0.58, 0.8, 1.0])
@pytest.mark.parametrize("far", [False, True])
def test_every_choice_is_a_family_that_has_code_for_its_width(density: float, far: bool) -> None:
    for weight in (a_weight(density), CscMatrix.from_dense(a_weight(density))):
        kernel = kernel_for(weight, far=far)
        for choice in CHOICES:
            family = kernel.family_at(choice.width)
            assert family in FAMILIES
            assert (family in SINGLE_ROW_FAMILIES) == (choice.width == 1)


def test_a_weight_that_is_stored_dense_is_never_thinned() -> None:
    kernel = kernel_for(a_weight(0.05), far=False)
    assert set(kernel.choices.values()) == {"dense_rows", "dense_panels"}


def test_weights_that_leave_the_cache_are_streamed_compactly() -> None:
    thin, thick = (CscMatrix.from_dense(a_weight(density)) for density in (0.1, 0.3))
    assert kernel_for(thin, far=False).family_at(1) == "walk"
    assert kernel_for(thin, far=True).family_at(1) == "compact_walk"
    assert kernel_for(thick, far=True).family_at(1) == "walk"
