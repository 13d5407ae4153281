"""Requests to the launcher of ranks: MPICH's ends all of them with an exit code, also before MPI has started."""

import os
import stat
import time
from contextlib import suppress
from typing import Final

ANSWER_SECONDS: Final = 2.0


def end_ranks(code: int) -> None:
    """Ask the launcher to end all ranks and return `code`; come back where it has not, or speaks another language.

    For programs that are ranks: in others the number of the launcher's socket could stand for anything.
    """
    number = os.environ.get("PMI_FD", "")
    if not number.isdecimal():
        return
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(int(number)).st_mode):
            os.write(int(number), f"cmd=abort exitcode={code}\n".encode())
            time.sleep(ANSWER_SECONDS)


def own_rank() -> int | None:
    """Return the rank that the launcher gave this process, which MPI need not have started; None where it says none."""
    number = os.environ.get("PMI_RANK", "")
    return int(number) if number.isdecimal() else None
