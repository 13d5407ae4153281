"""A run of fuzzers that take turns: each case in a process of its own, counted, and kept where something is wrong."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzzing.fuzzer import Fuzzer
from tests.fuzzing.fuzzers import FUZZERS
from tests.fuzzing.own_process import LOG, Outcome, emptied, outcome_of
from tests.fuzzing.planted_faults import plant

CASE = "case.json"


class Run:
    """Fuzzers that take turns, what they found, and where it is kept."""

    def __init__(self, fuzzers: Sequence[Fuzzer], folder: Path, fault: str | None = None) -> None:
        self.counts = {fuzzer.name: Counter[str]() for fuzzer in fuzzers}
        self.spent = {fuzzer.name: 0.0 for fuzzer in fuzzers}
        self._fuzzers, self._folder, self._fault = fuzzers, folder, fault

    def go_on(self, seconds: float, first_seed: int, most_cases: int) -> None:
        """Draw and check cases until the time is over or enough are done; whoever had least time is next."""
        end = time.monotonic() + seconds
        for seed in range(first_seed, first_seed + most_cases):
            begun = time.monotonic()
            if begun >= end:
                return
            fuzzer = min(self._fuzzers, key=lambda one: self.spent[one.name])
            self._case(fuzzer, seed)
            self.spent[fuzzer.name] += time.monotonic() - begun

    def _case(self, fuzzer: Fuzzer, seed: int) -> None:
        # the name of the process is in it, as several runs may be under way
        folder = emptied(self._folder / f"current-{os.getpid()}")

        def work() -> str:
            plant(self._fault)
            fuzzer.draw(seed, folder)
            return fuzzer.check(folder)

        (folder / CASE).write_text(json.dumps({"fuzzer": fuzzer.name, "seed": seed}))
        try:
            outcome = outcome_of(fuzzer, work, folder)
        except (KeyboardInterrupt, SystemExit):
            shutil.rmtree(folder)
            raise
        self.counts[fuzzer.name][outcome.word or "WRONG"] += 1
        if outcome.problem:
            kept = self._folder / f"{fuzzer.name}-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
            print(f"WRONG {fuzzer.name}, seed {seed}: {outcome.problem}")
            print(f"      once more: python -m tests.fuzzing replay {kept}", flush=True)
        else:
            shutil.rmtree(folder)

    @property
    def wrong(self) -> int:
        """Cases that broke a promise."""
        return sum(counts["WRONG"] for counts in self.counts.values())

    def summary(self) -> str:
        """The counts, a line a fuzzer."""
        lines = [f"{'fuzzer':16}{'cases':>8}{'wrong':>8}{'seconds':>9}  what became of them"]
        for name, counts in self.counts.items():
            words = ", ".join(f"{word} {count}" for word, count in counts.most_common() if word != "WRONG")
            lines.append(f"{name:16}{counts.total():8}{counts['WRONG']:8}{self.spent[name]:9.0f}  {words}")
        return "\n".join(lines)


def replay(folder: Path, fault: str | None = None) -> Outcome:
    """The outcome of a saved case when it is checked once more; the folder stays as it is."""
    name = json.loads((folder / CASE).read_text())["fuzzer"]
    fuzzer = next(fuzzer for fuzzer in FUZZERS if fuzzer.name == name)
    copy = folder.with_name(f"replayed-{os.getpid()}")
    shutil.copytree(folder, copy)

    def work() -> str:
        plant(fault)
        return fuzzer.check(copy)

    try:
        outcome = outcome_of(fuzzer, work, copy)
        print((copy / LOG).read_text(errors="replace"), end="")
        return outcome
    finally:
        shutil.rmtree(copy)
