"""A child that solves layers like the real one, up to where it dies, hangs or stops: argv is (how, where, folder)."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np

from redpebble.distributed.plans.mtkahypar_worker import Problem, read_task, solve_task
from redpebble.theory.partition.balance import dealt_by_weight
from redpebble.theory.partition.partition import Owners

how, where, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
numbers = count(read_task(folder).first)


def solve(problem: Problem) -> Owners:
    fails = next(numbers) == where
    if fails and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fails and how == "hang":
        time.sleep(60)
    if fails and how == "exit":
        sys.exit(3)
    groups = np.array(problem.vertex_weights[: -problem.part_count], dtype=np.int64)
    return np.zeros(len(groups), dtype=np.int32) if how == "overfill" else dealt_by_weight(groups, problem.part_count)


solve_task(folder, solve)
