"""What can be wrong with parts, and with the ranks that run them."""


class PartError(Exception):
    """Parts that cannot be used here, or used together; the message says which and why."""
