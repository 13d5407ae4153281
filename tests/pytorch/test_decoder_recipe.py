"""The recipe of sparse decoders: it runs on a small model as a whole, and what it stores is what it trained."""

import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
tokenizers: Any = pytest.importorskip("tokenizers")

from redpebble.models.language import stored  # noqa: E402
from redpebble.models.language.base_weights import read_base  # noqa: E402
from redpebble.models.language.llama import Llama  # noqa: E402
from redpebble.models.smollm2 import THEIR_NAMES, config_of, named_weights  # noqa: E402
from redpebble.pytorch.recipes import decoder  # noqa: E402
from redpebble.pytorch.rounded_weights import rounded  # noqa: E402

WORDS, WIDTH, WIDE, HEADS, SHARED, LAYERS = 60, 96, 128, 4, 2, 1

FACTS = {
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": WIDE,
    "llama.block_count": LAYERS,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": SHARED,
    "llama.rope.dimension_count": WIDTH // HEADS,
    "llama.context_length": 512,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 1e4,
    "llama.vocab_size": WORDS,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 2,
}


def small_weights() -> dict[str, Any]:
    """Random weights of a small model, by their names in GGUF."""
    rng = np.random.default_rng(0)
    kv = WIDTH // HEADS * SHARED
    rows = {"attn_k": kv, "attn_v": kv, "ffn_gate": WIDE, "ffn_up": WIDE}
    arrays = {"token_embd.weight": rng.standard_normal((WORDS, WIDTH)) / 4, "output_norm.weight": np.ones(WIDTH)}
    for layer in range(LAYERS):
        for name in THEIR_NAMES:
            shape = rows.get(name, WIDTH), WIDE if name == "ffn_down" else WIDTH
            values = np.ones(WIDTH) if "norm" in name else rng.standard_normal(shape) / 8
            arrays[f"blk.{layer}.{name}.weight"] = values
    return {name: one.astype(np.float32) for name, one in arrays.items()}


def save(path: Path, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    path.write_bytes(lzma.compress(buffer.getvalue(), preset=0))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder as `redpebble.models.language.base_weights` writes it, and texts beside it."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "facts.json").write_text(json.dumps(FACTS))
    save(folder / "base-0.npz.xz", {f"{name}|F32": one for name, one in small_weights().items()})
    words = {word: index for index, word in enumerate(["<e>", "<s>", "</s>", *map(str, range(WORDS - 3))])}
    model = tokenizers.models.WordLevel(words, unk_token="<e>")
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(1)
    texts = {"train_a": 20, "train_b": 4, "test_docstrings": 2, "test_licences": 1}
    arrays = {name: rng.integers(0, WORDS, windows * 32 + 7).astype(np.uint16) for name, windows in texts.items()}
    save(tmp_path / "texts.npz.xz", arrays)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(decoder, "LENGTH", 32)
    monkeypatch.setattr(decoder, "RATES", {False: (1e-3,), True: (3e-3,)})
    monkeypatch.setattr(decoder, "PROMPTS", ("1 2 3",))
    trained = ("z50_low_rank", "dense", "z24_low_rank")
    monkeypatch.setattr(decoder, "MODELS", tuple(one for one in decoder.MODELS if one.name in trained))


@pytest.mark.slow
def test_all_models_are_trained_stored_and_measured(base: Path) -> None:
    output = base.parent / "out"
    texts = str(base.parent / "texts.npz.xz")
    options = ["--seconds", "1e9", "--steps", "2", "--pilot-seconds", "0.02", "--windows", "2", "--layers", str(LAYERS)]
    decoder.main([str(base), texts, str(output), *options])
    results = json.loads((output / "results.json").read_text())
    assert [one["name"] for one in results["models"]] == [one.name for one in decoder.MODELS]
    for told, model in zip(results["models"], decoder.MODELS, strict=True):
        assert told["zeros_found"] >= model.zeros - 0.02
        assert told["steps"] == 2
        assert np.isfinite(told["after"]["docstrings"])
        if model.rank:
            assert told["bytes"] == (output / f"{model.name}.npz.xz").stat().st_size
            # a weight that is stored a little otherwise may get another code of four bits; few weights, large steps
            assert told["stored"] == pytest.approx(told["after"], rel=0.3)


@pytest.mark.parametrize("is_of_four", [False, True])
def test_what_is_stored_is_the_student(base: Path, is_of_four: bool) -> None:
    facts, arrays = read_base(base)
    config = config_of(facts)
    weights = named_weights(arrays, config)
    teacher = Llama(config, weights).eval().requires_grad_(False)
    model = decoder.Model("m", 0.5, 4, is_of_four)
    data = decoder.Data(base.parent / "texts.npz.xz", torch.device("cpu"), 0)
    student = decoder.student_of(teacher, model, [data.train[:4]])
    run = decoder.Training(teacher, weights, data, base.parent, None)
    run.windows = 4
    before = decoder.agreement(decoder.finished(student, teacher), teacher, data.dev)["kl"]
    run.train(student, 2e-3, 12, None)
    whole = decoder.finished(student, teacher)
    assert decoder.agreement(whole, teacher, data.dev)["kl"] < before
    found = stored.read(stored.pack(decoder.archive_of(student, model)))
    for name, weight in stored.weights_of(found, weights).items():
        wanted = whole.get_parameter(name)
        again = torch.from_numpy(weight)
        if again.dim() == 2:
            assert ((again == 0) >= (wanted == 0)).float().mean() > 0.99
            again = rounded(again)
        # a product of floats in another order may round to the next code
        assert ((again - wanted).abs() < 1e-3).float().mean() > 0.999
    if is_of_four:
        kept = whole.model.layers[0].mlp.down_proj.weight.reshape(-1, 4) != 0
        assert int(kept.sum(1).max()) <= 2


def test_equal_scores_keep_the_first_inputs_in_numpy_and_in_torch() -> None:
    rng = np.random.default_rng(3)
    weight = rng.integers(-2, 3, (16, 64)).astype(np.float32)
    squares = np.ones(64, np.float32)
    for is_of_four in (False, True):
        mask = stored.mask_of(weight, squares, 0.5, is_of_four=is_of_four)
        found = decoder.stored_mask(is_of_four).choose(torch.from_numpy(np.square(weight)), 0.5)
        np.testing.assert_array_equal(mask, found.numpy())
        assert mask.sum() == weight.size // 2
    halves = stored.upper_halves(np.array([1.0, 3e9, 1e-20], np.float32))
    np.testing.assert_allclose(stored.from_upper_halves(halves), [1.0, 3e9, 1e-20], rtol=1 / 128)
