"""Prices of integers: tables that are worked out by hand from what each unit of work is said to take."""

from dataclasses import dataclass

import numpy as np
import pytest

from redpebble.kernels.byte_times import (
    LOOKUP,
    PRICES,
    QUADS,
    SCATTERED,
    SHARED,
    WINDOWS,
    DenseConvolution,
    DenseIntegers,
    dense_layers_us,
    predicted,
)
from redpebble.sparse.csr import CscMatrix

CASCADE_LAKE, ZEN5 = "cascade_lake", "zen5"


@pytest.mark.parametrize(
    ("work", "machine", "us"),
    [
        # 475 and 258 products a nanosecond
        (DenseConvolution(475_000, 0, 0), ZEN5, 1.0),
        (DenseConvolution(258_000, 0, 0), CASCADE_LAKE, 1.0),
        # a value on its way takes 0.056 ns, a tap 0.5 ns
        (DenseConvolution(0, 1_000_000, 0), ZEN5, 56.0),
        (DenseConvolution(0, 0, 10_000), ZEN5, 5.0),
        (DenseConvolution(475_000, 1_000_000, 10_000), ZEN5, 62.0),
        # ConvInteger has 0.35 of that rate: 166.25 products a nanosecond
        (DenseIntegers(166_250, 0, 1, 0, 0), ZEN5, 1.0),
        # packs each weight in 0.2 ns, rounds each value in 0.03 ns, makes a value of each sum in 0.38 ns
        (DenseIntegers(0, 10_000, 1, 0, 0), ZEN5, 2.0),
        (DenseIntegers(0, 0, 1, 100_000, 0), ZEN5, 3.0),
        (DenseIntegers(0, 0, 1, 0, 100_000), ZEN5, 38.0),
        # of several groups, a product takes 13 times as long, and each group 250 ns
        (DenseIntegers(166_250, 0, 2, 0, 0), ZEN5, 13.5),
        (DenseIntegers(166_250, 0, 32, 0, 0), ZEN5, 21.0),
    ],
)
def test_dense_convolutions_have_the_prices_of_their_parts(
    work: DenseConvolution | DenseIntegers, machine: str, us: float
) -> None:
    assert work.predicted_us(machine) == pytest.approx(us)


@pytest.mark.parametrize(
    ("rows", "us"),
    [
        # 140, 400 and 475 products a nanosecond at 1, 8 and 64 rows, and 2 us a node
        (1, 2 + 1000 * 700 * 1 / 140e3),
        (8, 2 + 1000 * 700 * 8 / 400e3),
        (64, 2 + 1000 * 700 * 64 / 475e3),
        (640, 2 + 1000 * 700 * 640 / 475e3),
        # half way, in powers of two, between 1 and 4 times as many: 8 rows are 2 ** 3, 64 are 2 ** 6
        (16, 2 + 1000 * 700 * 16 / 425e3),
        (32, 2 + 1000 * 700 * 32 / 450e3),
        (0, 2.0),
    ],
)
def test_dense_layers_have_the_rate_of_their_rows(rows: int, us: float) -> None:
    assert dense_layers_us([(1000, 700)], rows, ZEN5) == pytest.approx(us)
    assert dense_layers_us([(1000, 700)] * 3, rows, ZEN5) == pytest.approx(3 * us)


@dataclass(frozen=True)
class Counted:
    """A weight whose work can be counted by hand: each of 32 outputs reads the same inputs."""

    inputs: int
    """Inputs that are read, all others are zeros."""
    distance: int = 1
    """From one of these to the next."""

    def weight(self) -> CscMatrix:
        dense = np.zeros((self.inputs * self.distance, 32), dtype=np.float32)
        dense[:: self.distance] = 3
        return CscMatrix.from_dense(dense)


def test_quads_are_those_of_four_inputs() -> None:
    near, far = (predicted([Counted(64, distance).weight()], ZEN5).by_family for distance in (1, 4))
    # 32 outputs, each 64 / 4 = 16 quads; an end takes 1.5 ns and half a pair of 4.5 ns, a row's float 3 ns
    ends = 32 * (4.5 / 2 + 1.5 + 3.0)
    assert near[QUADS][64] == pytest.approx((32 * 16 * 0.76 + ends) / 1e3)
    # of neighbours only one is read: as many quads as inputs, where scattered ones are put together
    assert far[QUADS][64] == pytest.approx((32 * 64 * 0.76 + ends) / 1e3)
    assert far[SCATTERED][64] == pytest.approx((32 * 16 * 1.13 + ends) / 1e3)
    # two and four outputs take the same inputs together
    assert far[SHARED[2]][64] == pytest.approx((16 * 16 * 1.44 + ends) / 1e3)
    assert far[SHARED[4]][64] == pytest.approx((8 * 16 * 2.08 + ends) / 1e3)


@pytest.mark.parametrize("machine", PRICES)
def test_prices_ascend_with_work(machine: str) -> None:
    times = [predicted([Counted(inputs).weight()], machine).by_family for inputs in (64, 256, 1024)]
    for family in times[0]:
        for rows in times[0][family]:
            assert times[0][family][rows] < times[1][family][rows] < times[2][family][rows]
    for by_rows in times[1].values():
        assert list(by_rows.values()) == sorted(by_rows.values())


@pytest.mark.parametrize("machine", PRICES)
def test_layers_take_as_long_as_each_alone(machine: str) -> None:
    weights = [Counted(64).weight(), Counted(40, 3).weight()]
    together = predicted(weights, machine, yields_floats=False).by_family
    alone = [predicted([weight], machine, yields_floats=False).by_family for weight in weights]
    for family, by_rows in together.items():
        for rows, us in by_rows.items():
            assert us == pytest.approx(sum(one[family][rows] for one in alone))


def test_only_machines_with_windows_price_them() -> None:
    weight = Counted(64).weight()
    assert WINDOWS not in predicted([weight], CASCADE_LAKE).by_family
    windows, lookups = (predicted([weight], ZEN5).by_family[family] for family in (WINDOWS, LOOKUP))
    assert set(windows) == {8, 64}
    assert set(lookups) == {1, 8, 64}
