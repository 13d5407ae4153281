"""Random networks on images: windows of all kinds, groups, pooling, resizing, branches that meet again."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx

from tests.fuzzing.fuzzer import one_of
from tests.support.image_models import Attribute, ImageModel, group_norm

ACTIVATIONS = ("Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Tanh")


class Plane(NamedTuple):
    """A value [batch, channels, height, width] of a network that is drawn."""

    name: str
    channels: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


class DrawnImages:
    """A network on images, drawn node by node."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        shape = one_of(rng, (1, 3, 6, 16, 64)), int(rng.integers(1, 18)), int(rng.integers(1, 18))
        self.net = ImageModel(shape, seed=int(rng.integers(1 << 30)), density=one_of(rng, (0.0, 0.1, 0.3, 1.0)))
        self.planes = [Plane("x", *shape)]

    def outputs(self) -> list[str]:
        """Draw nodes, and return the names of one or two results."""
        often = (self._conv, self._conv, self._conv, self._depthwise, self._pool, self._activation, self._meeting)
        seldom = (self._resized, self._normalized, self._padded, self._reduced, self._expanded)
        others = (self._by_pixels, self._by_groups, self._wide_pool, self._transposed, self._from_channels)
        for _ in range(int(self._rng.integers(2, 9))):
            one_of(self._rng, (*often, *seldom, *others))()
        results = [plane for plane in self.planes[1:] if plane.height and plane.width][-2:] or [self._activation()]
        if self._rng.random() < 0.3:
            mean = self.net.node("Flatten", self.net.node("GlobalAveragePool", results[-1].name))
            return [self.net.node("Gemm", mean, self.net.weights("classes", (results[-1].channels, 10)))]
        return [plane.name for plane in results]

    def _kept(self, name: str, channels: int, size: Sequence[int]) -> Plane:
        self.planes.append(Plane(name, channels, *size))
        return self.planes[-1]

    def _window(self, size: Sequence[int], *, dilates: bool) -> tuple[list[int], dict[str, Attribute], list[int]]:
        """A window that has a result on planes of a size: its taps, its attributes, and the result's size."""
        rng, (taps, strides, dilations, before, after, result) = self._rng, (list[int]() for _ in range(6))
        for extent in size:
            tap, dilation = int(rng.integers(1, 6)), int(rng.integers(1, 3)) if dilates else 1
            reach = (tap - 1) * dilation + 1
            pads = [int(rng.integers(0, tap)), int(rng.integers(0, tap))]
            if extent + sum(pads) < reach:
                tap, dilation, reach, pads = 1, 1, 1, [0, 0]
            stride = int(rng.integers(1, 4))
            taps.append(tap)
            strides.append(stride)
            dilations.append(dilation)
            before.append(pads[0])
            after.append(pads[1])
            result.append((extent + sum(pads) - reach) // stride + 1)
        attributes: dict[str, Attribute] = {"strides": strides}
        if dilates:
            attributes["dilations"] = dilations
        if dilates and rng.random() < 0.3:
            attributes["auto_pad"] = one_of(rng, ("SAME_UPPER", "SAME_LOWER"))
            return taps, attributes, [-(-extent // stride) for extent, stride in zip(size, strides, strict=True)]
        attributes["pads"] = [*before, *after]
        return taps, attributes, result

    def _conv(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        groups = one_of(self._rng, [count for count in (1, 1, 1, 2, 3, 4) if plane.channels % count == 0])
        outputs = groups * one_of(self._rng, (1, 2, 5, 8, 16, 64 // groups))
        taps, attributes, size = self._window(plane.size, dilates=True)
        shape = (outputs, plane.channels // groups, taps[0], taps[1])
        return self._kept(self.net.conv(plane.name, shape, group=groups, **attributes), outputs, size)

    def _depthwise(self) -> Plane:
        plane, more = one_of(self._rng, self.planes), one_of(self._rng, (1, 1, 2))
        taps, attributes, size = self._window(plane.size, dilates=True)
        shape = (plane.channels * more, 1, taps[0], taps[1])
        return self._kept(self.net.conv(plane.name, shape, group=plane.channels, **attributes), shape[0], size)

    def _expanded(self) -> Plane:
        """A pointwise convolution to more channels, and one of each channel behind it."""
        plane = one_of(self._rng, self.planes)
        channels = plane.channels * int(self._rng.integers(2, 7)) if plane.channels < 20 else plane.channels + 7
        name = self.net.conv(plane.name, (channels, plane.channels, 1, 1))
        if self._rng.random() < 0.7:
            name = self.net.node(one_of(self._rng, ACTIVATIONS), name)
        taps, attributes, size = self._window(plane.size, dilates=True)
        return self._kept(self.net.conv(name, (channels, 1, *taps), group=channels, **attributes), channels, size)

    def _pool(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        taps, attributes, size = self._window(plane.size, dilates=False)
        kind = one_of(self._rng, ("MaxPool", "AveragePool"))
        if kind == "AveragePool" and self._rng.random() < 0.5:
            attributes["count_include_pad"] = 1
        return self._kept(self.net.node(kind, plane.name, kernel_shape=taps, **attributes), plane.channels, size)

    def _activation(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        return self._kept(self.net.node(one_of(self._rng, ACTIVATIONS), plane.name), plane.channels, plane.size)

    def _meeting(self) -> Plane:
        """Two planes of one size: their sum or product where their channels are as many, else one beside the other."""
        one = one_of(self._rng, self.planes)
        other = one_of(self._rng, [plane for plane in self.planes if plane.size == one.size])
        if one.channels == other.channels and self._rng.random() < 0.7:
            return self._kept(
                self.net.node(one_of(self._rng, ("Add", "Mul")), one.name, other.name), one.channels, one.size
            )
        return self._kept(
            self.net.node("Concat", one.name, other.name, axis=1), one.channels + other.channels, one.size
        )

    def _resized(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        if plane.height * plane.width > 400:
            return plane
        factors = [int(self._rng.integers(1, 4)) for _ in range(2)]
        name = f"factors{len(self.net.nodes)}"
        self.net.tensors[name] = np.array([1, 1, *factors], np.float32)
        ways = one_of(self._rng, (("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_floor")))
        if self._rng.random() < 0.5:
            mode = one_of(self._rng, ("linear", "cubic"))
            ways = (mode, one_of(self._rng, ("half_pixel", "align_corners", "asymmetric")), "round_prefer_floor")
        words = dict(zip(("mode", "coordinate_transformation_mode", "nearest_mode"), ways, strict=True))
        result = self.net.node("Resize", plane.name, "", name, **words)
        return self._kept(result, plane.channels, [plane.height * factors[0], plane.width * factors[1]])

    def _padded(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        pads, number = self._rng.integers(0, 3, (2, 2)), len(self.net.nodes)
        names = [f"pads{number}", f"fill{number}"]
        self.net.tensors[names[0]] = np.array([0, 0, *pads[0], 0, 0, *pads[1]])
        self.net.tensors[names[1]] = np.array(one_of(self._rng, (0.0, 0.5)), np.float32)
        height, width = np.array(plane.size) + pads.sum(axis=0)
        return self._kept(self.net.node("Pad", plane.name, *names), plane.channels, (int(height), int(width)))

    def _reduced(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        kind = one_of(self._rng, ("GlobalAveragePool", "GlobalMaxPool"))
        return self._kept(self.net.node(kind, plane.name), plane.channels, (1, 1))

    def _normalized(self) -> Plane:
        plane, names = one_of(self._rng, self.planes), list[str]()
        for word in ("scale", "shift", "mean", "variance"):
            names.append(f"{word}{len(self.net.nodes)}")
            values = self._rng.random(plane.channels) + (0.1 if word == "variance" else -0.5)
            self.net.tensors[names[-1]] = values.astype(np.float32)
        result = self.net.node("BatchNormalization", plane.name, *names)
        return self._kept(result, plane.channels, plane.size)

    def _by_pixels(self) -> Plane:
        """A norm of each channel."""
        plane, number = one_of(self._rng, self.planes), len(self.net.nodes)
        names = [self.net.channel_values(f"{word}{number}", plane.channels) for word in ("scale", "shift")]
        result = self.net.node("InstanceNormalization", plane.name, *names, epsilon=1e-2)
        return self._kept(result, plane.channels, plane.size)

    def _by_groups(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        groups = one_of(self._rng, [count for count in (1, 2, 3, 4, plane.channels) if plane.channels % count == 0])
        return self._kept(group_norm(self.net, plane.name, plane.channels, groups), plane.channels, plane.size)

    def _wide_pool(self) -> Plane:
        """The largest of a window that may be larger than the plane, with its pads."""
        plane, dilation = one_of(self._rng, self.planes), one_of(self._rng, (1, 1, 2))
        taps = [2 * int(self._rng.integers(1, 7)) + 1 for _ in range(2)]  # the pixel in the middle is always there
        half = [(tap - 1) * dilation // 2 for tap in taps]
        if any(pad >= tap for pad, tap in zip(half, taps, strict=True)):
            half, dilation = [(tap - 1) // 2 for tap in taps], 1
        size = [
            extent + 2 * pad - (tap - 1) * dilation for extent, pad, tap in zip(plane.size, half, taps, strict=True)
        ]
        if min(size) < 1:
            return plane
        places: dict[str, Attribute] = {"pads": half * 2, "dilations": [dilation] * 2}
        result = self.net.node("MaxPool", plane.name, kernel_shape=taps, strides=[1, 1], **places)
        return self._kept(result, plane.channels, size)

    def _transposed(self) -> Plane:
        plane = one_of(self._rng, self.planes)
        if plane.height * plane.width > 400:
            return plane
        groups = one_of(self._rng, [count for count in (1, 1, 2, 3) if plane.channels % count == 0])
        outputs = one_of(self._rng, (1, 2, 5, 8))
        taps, strides, dilations = (self._rng.integers(1, most, 2) for most in (5, 4, 3))
        before, after = (self._rng.integers(0, taps) for _ in range(2))
        reach = (taps - 1) * dilations + 1
        size = (np.array(plane.size) - 1) * strides + reach - before - after
        if size.min() < 1:
            before, after = before * 0, after * 0
            size = (np.array(plane.size) - 1) * strides + reach
        name = self.net.weights(f"w{len(self.net.nodes)}", (plane.channels, outputs, *taps.tolist()))
        attributes: dict[str, Attribute] = {"strides": strides.tolist(), "dilations": dilations.tolist()}
        attributes |= {"pads": [*before.tolist(), *after.tolist()], "group": groups}
        result = self.net.node("ConvTranspose", plane.name, name, **attributes)
        return self._kept(result, outputs * groups, size.tolist())

    def _from_channels(self) -> Plane:
        """Channels that become pixels."""
        plane = one_of(self._rng, self.planes)
        sides = [side for side in (2, 3) if plane.channels % side**2 == 0]
        if not sides or plane.height * plane.width > 400:
            return plane
        side, mode = one_of(self._rng, sides), one_of(self._rng, ("DCR", "CRD"))
        result = self.net.node("DepthToSpace", plane.name, blocksize=side, mode=mode)
        return self._kept(result, plane.channels // side**2, [side * plane.height, side * plane.width])


def give_half_ends(model: onnx.ModelProto) -> None:
    """Let inputs and outputs be float16, with casts behind and before them."""
    graph, half = model.graph, onnx.TensorProto.FLOAT16
    inner = {value.name: f"{value.name}_inside" for value in (*graph.input, *graph.output)}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, name) for name in names]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = half
    casts = [onnx.helper.make_node("Cast", [x.name], [inner[x.name]], to=onnx.TensorProto.FLOAT) for x in graph.input]
    back = [onnx.helper.make_node("Cast", [inner[y.name]], [y.name], to=half) for y in graph.output]
    nodes = [*casts, *graph.node, *back]
    del graph.node[:]
    graph.node.extend(nodes)


def forget_sizes(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Leave height and width of the images to each call."""
    if rng.random() < 0.2:
        for name, dim in zip(("height", "width"), model.graph.input[0].type.tensor_type.shape.dim[2:], strict=True):
            dim.dim_param = name
