"""The table of recipes: the models redpebble is tested, shown and measured with.

A model is asked for by its spec, such as `digits` or `ffnn(depth=4, width=500, density=0.1)`. The same spec and seed
give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from .activations import EveryActivation
from .bert import BertFfn, BertLayer
from .compact import Compact
from .digits import Digits
from .digits_cnn import DigitsCnn
from .digits_int8 import DigitsInt8
from .feed_forward import Ffnn, MaskedMlp, ResMlp
from .graph_network import GraphNetwork
from .language.sparse_decoder import SmolLm2Half
from .minilm import MiniLm
from .radixnet import RadixNet
from .recipe import ModelRecipe, Recipe, choose, describe, parse_spec
from .recognizer import Recognizer70, Recognizer80
from .resnet18 import ResNet18Digits
from .sentence_encoders import SENTENCE_ENCODERS
from .structured import Structured

if TYPE_CHECKING:
    import onnx_ir as ir

RECIPES: Final[Mapping[str, type[ModelRecipe]]] = MappingProxyType(
    {
        "bert_ffn": BertFfn,
        "bert_layer": BertLayer,
        "compact": Compact,
        "digits": Digits,
        "digits_cnn": DigitsCnn,
        "digits_int8": DigitsInt8,
        "every_activation": EveryActivation,
        "ffnn": Ffnn,
        "graph_network": GraphNetwork,
        "masked_mlp": MaskedMlp,
        "minilm": MiniLm,
        **SENTENCE_ENCODERS,
        "ppocr_70": Recognizer70,
        "ppocr_80": Recognizer80,
        "radixnet": RadixNet,
        "resmlp": ResMlp,
        "resnet18_80": ResNet18Digits,
        "smollm2_50": SmolLm2Half,
        "structured": Structured,
    }
)


def list_recipes() -> tuple[Recipe, ...]:
    """Every recipe, by name."""
    return tuple(describe(name, recipe) for name, recipe in RECIPES.items())


def build(spec: str, *, seed: int = 0) -> ir.Model:
    """The model a spec describes.

    Raises:
        ValueError: unknown name, parameter or value, or the recipe needs an extra that is not installed.
    """
    return _chosen(spec).build(np.random.default_rng(seed))


def write_folder(spec: str, folder: Path) -> bool:
    """Write a language model as a folder of onnxruntime-genai; False for a model that is one file.

    Raises:
        ValueError: see `build`.
    """
    recipe = _chosen(spec)
    if not isinstance(recipe, SmolLm2Half):
        return False
    recipe.write_folder(folder)
    return True


def _chosen(spec: str) -> ModelRecipe:
    name, parameters = parse_spec(spec)
    recipe = RECIPES.get(name)
    if recipe is None:
        raise ValueError(f"model of the zoo: expected one of {', '.join(RECIPES)}, got {name!r}")
    return choose(name, recipe, parameters)


def save(model: ir.Model, path: str | os.PathLike[str], *, external_data: bool | None = None) -> None:
    """Write a model, complete or not at all; weights go to `path` + ".data" on request or when one file is too small.

    Raises:
        OSError: the file cannot be written.
        ValueError: more than 2 GB in one file.
    """
    from ..export.save_model import save_model

    save_model(model, path, external_data=external_data)
