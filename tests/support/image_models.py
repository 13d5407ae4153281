"""Small networks on images, written node by node, with random sparse weights."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Attribute = int | str | list[int]


@dataclass
class ImageModel:
    """Nodes on `x` [batch, channels, height, width], one after the other."""

    shape: tuple[int, ...]
    seed: int = 0
    density: float = 0.3
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    tensors: dict[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def node(self, operator: str, *inputs: str, **attributes: Attribute | float) -> str:
        """Add a node, and return its result."""
        name = f"{operator.lower()}{len(self.nodes)}"
        made = onnx.NodeProto(op_type=operator, name=f"/{name}", input=inputs, output=[name])
        made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(made)
        return name

    def channel_values(self, name: str, channels: int) -> str:
        """Add a number for each channel."""
        self.tensors[name] = self._rng.standard_normal(channels).astype(np.float32)
        return name

    def weights(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a weight with zeros."""
        kept = self._rng.random(shape) < self.density
        self.tensors[name] = (self._rng.standard_normal(shape) * kept).astype(np.float32)
        return name

    def conv(self, x: str, shape: tuple[int, ...], **attributes: Attribute) -> str:
        """Add a convolution with a weight [O, C / groups, kh, kw] and a bias."""
        weight = self.weights(f"w{len(self.nodes)}", shape)
        self.tensors[f"b{len(self.nodes)}"] = self._rng.standard_normal(shape[0]).astype(np.float32)
        return self.node("Conv", x, weight, f"b{len(self.nodes)}", **attributes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model."""
        graph = helper.make_graph(
            self.nodes,
            "images",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def images(self, batch: int) -> dict[str, NDArray[np.float32]]:
        """Return inputs."""
        return {"x": self._rng.standard_normal((batch, *self.shape)).astype(np.float32)}


def bottleneck(channels: int, size: int, density: float = 0.3) -> tuple[ImageModel, list[str]]:
    """Return the body of a small ResNet, with a stem, and its outputs: two blocks, one of them of stride 2."""
    net = ImageModel((3, 2 * size, 2 * size), density=1.0)
    x = net.node("Relu", net.conv("x", (channels, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    net.density, half = density, channels // 2
    h = net.node("Relu", net.conv(x, (half, channels, 1, 1)))
    h = net.node("Relu", net.conv(h, (half, half, 3, 3), pads=[1, 1, 1, 1]))
    x = net.node("Relu", net.node("Add", net.conv(h, (channels, half, 1, 1)), x))
    h = net.node("Relu", net.conv(x, (half, channels, 1, 1)))
    h = net.node("Relu", net.conv(h, (half, half, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]))
    shortcut = net.conv(x, (channels, channels, 1, 1), strides=[2, 2])
    x = net.node("Relu", net.node("Add", net.conv(h, (channels, half, 1, 1)), shortcut))
    net.density = 1.0
    rows = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net, [net.node("Gemm", rows, net.weights("classes", (channels, 10)))]


def group_norm(net: ImageModel, x: str, channels: int, groups: int, *, size: int = -1, axes: int = 2) -> str:
    """Add the norm of groups of channels as torch's exporters write it, and return its result.

    `size` is the number of values of a group: with -1, as torch writes it, onnxruntime takes no empty batch.
    """
    name, ones = f"norm{len(net.nodes)}", np.ones(groups, np.float32)
    net.tensors |= {f"{name}_shape": np.array([0, groups, size]), f"{name}_one": ones, f"{name}_zero": 0 * ones}
    grouped = net.node("Reshape", x, f"{name}_shape")
    result = net.node("InstanceNormalization", grouped, f"{name}_one", f"{name}_zero", epsilon=1e-5)
    result = net.node("Reshape", result, net.node("Shape", x))
    for operator in ("Mul", "Add"):
        number = net.channel_values(f"{name}_{operator}", channels)
        net.tensors[number] = net.tensors[number].reshape(-1, *(1,) * axes)
        result = net.node(operator, result, number)
    return result
