"""Write the stored export of a Keras network: `python -m redpebble.models.exports.keras_networks`.

Needs tensorflow-cpu and tf2onnx, which are no extra of this package. tf2onnx's own optimizers are left out, as files of
older versions and of other converters are: each convolution has a Transpose before and behind it.
"""

import gzip
from importlib import import_module
from typing import Any, Final

from .stored import FOLDER, hollow

tensorflow: Any = import_module("tensorflow")
tf2onnx: Any = import_module("tf2onnx.convert")
layers: Any = tensorflow.keras.layers

Keras = Any
"""A tensor or a model of Keras."""

NAME: Final = "nhwc_resnet.keras"
SIDE: Final = 64
OPSET: Final = 17


def _convolution(x: Keras, outputs: int, taps: int, stride: int = 1) -> Keras:
    padded = layers.ZeroPadding2D(taps // 2)(x) if taps > 1 else x
    return layers.BatchNormalization()(layers.Conv2D(outputs, taps, strides=stride, use_bias=False)(padded))


def _block(x: Keras, width: int, stride: int) -> Keras:
    y = layers.ReLU()(_convolution(x, width, 1, stride))
    y = _convolution(layers.ReLU()(_convolution(y, width, 3)), 4 * width, 1)
    skipped = x if x.shape[-1] == 4 * width and stride == 1 else _convolution(x, 4 * width, 1, stride)
    return layers.ReLU()(layers.Add()([skipped, y]))


def resnet() -> Keras:
    """Return a ResNet of four bottleneck blocks on images [batch, 64, 64, 3]."""
    images = tensorflow.keras.Input((SIDE, SIDE, 3))
    x = layers.MaxPooling2D(3, 2, "same")(layers.ReLU()(_convolution(images, 32, 7, 2)))
    for width, stride in ((32, 1), (32, 1), (64, 2), (64, 1)):
        x = _block(x, width, stride)
    scores = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    return tensorflow.keras.Model(images, scores)


def _as_it_is(graph: Keras, *_: object, **__: object) -> Keras:
    return graph


def main() -> None:
    """Write the export, its weights left out."""
    tensorflow.keras.utils.set_random_seed(0)
    model = resnet()
    signature = [tensorflow.TensorSpec((None, SIDE, SIDE, 3), tensorflow.float32, name="pixel_values")]

    def scores(pixel_values: Keras) -> Keras:
        return model(pixel_values)

    function = tensorflow.function(scores, input_signature=signature)
    tf2onnx.optimizer.optimize_graph = _as_it_is
    proto, _ = tf2onnx.from_function(function, input_signature=signature, opset=OPSET)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    path = FOLDER / f"{NAME}.onnx.gz"
    path.write_bytes(gzip.compress(hollow(proto).SerializeToString(deterministic=True), 9, mtime=0))
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
