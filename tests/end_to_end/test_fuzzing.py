"""Nothing crashes and nothing is wrong, whatever the model, the call or the damage.

An hour of it: `python -m tests.end_to_end.fuzz_program 3600 SEED FOLDER` in the repository's root.
"""

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzz(seconds: int, seed: int, folder: Path) -> str:
    """Run the program; return its last words."""
    words = [sys.executable, "-X", "faulthandler", "-m", "tests.end_to_end.fuzz_program"]
    done = subprocess.run(
        [*words, str(seconds), str(seed), folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ending = "\n".join([*done.stdout.splitlines()[-40:], *done.stderr.splitlines()[-40:]])
    assert done.returncode == 0, f"exit code {done.returncode}, the model is {folder / 'last.onnx'}\n{ending}"
    return ending


def test_a_few_random_models_and_damages_do_no_harm(tmp_path: Path) -> None:
    assert "1 seeds, 10 models each, no problem" in fuzz(1, 0, tmp_path)


@pytest.mark.slow
def test_many_random_models_and_damages_do_no_harm(tmp_path: Path) -> None:
    assert "no problem" in fuzz(180, random.randrange(1, 1 << 30), tmp_path)
