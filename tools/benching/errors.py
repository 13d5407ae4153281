"""Errors that leave an engine out of a benchmark; each message is one line."""

from ...foundation.errors import RedpebbleError


class PeerError(RedpebbleError):
    """A library is not installed, or refuses what it is given."""


class NotCoveredError(RedpebbleError):
    """A model has operators that an engine does not run; the message names the first."""


class NotAChainError(RedpebbleError):
    """A model is more than a chain of linear layers; the message names what is in the way."""
