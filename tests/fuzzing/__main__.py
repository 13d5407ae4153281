"""`python -m tests.fuzzing SECONDS` runs all fuzzers in turn; `python -m tests.fuzzing replay FOLDER` one saved case.

Each case has a seed, which is printed where something is wrong; its files are kept under build/fuzz/. Each fuzzer
gets the same share of the time.
"""

import argparse
import random
import signal
import sys
from pathlib import Path

from tests.fuzzing.fuzzers import FUZZERS, warm_up
from tests.fuzzing.planted_faults import FAULTS
from tests.fuzzing.runs import Run, replay


def main() -> None:
    """Exit with 1 where something is wrong."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    names = [fuzzer.name for fuzzer in FUZZERS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("what", help="seconds to go on for, or the word replay")
    parser.add_argument("case", nargs="?", type=Path, help="the folder of a saved case, to replay it")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40), help="the first case's")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these fuzzers alone")
    parser.add_argument("--cases", type=int, default=1 << 40, help="at most so many")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where failing cases are kept")
    parser.add_argument("--plant", choices=sorted(FAULTS), help="plant a fault, to see that it is found")
    words = parser.parse_args()
    if words.what == "replay":
        if words.case is None:
            parser.error("replay of which case?")
        outcome = replay(words.case, words.plant)
        print(f"WRONG: {outcome.problem}" if outcome.problem else f"right: {outcome.word}")
        sys.exit(bool(outcome.problem))
    run = Run([fuzzer for fuzzer in FUZZERS if fuzzer.name in words.only], words.folder, words.plant)
    print(f"first seed {words.seed}", flush=True)
    warm_up()
    try:
        run.go_on(float(words.what), words.seed, words.cases)
    finally:
        print(run.summary(), flush=True)
    sys.exit(run.wrong > 0)


if __name__ == "__main__":
    main()
