"""Bytes that a decoder reads for each token, from its file."""

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from redpebble.models.exports.stored import stored_export
from redpebble.tools.explain.decoder_bytes import decoder_parts, level_of, measured_streams, past_part, places_bytes
from redpebble.verification.decoder_inputs import DecoderInputs
from tests.support.command_line import exit_code
from tests.support.genai_folder import write_folder


def parts_of(name: str) -> dict[str, tuple[int, int, float, float, float]]:
    model = ir.from_proto(stored_export(name))
    inputs = DecoderInputs.of(model)
    assert inputs is not None
    return {part.name: part[1:] for part in decoder_parts(model, inputs)}


def test_floats_are_read_whole_or_what_is_left_of_them() -> None:
    parts = parts_of("llama.genai")
    assert set(parts) == {"embeddings", "layers", "head"}
    for name in ("layers", "head"):
        values, nonzeros, runtime, kernel, least = parts[name]
        assert runtime == 4 * values
        assert least <= kernel <= runtime
        assert least >= 4 * nonzeros * (nonzeros < values)
    values, _, *read = parts["embeddings"]
    assert read == [4 * values] * 3


def test_codes_of_four_bits_are_half_a_byte_and_their_scales() -> None:
    values, nonzeros, runtime, kernel, least = parts_of("llama_int4.genai")["layers"]
    assert 0 < nonzeros <= values
    assert runtime == pytest.approx(values * (0.5 + 4 / 32), rel=0.05)
    assert least <= min(kernel, runtime)


def test_the_past_of_a_token_has_keys_and_values_of_all_layers() -> None:
    inputs = DecoderInputs.of(ir.from_proto(stored_export("llama.genai")))
    assert inputs is not None
    heads = sum(one.shape[1] for one in inputs.past if one.shape is not None and isinstance(one.shape[1], int))
    assert past_part(inputs, 10).least_bytes == 4 * heads * inputs.features * 10


def test_places_are_a_bit_each_where_half_are_used_and_nothing_where_all_are() -> None:
    assert [places_bytes(800, count) for count in (0, 400, 800)] == [0, 100, 0]
    assert places_bytes(800, 80) == pytest.approx(100 * 0.469, rel=1e-2)


def test_the_command_shows_parts_and_the_roof_of_measured_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, report = write_folder(tmp_path / "in"), tmp_path / "r.json"
    assert exit_code(monkeypatch, "explain", source, "--report", report) == 0
    shown = capsys.readouterr().out
    for words in ("a past of 1,024", "behind 128 places: onnxruntime", "the least", "GB/s"):
        assert words in shown
    content = json.loads(report.read_text())
    assert [part["name"] for part in content["parts"]][-1] == "a past of 1,024"
    assert 0 < content["l3_ns"] <= content["dram_ns"]


def test_what_fits_into_the_last_cache_stays_there() -> None:
    machine = measured_streams()
    assert level_of(1e3, machine) == ("the last cache", machine.l3_ns)
    assert level_of(1e12, machine) == ("memory", machine.dram_ns)
    assert np.isfinite(machine.dram_ns)
