"""Counts and times of a rank while it ran."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class RankReport:
    """The counts and times of one rank; a row is one value of a block of samples."""

    rank: int
    messages_sent: int = 0
    rows_sent: int = 0
    rows_left_out: int = 0
    """Zero for a whole block, so not sent."""
    row_bytes_sent: int = 0
    flag_bytes_sent: int = 0
    row_bytes_received: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Times of loading, reading, running, waiting for messages (a part of running), writing."""

    def sent(self, rows: int, left_out: int, row_bytes: int, flag_bytes: int) -> None:
        """Count a message: the rows in it and those that are zero, and its bytes."""
        self.messages_sent += 1
        self.rows_sent += rows
        self.rows_left_out += left_out
        self.row_bytes_sent += row_bytes
        self.flag_bytes_sent += flag_bytes

    def spent(self, word: str, seconds: float) -> None:
        """Add to the seconds of some work."""
        self.seconds[word] = self.seconds.get(word, 0.0) + seconds

    def as_json(self) -> dict[str, Any]:
        """Return the content of a report file."""
        return asdict(self)
