"""Replicas that are trained together: sums are those of one, votes and few bits need less."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import redpebble
from redpebble.models import zoo
from tests.distributed.launching import REDPEBBLE, mpiexec

SPEC = "ffnn(depth=2,width=24,density=0.3)"

COUNTS = """
import numpy as np
from mpi4py import MPI
from redpebble.distributed.run.replicas import MpiReplicas
comm = MPI.COMM_WORLD
replicas = MpiReplicas(comm)
for count in (0, 1, 17, 64):
    every = np.random.default_rng(0).random((comm.size, count)) < 0.5
    before = np.zeros(count, bool)
    for _ in range(3):
        found = np.unpackbits(replicas.vote(np.packbits(every[comm.rank])), count=count).astype(bool)
        votes = every.sum(axis=0)
        expected = np.where(2 * votes == comm.size, before, 2 * votes > comm.size)
        assert np.array_equal(found, expected), (count, found, expected)
        before, every = expected, np.roll(every, 1, axis=1)
    replicas = MpiReplicas(comm)
values = np.full(5, comm.rank, np.float32)
replicas.add(values)
assert (values == sum(range(comm.size))).all()
assert replicas.total(1.5) == 1.5 * comm.size
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_most_votes_win_and_ties_stay_as_they_were(ranks: int) -> None:
    done = mpiexec(ranks, sys.executable, "-c", COUNTS)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_replicas_train_what_one_trains_and_votes_send_little(tmp_path: Path) -> None:
    zoo.save(zoo.build(SPEC), tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((160, 24), dtype=np.float32)
    (wanted,) = redpebble.compile(zoo.build(SPEC, seed=3)).run(None, {"x": x})
    np.savez(tmp_path / "d.npz", x=x, y=wanted)
    words = ("finetune", tmp_path / "m.onnx", tmp_path / "o.onnx", "--data", tmp_path / "d.npz", "--labels", "y")
    words += ("--epochs", "3", "--batch", "32", "--optimizer", "lion", "--lr", "0.01", "--json")
    reports = [
        json.loads(done.stdout)
        for done in (
            mpiexec(1, REDPEBBLE, *words),
            mpiexec(2, REDPEBBLE, *words, "--replicas"),
            mpiexec(2, REDPEBBLE, *words, "--replicas", "--exchange", "signs", "--sync", "8"),
            mpiexec(2, REDPEBBLE, *words, "--replicas", "--exchange", "bits", "--bits", "4"),
            mpiexec(
                2, REDPEBBLE, *words, "--replicas", "--exchange", "signs", "--sync", "3", "--sync-of", "layers.1.bias"
            ),
            mpiexec(2, REDPEBBLE, *words, "--replicas", "--exchange", "directions", "--bits", "3"),
        )
    ]
    one, two, votes, bits, _, directions = ([epoch["validation"] for epoch in report["epochs"]] for report in reports)
    assert two == pytest.approx(one, rel=0.05)
    assert votes[-1] < 0.9 * reports[2]["before"]["validation"]
    assert bits == pytest.approx(one, rel=0.05)
    assert [report["replicas"] for report in reports] == [1, 2, 2, 2, 2, 2]
    assert directions == pytest.approx(two, rel=0.05)
    # up in 3 bits, a block of 256 values and its scale, down in one
    assert reports[5]["bytes_sent"] == 15 * (3 * 256 // 8 + 4 + 256 // 8)
    # 15 steps, both ways, a block of 512 values and its scale
    assert reports[3]["bytes_sent"] == 15 * 2 * (4 * 512 // 8 + 4)
    # 15 votes, and five means of 24 biases
    assert reports[4]["bytes_sent"] == votes_bytes(reports[2], reports[1]) + 5 * 24 * 4
    assert 0 < 14 * votes_bytes(reports[2], reports[1]) < reports[1]["bytes_sent"]


def votes_bytes(votes: dict[str, int], sums: dict[str, int]) -> int:
    """Bytes of votes alone: momentum is averaged in one of fifteen steps."""
    return votes["bytes_sent"] - sums["bytes_sent"] // 15
