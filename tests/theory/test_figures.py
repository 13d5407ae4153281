"""The sweeps of the I/O paper keep what it proves, and are drawn."""

from pathlib import Path

import pytest

from redpebble.theory.figures import BOUND, PULL, SEARCHED, main, panels


@pytest.mark.slow
def test_searched_orders_are_between_the_bound_and_the_2_optimal_order() -> None:
    for found in panels(quick=True).values():
        for panel in found:
            for curve in panel.curves.values():
                assert all(moved >= bound for moved, bound in zip(curve, panel.curves[BOUND], strict=True))
            if PULL in panel.curves:
                pull, searched = panel.curves[PULL], panel.curves[SEARCHED]
                assert all(best <= moved < 2 for best, moved in zip(searched, pull, strict=True))


@pytest.mark.slow
def test_a_quick_run_draws_both_pictures(tmp_path: Path) -> None:
    lines: list[str] = []
    main([str(tmp_path), "--quick"], show=lines.append)
    assert any(line.startswith("  rr: ") for line in lines)
    assert {file.name for file in tmp_path.glob("*.svg")} == {"sweeps.svg", "policies.svg"}
