"""Sweeps over memories, budgets in proposals, and searches that a signal ends."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from redpebble.models import zoo
from redpebble.tools.explain.memory_sizes import memory_sizes, spread_sizes
from redpebble.tools.explain.neuron_graphs import FlatModel, flat_model
from redpebble.tools.explain.saved_orders import (
    ScheduleRequest,
    SearchBudget,
    find_schedule,
    graph_bounds,
    schedule_lines,
)
from redpebble.tools.explain.search_watch import SearchWatch, end_where_asked, watched_search
from redpebble.tools.explain.sweep import Sweep, SweepRequest, draw_sweeps, sweep, sweep_report
from redpebble.tools.tables import schedule_table, sweep_table

MEMORY = 12
BUDGET = SearchBudget(proposals=2_000)
REQUEST = SweepRequest((3, MEMORY, 40), 1, BUDGET)


@pytest.fixture(scope="module")
def model() -> FlatModel:
    return flat_model(zoo.build(f"compact(widths=(16, 16, 16), density=0.2, memory={MEMORY})"))


@pytest.fixture(scope="module")
def swept(model: FlatModel) -> Sweep:
    return sweep("grown", model, REQUEST, SearchWatch())


@pytest.mark.slow
def test_a_network_that_is_made_for_a_memory_moves_least_from_there_on(swept: Sweep) -> None:
    below, made_for, above = swept.points
    assert below.ratio > 1
    assert made_for.ratio == above.ratio == 1
    assert made_for.moved["searched"] == made_for.bound == swept.least


def test_no_order_moves_less_than_the_bound_and_more_memory_never_more(swept: Sweep) -> None:
    for point in swept.points:
        assert min(point.moved.values()) >= point.bound >= swept.least
    assert all(a.bound >= b.bound for a, b in zip(swept.points, swept.points[1:], strict=False))


def test_the_same_seed_and_proposals_find_the_same_order_whatever_the_time(model: FlatModel) -> None:
    request = ScheduleRequest(6, "min", BUDGET)
    one, other = (find_schedule(model, request, SearchWatch()) for _ in range(2))
    for found, again in zip(one.found, other.found, strict=True):
        np.testing.assert_array_equal(found.order, again.order)
    assert one.found[0].trace.proposals[-1] >= 2_000


def interrupt(watch: SearchWatch, seconds: float) -> None:
    del watch, seconds
    signal.raise_signal(signal.SIGINT)


def test_what_has_gone_by_is_no_longer_in_the_budget_of_a_search() -> None:
    budget = SearchBudget(5.0, seed=3)
    assert budget.after(2.0) == SearchBudget(3.0, seed=3)
    assert budget.after(7.0) == SearchBudget(0.0, seed=3)


@pytest.mark.slow
def test_a_signal_ends_a_search_with_the_best_order_so_far(
    model: FlatModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with watched_search("searching", 3600) as watch:
        monkeypatch.setattr(SearchWatch, "spent", interrupt)
        # searches run in a thread of their own; the signal arrives in this one
        found = find_schedule(model, ScheduleRequest(6, "min", SearchBudget(3600)), watch)
    assert signal.getsignal(signal.SIGINT) is before
    assert watch.ended_by == signal.SIGINT
    assert sorted(found.found[0].order) == [*range(model.networks[0].connection_count)]
    with pytest.raises(SystemExit, match="130"):
        end_where_asked(watch, "order.npz has the best order so far")
    assert capsys.readouterr().err == "error: ended by SIGINT; order.npz has the best order so far\n"
    assert sweep("grown", model, REQUEST, watch).points == ()


def test_a_second_signal_reaches_who_was_there_before() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with watched_search("searching", None) as watch:
            signal.raise_signal(signal.SIGTERM)
            assert (watch.ended_by, came) == (signal.SIGTERM, [])
            signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_ratio_is_to_what_any_order_moves_with_that_memory(model: FlatModel, swept: Sweep) -> None:
    request = ScheduleRequest(3, "min", BUDGET)
    (line,) = schedule_lines(find_schedule(model, request, SearchWatch()), graph_bounds(model, 3))
    point = swept.points[0]
    assert line.bound == point.bound
    assert line.ratio == pytest.approx((line.reads + line.writes) / point.bound)
    assert [*schedule_table([line], request).columns[-1].cells] == [f"{line.ratio:.3f}"]
    assert next(iter(sweep_table(swept, REQUEST).columns[-1].cells)) == f"{point.ratio:.3f}"


def test_sweeps_of_several_networks_are_drawn_together_and_reported(swept: Sweep, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install 'redpebble[plot]'")
    pictures = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in pictures:
        draw_sweeps([swept, Sweep("other", swept.least, swept.points)], path)
    text = pictures[0].read_text()
    assert all(words in text for words in (">grown<", ">other<", ">values moved / (W + N + S)<"))
    assert text == pictures[1].read_text()
    content = json.loads(json.dumps(sweep_report(REQUEST, [swept])))
    assert [point["memory"] for point in content["models"][0]["points"]] == [3, MEMORY, 40]
    assert content["proposals"] == 2_000


def test_memories_are_rows_or_bytes() -> None:
    assert memory_sizes("50, 20,48KiB,20", 1) == (20, 50, 12288)
    assert memory_sizes("1MiB", 64) == (4096,)
    assert memory_sizes("", 1) == ()
    with pytest.raises(ValueError, match=r"memory: expected rows such as 20 or bytes .*, got '2x'"):
        memory_sizes("20,2x", 1)


def test_memories_that_nobody_names_reach_from_three_to_all(model: FlatModel) -> None:
    sizes = spread_sizes(model.networks, 5)
    assert sizes == sorted({*sizes})
    assert (sizes[0], sizes[-1]) == (3, 2 + model.networks[0].neuron_count)
    assert 5 in sizes


OPTIMIZED = FlatModel((), {"ai.redpebble::SparseNetwork_0": 1})


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: SearchBudget(-1.0), "expected 0 seconds or more to search, got -1.0"),
        (lambda: SearchBudget(proposals=-1), "expected 0 proposals or more to search, got -1"),
        (lambda: SweepRequest((2,), 1, BUDGET), "expected a fast memory of 3 values or more, got 2"),
        (lambda: SweepRequest((3,), 0, BUDGET), "expected a batch tile of 1 column or more, got 0"),
        (lambda: sweep("m", FlatModel((), {}), REQUEST, SearchWatch()), "nothing to sweep: m has no linear layer"),
        (lambda: sweep("m", OPTIMIZED, REQUEST, SearchWatch()), "m was optimized before: expected the original"),
        (lambda: draw_sweeps([], Path("x.gif")), r"expected a drawing that ends in .png, .svg, .pdf, got x.gif"),
    ],
)
def test_what_makes_no_sense_is_refused(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()
