from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.shape_inference import reshaped
from redpebble.dialect.symbolic_sizes import Size
from redpebble.frontend.folding.known_sizes import broadcast_sizes, target_of
from tests.frontend.import_oracle import imported, model, normal

SIZES = st.sampled_from([*map(Size.known, (1, 2, 3)), *map(Size.symbol, "ab"), Size.known(2) * Size.symbol("a")])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@given(source=SHAPES, result=SHAPES)
def test_a_reshape_target_makes_the_shape_it_was_asked_for(source: tuple[Size, ...], result: tuple[Size, ...]) -> None:
    count = prod(source, start=Size.known(1))
    if count != prod(result, start=Size.known(1)):
        return
    target = target_of(source, result)
    if target is not None:
        assert reshaped(target, source) == result


@given(left=SHAPES, right=SHAPES, a=st.integers(1, 4), b=st.integers(1, 4))
def test_a_broadcast_that_is_certain_is_numpys(left: tuple[Size, ...], right: tuple[Size, ...], a: int, b: int) -> None:
    sizes = broadcast_sizes(left, right)
    if sizes is not None:
        shapes = [tuple(size.evaluate({"a": a, "b": b}) for size in side) for side in (left, right, sizes)]
        assert np.broadcast_shapes(*shapes[:2]) == shapes[2]


@st.composite
def matmul_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two operands of numpy's matmul, of rank 1 to 4."""
    inner, ranks = draw(st.integers(1, 4)), (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    lead = draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    sides: list[tuple[int, ...]] = []
    for rank, axis in zip(ranks, (-1, -2), strict=True):
        outer = [draw(st.sampled_from([1, size])) for size in lead[4 - rank :]] if rank > 2 else []
        core = [draw(st.integers(1, 4)), inner] if axis == -1 else [inner, draw(st.integers(1, 4))]
        sides.append((*outer, *(core if rank > 1 else [inner])))
    return sides[0], sides[1]


@settings(max_examples=30, deadline=None)
@given(shapes=matmul_shapes(), constant_first=st.booleans())
def test_a_product_of_any_shapes_is_numpys(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], constant_first: bool
) -> None:
    left, right = normal(*shapes[0]), normal(*shapes[1], seed=1)
    expected = left @ right
    weight, x = (left, right) if constant_first else (right, left)
    node = "MatMul(w, x)" if constant_first else "MatMul(x, w)"
    dims = ",".join(map(str, x.shape))
    out = f"float[{','.join(map(str, expected.shape))}]" if expected.ndim else "float"
    module = imported(model(f"(float[{dims}] x) => ({out} y)", f"y = {node}", weights={"w": weight}))
    (result,) = interpret(module, {"x": x})
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
