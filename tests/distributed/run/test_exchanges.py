"""Schedules of ranks that wait for each other: what would be a wait without an end is refused before anything runs."""

from pathlib import Path

import pytest

from redpebble.distributed.parts.part_file import read_part
from redpebble.distributed.parts.plan_file import read_plan
from redpebble.distributed.run.load_part import Exchange, deadlock, exchanges_of
from redpebble.models.zoo import build
from tests.distributed.launching import Case, write_case


def sends(tag: int, *rows: tuple[int, int]) -> Exchange:
    return Exchange(sends=True, tag=tag, rows=rows)


def waits(tag: int, *rows: tuple[int, int]) -> Exchange:
    return Exchange(sends=False, tag=tag, rows=rows)


@pytest.mark.parametrize("kind", ["rows", "layers"])
def test_parts_that_are_written_come_to_an_end(kind: str, tmp_path: Path) -> None:
    write_case(tmp_path / "case", build("ffnn(depth=3, width=20, density=0.5)"), Case(kind, 3, batches=()))
    plan, _ = read_plan(tmp_path / "case" / "parts")
    schedules = [exchanges_of(read_part(tmp_path / "case" / "parts" / entry.file)) for entry in plan.parts]
    assert any(schedules)
    assert deadlock(schedules) is None
    for rank, schedule in enumerate(schedules):
        for place, step in enumerate(schedule):
            changed = [*schedules]
            changed[rank] = [*schedule[:place], *schedule[place + 1 :]]
            assert deadlock(changed) is not None
            changed[rank] = [*schedule[:place], step._replace(sends=not step.sends), *schedule[place + 1 :]]
            assert deadlock(changed) is not None


def test_each_may_send_before_it_waits() -> None:
    assert deadlock([[sends(0, (1, 4)), waits(0, (1, 5))], [sends(0, (0, 5)), waits(0, (0, 4))]]) is None


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        (
            [[waits(0, (1, 5)), sends(0, (1, 4))], [waits(0, (0, 4)), sends(0, (0, 5))]],
            "rank 0 waits for value 0 of ranks 1, which they do not send",
        ),
        ([[sends(0, (1, 4))], []], "rank 0 sends value 0 to rank 1, which does not expect it"),
        ([[sends(0, (1, 4))], [waits(0, (0, 5))]], "rank 0 sends 4 rows of value 0 to rank 1, which expects 5"),
        ([[sends(0, (1, 4))], [waits(0, (0, 4), (0, 4))]], "rank 0 sends 0 rows of value 0 to rank 1, which expects 4"),
        ([[sends(3, (1, 4), (1, 4))], [waits(3, (0, 4))]], "rank 0 sends value 3 to rank 1 twice"),
    ],
)
def test_what_never_ends_is_named(schedules: list[list[Exchange]], message: str) -> None:
    assert deadlock(schedules) == message
