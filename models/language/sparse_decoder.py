"""SmolLM2 with zeros, of four bits, as a folder of onnxruntime-genai: stored differences from the package's weights."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from ..smollm2 import write_genai, write_source
from .base_weights import base_of
from .stored import read, weights_of

if TYPE_CHECKING:
    import onnx_ir as ir

WEIGHTS: Final = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class _SparseDecoder:
    archive: ClassVar[str]

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The decoder as onnxruntime-genai's model builder writes it.

        Raises:
            ValueError: the extra zoo is not installed.
        """
        import onnx_ir

        del rng
        with tempfile.TemporaryDirectory() as scratch:
            self.write_folder(Path(scratch))
            model = onnx_ir.load(Path(scratch) / "model.onnx")  # pyright: ignore[reportUnknownMemberType]
            for value in model.graph.initializers.values():
                if value.const_value is not None:
                    value.const_value = onnx_ir.tensor(value.const_value.numpy().copy(), name=value.name)
        return model

    def write_folder(self, folder: Path) -> None:
        """Write the decoder, its configuration and its tokenizer.

        Raises:
            ValueError: the extra zoo is not installed.
        """
        archive = read((WEIGHTS / f"{self.archive}.npz.xz").read_bytes())
        _, base = base_of(None)
        with tempfile.TemporaryDirectory() as scratch:
            # the builder rounds to the grid that training had, and zeros stay zeros
            write_source(Path(scratch), changed=weights_of(archive, base))
            write_genai(folder, "int4", source=Path(scratch))


@dataclass(frozen=True)
class SmolLm2Half(_SparseDecoder):
    """SmolLM2-135M-Instruct, 50 % zeros, four bits, distilled; OUT may be a folder; needs the extra zoo."""

    archive = "smollm2_50"
