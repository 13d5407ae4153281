"""Why an engine is left out; each message is one line."""


class PeerError(Exception):
    """A library is not installed, or refuses what it is given."""


class NotAChainError(Exception):
    """A model is more than a chain of linear layers; the message names what is in the way."""
