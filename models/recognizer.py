"""PP-OCRv4's recogniser of text lines, 70 or 80 % zeros in its 21 largest layers, as trained and stored.

The dense model is a file of the package rapidocr-onnxruntime (Apache-2.0); what was trained is stored as the values
that differ, matrices by their nonzeros. `python -m redpebble.pytorch.recipes.recognizer` makes `recognizer_70.npz.xz`,
`recognizer_80.npz.xz` and `recognizer.json`, the cards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from .compressed_arrays import arrays_of, compressed_arrays
from .sentences.archive import CODER

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

CARDS: Final = Path(__file__).with_name("recognizer.json")
HEIGHT: Final = 48
"""Pixels of a text line; it may have any width."""

Array = NDArray[np.float32]


def weights_path(zeros: int) -> Path:
    """Return the path of the weights with so many per cent of zeros."""
    return CARDS.with_name(f"recognizer_{zeros}.npz.xz")


@dataclass(frozen=True)
class _Recognizer:
    zeros: ClassVar[int]

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: x [lines, 3, 48, width] from -1 to 1 -> probabilities [lines, width / 8, 6625], of CTC.

        Raises:
            ValueError: the package of the dense model is not installed.
        """
        del rng
        return with_constants(base_model(), unpacked(weights_path(self.zeros).read_bytes()))


class Recognizer70(_Recognizer):
    """PP-OCRv4's recogniser of text lines, 70 % zeros, distilled on English; needs the extra zoo."""

    zeros = 70


class Recognizer80(_Recognizer):
    """PP-OCRv4's recogniser of text lines, 80 % zeros, distilled briefly on English; needs the extra zoo."""

    zeros = 80


def recognizer_cards() -> dict[str, Any]:
    """Facts of the stored weights: training and quality."""
    return json.loads(CARDS.read_text())


def base_path() -> Path:
    """The file of the dense model; its package is found, not imported, since it needs OpenCV.

    Raises:
        ValueError: the package is not installed.
    """
    package = find_spec("rapidocr_onnxruntime")
    if package is None or package.origin is None:
        raise ValueError("the recogniser needs the package rapidocr-onnxruntime: make zoo-extra")
    return Path(package.origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"


def base_model() -> ir.Model:
    """The dense model."""
    from ..frontend.reading.model_source import read_model

    return read_model(base_path())


def constants(model: ir.Model) -> dict[str, Array]:
    """The float constants of a model by the names of their values."""
    return {
        node.outputs[0].name or "": node.attributes["value"].as_tensor().numpy()
        for node in model.graph
        if node.op_type == "Constant" and node.attributes["value"].as_tensor().dtype.numpy() == np.float32
    }


def with_constants(model: ir.Model, changed: Mapping[str, Array]) -> ir.Model:
    """The model with other values of some constants."""
    import onnx_ir as ir

    for node in model.graph:
        name = node.outputs[0].name or ""
        if name in changed:
            node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(changed[name], name=name))
    return model


def part_of(model: ir.Model, first: str, last: str) -> onnx.ModelProto:
    """Return the part of a model from one value to another."""
    import onnx_ir as ir
    from onnx import shape_inference
    from onnx.utils import Extractor

    return Extractor(shape_inference.infer_shapes(ir.to_proto(model))).extract_model([first], [last])


def answers(model: onnx.ModelProto, images: Sequence[Array]) -> list[Array]:
    """Return the answers of onnxruntime to batches, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [session.run(None, {model.graph.input[0].name: one})[0] for one in images]


def packed(changed: Mapping[str, Array]) -> bytes:
    """The bytes of constants, as stored: a bit a weight and a half float a nonzero.

    Codes of a byte, a step for each output, would take half of that, and cost one character in a hundred.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in changed.items():
        half = array.astype(np.float16)
        kept = half != 0
        arrays[f"{name}.shape"], arrays[f"{name}.kept"] = np.array(array.shape, np.int64), np.packbits(kept)
        # the bytes of signs and exponents apart from those of digits, which no coder makes smaller
        arrays[f"{name}.half"] = np.ascontiguousarray(half[kept].view(np.uint8).reshape(-1, 2).T)
    return compressed_arrays(arrays, filters=CODER)


def unpacked(data: bytes) -> dict[str, Array]:
    """The constants of `packed`."""
    arrays, found = arrays_of(data), dict[str, Array]()
    for name in [key.removesuffix(".shape") for key in arrays if key.endswith(".shape")]:
        shape = tuple(arrays[f"{name}.shape"])
        kept = np.unpackbits(arrays[f"{name}.kept"])[: int(np.prod(shape))].reshape(shape).astype(bool)
        found[name] = np.zeros(shape, np.float32)
        found[name][kept] = np.ascontiguousarray(arrays[f"{name}.half"].T).view(np.float16)[:, 0]
    return found
