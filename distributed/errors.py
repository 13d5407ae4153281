"""Errors of parts, and of the ranks that run them."""

from ..foundation.errors import RedpebbleError


class PartError(RedpebbleError):
    """Parts that cannot be used here, or used together; the message says which and why."""
