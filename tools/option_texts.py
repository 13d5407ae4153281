"""Options whose text holds several values, such as `1,32` and `x:1,64`."""


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `1,32`.

    Raises:
        ValueError: something in it is no number, or negative.
    """
    if not all(word.isdigit() for word in words(text)) or not words(text):
        raise ValueError(f"expected numbers such as 1,32, got {text!r}")
    return tuple(int(word) for word in words(text))


def sizes(options: list[str] | None) -> dict[str, int]:
    """Return the sizes that options such as `past=5` name.

    Raises:
        ValueError: an option has no name or no number.
    """
    named: dict[str, int] = {}
    for option in options or ():
        name, equals, size = option.rpartition("=")
        if not equals or not name or not size.isdigit():
            raise ValueError(f"size: expected NAME=N such as past=5, got {option!r}")
        named[name] = int(size)
    return named


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list such as `a,b`."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def shapes(options: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes that options such as `x:1,64` name.

    Raises:
        ValueError: an option has no name or no numbers.
    """
    named: dict[str, tuple[int, ...]] = {}
    for option in options or ():
        name, colon, sizes = option.rpartition(":")
        if not colon or not name:
            raise ValueError(f"shape: expected NAME:N,N such as x:1,64, got {option!r}")
        named[name] = numbers(sizes)
    return named
