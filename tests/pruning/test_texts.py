"""Decoders pruned for texts: windows of tokens, perplexity, and the command on a folder."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from redpebble.frontend.reading.model_source import read_model
from redpebble.models.exports.stored import stored_export
from redpebble.pruning.prune import prune
from redpebble.pruning.texts import WINDOW, perplexity, windows_of
from redpebble.verification.decoder_inputs import DecoderInputs, Feeds
from redpebble.verification.oracle import Oracle
from tests.support.command_line import exit_code
from tests.support.genai_folder import write_folder


def file_of(windows: int, token: int) -> list[int]:
    return [token] * (windows * WINDOW + 17)


def test_whole_files_are_held_out() -> None:
    windows = windows_of([file_of(2, token) for token in range(16)], seed=0)
    assert windows.fitted.shape == (28, WINDOW)
    assert windows.held_out.shape == (4, WINDOW)
    assert not set(windows.fitted.ravel()) & set(windows.held_out.ravel())


def test_the_end_of_a_single_file_is_held_out() -> None:
    tokens = list(range(16 * WINDOW + 5))
    windows = windows_of([tokens], seed=0)
    np.testing.assert_array_equal(windows.held_out.ravel(), tokens[14 * WINDOW : 16 * WINDOW])
    assert windows.fitted.max() < 14 * WINDOW


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 8 windows of 256 tokens of text or more, got 546 tokens"):
        windows_of([file_of(1, 0), file_of(1, 1)], seed=0)


def test_perplexity_is_the_number_of_tokens_that_are_equally_likely() -> None:
    inputs = DecoderInputs.of(ir.from_proto(stored_export("llama.genai")))
    assert inputs is not None

    def run(feeds: Feeds) -> Sequence[Any]:
        ids = feeds["input_ids"]
        logits = np.full((*ids.shape, 40), -1e9, np.float32)
        logits[..., 20:30] = 3.0
        return [logits]

    windows = np.random.default_rng(0).integers(20, 30, (3, WINDOW))
    assert perplexity(run, inputs, windows) == pytest.approx(10.0, rel=1e-5)
    assert perplexity(run, inputs, windows - 10) > 1e300


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the extra zoo")
def test_the_command_prunes_a_folder_for_a_text_and_tells_its_perplexity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, text = write_folder(tmp_path / "in"), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 100)
    words = ["prune", source, target, "--data", text, "--sparsity", "0.5", "--precision", "int4"]
    assert exit_code(monkeypatch, *words, "--report", tmp_path / "r.json") == 0
    assert "perplexity" in capsys.readouterr().out
    assert {path.name for path in source.iterdir() if not path.name.startswith(".")} == {
        path.name for path in target.iterdir()
    }
    found = json.loads((tmp_path / "r.json").read_text())["perplexity"]
    assert 1 < found["before"] < 1000
    assert 1 < found["after"] < 1000
    model = read_model(target / "model.onnx", any_version=True)
    operators = [node.op_type for node in model.graph]
    assert operators.count("MatMulNBits") == 13  # four in each of three layers, where o_proj is too small, and the head
    inputs = DecoderInputs.of(model)
    assert inputs is not None
    (logits, *_) = Oracle(target / "model.onnx").run(inputs.feeds(np.zeros((2, 5), np.int64)))
    assert np.isfinite(logits).all()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tokenizers") is None or find_spec("torch") is None, reason="needs torch, tokenizers")
def test_what_is_left_is_trained_on_the_text_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, text = write_folder(tmp_path / "in"), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 100)
    words = ["prune", source, target, "--data", text, "--sparsity", "0.5", "--precision", "int4", "--finetune", "3"]
    assert exit_code(monkeypatch, *words, "--report", tmp_path / "r.json") == 0
    assert "steps of training" in " ".join(capsys.readouterr().out.split())
    assert set(json.loads((tmp_path / "r.json").read_text())["perplexity"]) == {"before", "after", "trained", "tokens"}
    (logits, *_) = Oracle(target / "model.onnx").run(inputs_of(target).feeds(np.zeros((2, 5), np.int64)))
    assert np.isfinite(logits).all()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_training_moves_a_decoder_to_the_dense_one_and_keeps_its_zeros(tmp_path: Path) -> None:
    from redpebble.pytorch.imported.decoders import Texts, trained_decoder

    source = write_folder(tmp_path / "in") / "model.onnx"
    inputs, rng = inputs_of(source.parent), np.random.default_rng(0)
    fitted, held_out = rng.integers(0, 256, (24, 64)), rng.integers(0, 256, (4, 64))
    sparse = prune(source, inputs.feeds(fitted), sparsity=0.5, precision="int4", keep=["/lm_head/MatMul"]).model
    model, steps = trained_decoder(sparse, source, inputs, ["/lm_head/MatMul"], Texts(fitted, 4.0))
    wanted, before, after = (logits_of(one, inputs.feeds(held_out)) for one in (source, sparse, model))
    assert steps > 0
    # weights are random, and time is short: logits come closer by some percent
    assert np.square(after - wanted).mean() < np.square(before - wanted).mean()
    for name in sparse.graph.initializers:
        before, after = (tensor_of(one.graph.initializers[name]) for one in (sparse, model))
        if name.startswith("lm_head") or name.endswith("scales"):
            np.testing.assert_array_equal(after, before)
        elif name.endswith("_Q4"):
            for kept, moved in ((before & 15, after & 15), (before >> 4, after >> 4)):
                assert (moved[kept == 8] == 8).all()  # the code of zero


def logits_of(model: Path | ir.Model, feeds: Feeds) -> NDArray[np.float32]:
    return Oracle(model).run(feeds)[0]


def tensor_of(value: ir.Value) -> NDArray[Any]:
    assert value.const_value is not None
    return value.const_value.numpy()


def inputs_of(folder: Path) -> DecoderInputs:
    found = DecoderInputs.of(read_model(folder / "model.onnx", any_version=True))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("stages", "stages: expected 1 with texts, got 2"),
        ("same folder", "it is the folder that is read"),
        ("no tokenizer", "expected tokenizer.json in the folder, got none"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    changes: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, text = write_folder(tmp_path / "in"), tmp_path / "text.txt"
    text.write_text("a")
    target = source if changes == "same folder" else tmp_path / "out"
    if changes == "no tokenizer":
        (source / "tokenizer.json").unlink()
    words = ("--finetune", "1", "--stages", "2") if changes == "stages" else ()
    assert exit_code(monkeypatch, "prune", source, target, "--data", text, "--sparsity", "0.5", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
