"""Names of the axes of inputs that calls choose the sizes of, found without a library that reads models."""

from collections.abc import Mapping, Sequence
from typing import Final

NO_NAMES: Final = frozenset({"", "?", "-1", "None", "none"})
"""Names of dimensions that exporters write where they know no size: Paddle's `?`, as often as there are such sizes."""

Dims = Mapping[str, Sequence[int | str | None]]
"""Input -> the size of each axis, its name, or None where it has neither."""

Axes = Mapping[str, tuple[str, ...]]
"""Input -> a name for each axis whose size code waits for, an empty one for every other axis."""


def size_or_name(size: int | str | None) -> int | str | None:
    """Return what an axis says of its size: nothing, where exporters say that they know none."""
    is_unknown = size < 0 if isinstance(size, int) else size is None or size in NO_NAMES
    return None if is_unknown else size


def every_free_axis(inputs: Dims) -> Axes:
    """Return a name for each axis that calls choose; one without is called as its input and its place are: `x.2`."""
    return {
        name: tuple("" if isinstance(size, int) else size or f"{name}.{axis}" for axis, size in enumerate(sizes))
        for name, sizes in inputs.items()
    }


def words_of(axes: Axes) -> list[str]:
    """Return the names of axes, each once."""
    return [*dict.fromkeys(word for words in axes.values() for word in words if word)]


def sizes_of(axes: Axes, shapes: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
    """Return the sizes in inputs of these shapes by name; None where a call cannot have them."""
    sizes: dict[str, int] = {}
    for name, words in axes.items():
        extents = shapes.get(name, ())
        if len(extents) != len(words):
            return None
        for word, extent in zip(words, extents, strict=True):
            if word and sizes.setdefault(word, extent) != extent:
                return None
    return sizes


def check_sizes(inputs: Dims, sizes: Mapping[str, int]) -> None:
    """Check that sizes are those of free axes.

    Raises:
        ValueError: no input has a free axis of that name, or its size is less than 1.
    """
    free = words_of(every_free_axis(inputs))
    for name, size in sizes.items():
        if name not in free:
            raise ValueError(f"expected the size of a free axis ({', '.join(free) or 'there are none'}), got {name!r}")
        if size < 1:
            raise ValueError(f"size {name}: expected 1 or more, got {size}")
