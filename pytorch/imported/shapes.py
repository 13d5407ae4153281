"""Operators that move values, and those that compute with sizes: tensors of sizes stay on the CPU."""

import torch
from torch.nn import functional

from .nodes import Node, Tensor, operator


@operator("Identity", "Dropout")
def _same(node: Node, x: Tensor, *_: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
    # trained without dropout, as the teacher answers
    return x if node.output_count == 1 else (x, torch.ones_like(x, dtype=torch.bool))


@operator("Shape")
def _shape(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[node.get("start", 0) : node.get("end", x.dim())], dtype=torch.int64)


@operator("Size")
def _size(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(x.numel())


@operator("Reshape")
def _reshaped(node: Node, x: Tensor, shape: Tensor | None = None) -> Tensor:
    sizes = node.ints("shape", shape) or []
    if not node.get("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def _flattened(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows = x.shape[:axis].numel()
    return x.reshape(rows, x.shape[axis:].numel())


@operator("Squeeze")
def _squeezed(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = node.ints("axes", axes)
    return x.squeeze() if along is None else x.squeeze(along)


@operator("Unsqueeze")
def _unsqueezed(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    along = node.ints("axes", axes) or []
    rank = x.dim() + len(along)
    for axis in sorted(one % rank for one in along):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose")
def _transposed(node: Node, x: Tensor) -> Tensor:
    return x.permute(node.ints("perm") or list(reversed(range(x.dim()))))


@operator("Concat")
def _joined(node: Node, *values: Tensor) -> Tensor:
    return torch.cat(values, int(node.attributes["axis"]))


@operator("Split")
def _split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, own = node.get("axis", 0), node.ints("split", sizes)
    if own is None:
        size = -(-x.shape[axis] // node.output_count)
        own = [min(size, x.shape[axis] - size * index) for index in range(node.output_count)]
    return x.split(own, axis)


@operator("Slice")
def _sliced(
    node: Node,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    first, last = node.ints("starts", starts) or [], node.ints("ends", ends) or []
    along = node.ints("axes", axes) or list(range(len(first)))
    for start, end, axis, step in zip(first, last, along, node.ints("steps", steps) or [1] * len(first), strict=True):
        # an end of the least integer is past the front of any axis
        places = range(*slice(start, end, step).indices(x.shape[axis]))
        if step == 1:
            x = x.narrow(axis, places.start if len(places) else 0, len(places))
        else:
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))
    return x


@operator("Gather")
def _gathered(node: Node, x: Tensor, places: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.dim()
    chosen = x.index_select(axis, _wrapped(places, x.shape[axis]).flatten())
    return chosen.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def _wrapped(places: Tensor, size: int) -> Tensor:
    """Return places in an axis, negative ones counted from its end."""
    return torch.where(places < 0, places + size, places).to(torch.int64)


@operator("GatherElements")
def _gathered_elements(node: Node, x: Tensor, places: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.dim()
    return x.gather(axis, _wrapped(places, x.shape[axis]))


@operator("GatherND")
def _gathered_tuples(node: Node, x: Tensor, places: Tensor) -> Tensor:
    shared, depth = node.get("batch_dims", 0), places.shape[-1]
    sizes = x.shape[shared : shared + depth]
    tuples = [_wrapped(places[..., axis], size) for axis, size in enumerate(sizes)]
    for axis in range(shared):
        own = torch.arange(x.shape[axis], device=places.device)
        tuples.insert(axis, own.reshape([-1 if one == axis else 1 for one in range(places.dim() - 1)]))
    return x[tuple(tuples)]


@operator("ScatterElements", "Scatter")
def _scattered_elements(node: Node, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    axis, way = node.get("axis", 0) % x.dim(), str(node.get("reduction", "none"))
    where = _wrapped(places, x.shape[axis])
    if way == "none":
        return x.scatter(axis, where, values)
    return x.scatter_reduce(axis, where, values, {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[way])


@operator("ScatterND")
def _scattered_tuples(node: Node, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    tuples = tuple(_wrapped(places[..., axis], x.shape[axis]) for axis in range(places.shape[-1]))
    if (way := str(node.get("reduction", "none"))) not in ("none", "add"):
        raise ValueError(f"reduction: expected none or add, got {way}")
    return x.index_put(tuples, values, accumulate=way == "add")


@operator("Expand")
def _expanded(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape.tolist())))


@operator("Tile")
def _tiled(node: Node, x: Tensor, counts: Tensor) -> Tensor:
    return x.repeat(*counts.tolist())


@operator("Range")
def _range(node: Node, start: Tensor, end: Tensor, step: Tensor) -> Tensor:
    return torch.arange(start.item(), end.item(), step.item(), dtype=start.dtype)


@operator("ConstantOfShape")
def _filled(node: Node, shape: Tensor) -> Tensor:
    value = node.get("value")
    one = torch.zeros(1) if value is None else torch.from_numpy(value.numpy().copy()).flatten()
    return one.expand(*shape.tolist()).clone() if shape.numel() else one.reshape(())


@operator("Trilu")
def _triangle(node: Node, x: Tensor, offset: Tensor | None = None) -> Tensor:
    cut = torch.triu if node.get("upper", 1) else torch.tril
    return cut(x, 0 if offset is None else int(offset))


@operator("OneHot")
def _one_hot(node: Node, places: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    count, axis = int(depth), node.get("axis", -1)
    hit = torch.arange(count, device=places.device) == _wrapped(places, count).unsqueeze(-1)
    found = torch.where(hit, values[1], values[0])
    return found.movedim(-1, axis % found.dim())


@operator("NonZero")
def _not_zero(node: Node, x: Tensor) -> Tensor:
    return x.nonzero().T


@operator("Pad")
def _padded(
    node: Node, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    own, mode = node.ints("pads", pads) or [], str(node.get("mode", "constant"))
    along = [one % x.dim() for one in node.ints("axes", axes) or range(x.dim())]
    fill = float(node.get("value", 0.0) if value is None else value)
    for axis, before, after in zip(along, own[: len(along)], own[len(along) :], strict=True):
        if mode == "constant" or min(before, after) < 0:
            x = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after], value=fill)
        else:
            x = x.index_select(axis, _places_beside(x.shape[axis], before, after, mode).to(x.device))
    return x


def _places_beside(size: int, before: int, after: int, mode: str) -> Tensor:
    """Return the places of an axis that a padded one reads."""
    places = torch.arange(-before, size + after)
    match mode:
        case "edge":
            return places.clamp(0, size - 1)
        case "wrap":
            return places.remainder(size)
        case _:
            # there and back again, without the ends twice
            period = max(1, 2 * (size - 1))
            around = places.remainder(period)
            return torch.minimum(around, period - around) if size > 1 else torch.zeros_like(places)


@operator("DepthToSpace")
def _to_space(node: Node, x: Tensor) -> Tensor:
    size, (count, channels, height, width) = int(node.attributes["blocksize"]), x.shape
    own = channels // size**2
    if str(node.get("mode", "DCR")) == "CRD":
        parts = x.reshape(count, own, size, size, height, width).permute(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(count, size, size, own, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(count, own, height * size, width * size)


@operator("SpaceToDepth")
def _to_depth(node: Node, x: Tensor) -> Tensor:
    size, (count, channels, height, width) = int(node.attributes["blocksize"]), x.shape
    parts = x.reshape(count, channels, height // size, size, width // size, size).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(count, channels * size**2, height // size, width // size)
