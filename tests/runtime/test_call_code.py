"""Tests of redpebble.runtime.call_code."""

import subprocess
import sys

FIRST_CALLS = """
import threading
from redpebble.runtime.call_code import call_code
start, found = threading.Barrier(4), []
def call():
    start.wait()
    found.append(call_code())
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len({id(one) for one in found}))
"""


def test_threads_whose_first_calls_come_at_once_share_one_copy() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
