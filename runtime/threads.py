"""Number of threads to run code on."""

import operator


def checked_threads(threads: int, most: int | None = None) -> int:
    """Return a number of threads, at most that which a network was compiled for.

    Raises:
        ValueError: it is no whole number, or there are no so many.
    """
    try:
        count = operator.index(threads)
    except TypeError:
        raise ValueError(f"threads: expected a whole number, got {threads!r}") from None
    if count < 1 or (most is not None and count > most):
        accepted = "1 or more" if most is None else f"1 to {most}, for which the network was compiled"
        raise ValueError(f"threads: expected {accepted}, got {count}")
    return count
