"""A process of another rank on this machine: one that is stopped does not end when MPI's launcher asks it to.

MPICH's launcher, told to abort, leaves a stopped process alone about once in twenty times. Signals can reach it.
"""

import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = tuple[str, str, int]
"""Machine, namespace of processes (containers of one name may share the first), number of the process."""


def own_address() -> Address:
    """Return what other processes find this one by."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return socket.gethostname(), namespace, os.getpid()


@dataclass
class LocalProcess:
    """A process of this machine, or nothing when it is elsewhere or the system has no handles of processes."""

    handle: int | None

    @classmethod
    def at(cls, address: Address) -> "LocalProcess":
        """Open the process at an address."""
        if address[:2] != own_address()[:2] or not hasattr(os, "pidfd_open"):
            return cls(None)
        try:
            return cls(os.pidfd_open(address[2]))
        except OSError:
            return cls(None)

    def kill(self) -> None:
        """End the process, if it is still there."""
        if self.handle is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def close(self) -> None:
        """Give the handle back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
