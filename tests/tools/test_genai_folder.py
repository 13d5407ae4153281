"""`redpebble optimize` of a folder as onnxruntime-genai reads it, and the texts that this generates from the result."""

import json
from pathlib import Path
from typing import Any, Final

import onnxruntime
import pytest

import redpebble
from redpebble.frontend.reading.model_source import read_model
from redpebble.models.exports.genai_decoders import SIZES
from redpebble.tools import main as cli
from tests.support.genai_folder import SESSION_OPTIONS, write_folder

PROMPT: Final = "the quick brown fox"


def command(*arguments: str | Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["redpebble", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
    code = end.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def test_the_decoder_of_a_folder_is_optimized_and_the_rest_is_copied(tmp_path: Path) -> None:
    source, target = write_folder(tmp_path / "v1.0"), tmp_path / "v1.0-fast"
    for _ in range(2):  # what is there already is written again
        assert command("optimize", source, target) == 0
        files = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
        others = {"genai_config.json", "tokenizer.json", "tokenizer_config.json", "adapters/one.txt"}
        assert files == {*others, "model.onnx", "model.onnx.data"}
        assert all((target / name).read_bytes() == (source / name).read_bytes() for name in others)
    operators = [node.op_type for node in read_model(target / "model.onnx").graph]
    assert sum(one.startswith("SparseNetwork") for one in operators) == SIZES["num_hidden_layers"] + 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "cannot be read: is a directory without genai_config.json"),
        ("{", "expected JSON, got "),
        ("[]", "expected a file name at model.decoder.filename, got null"),
        ('{"model": {"decoder": {"pipeline": []}}}', "expected a file name at model.decoder.filename, got null"),
        ('{"model": {"decoder": {"filename": 3}}}', "expected a file name at model.decoder.filename, got 3"),
        (
            '{"model": {"decoder": {"filename": "../model.onnx"}}}',
            "expected the decoder in this folder, got '../model.onnx', which is not there",
        ),
        (
            '{"model": {"decoder": {"filename": "other.onnx"}}}',
            "expected the decoder in this folder, got 'other.onnx', which is not there",
        ),
    ],
)
def test_a_folder_that_onnxruntime_genai_does_not_read_is_refused_in_one_line(
    config: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if config is not None:
        (tmp_path / "genai_config.json").write_text(config)
    assert command("optimize", tmp_path, tmp_path / "out") == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "out").exists()


def test_a_folder_is_not_written_over_itself_nor_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_folder(tmp_path / "in")
    (tmp_path / "file").write_text("")
    for target, message in (
        (source, f"error: cannot write {source}: it is the folder that is read"),
        (tmp_path / "file", f"error: cannot write {tmp_path / 'file'}: expected a folder, got a file"),
        (tmp_path / "no" / "out", f"error: cannot write {tmp_path / 'no' / 'out'}: {tmp_path / 'no'} is no folder"),
    ):
        assert command("optimize", source, target) == 2
        assert capsys.readouterr().err.strip() == message


def generated(genai: Any, folder: Path, overlay: dict[str, str] | None = None) -> list[int]:  # noqa: ANN401 - a module
    """Return the tokens that onnxruntime-genai's loop finds one by one, each the most likely one."""
    config = genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": overlay or {}}}}))
    model = genai.Model(config)
    parameters = genai.GeneratorParams(model)
    parameters.set_search_options(max_length=64, do_sample=False)
    generator = genai.Generator(model, parameters)
    generator.append_tokens(genai.Tokenizer(model).encode(PROMPT))
    tokens: list[int] = []
    while not generator.is_done():
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tokens


@pytest.mark.slow
def test_onnxruntime_genai_generates_the_same_tokens_with_our_library_and_without(tmp_path: Path) -> None:
    genai = pytest.importorskip("onnxruntime_genai")
    source, plain, shipped = write_folder(tmp_path / "in"), tmp_path / "plain", tmp_path / "shipped"
    assert command("optimize", source, plain) == 0
    assert command("optimize", source, shipped, "--library") == 0
    config = json.loads((shipped / "genai_config.json").read_text())
    assert config["model"]["decoder"].pop("session_options") == SESSION_OPTIONS | {"custom_ops_library": "model.so"}
    expected = generated(genai, source)
    assert len(expected) > 20
    assert generated(genai, plain) == expected
    assert generated(genai, shipped) == expected
    before = redpebble.counters()
    assert generated(genai, plain, {"custom_ops_library": redpebble.get_library_path()}) == expected
    after = redpebble.counters()
    made = sum(after[key] - before[key] for key in ("networks_compiled", "networks_from_cache"))
    assert made == SIZES["num_hidden_layers"] + 1


@pytest.mark.slow
def test_bench_of_a_folder_is_a_table_of_tokens_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, report = write_folder(tmp_path / "in"), tmp_path / "r.json"
    words = ("--seconds", "0", "--report", str(report))
    assert command("bench", source, "--against", f"{source},int4", *words) == 0
    header, rule, *rows, machine = capsys.readouterr().out.splitlines()
    # the model takes 256 tokens
    cases = ["prefill 128", "prefill 254", "decode behind 128", "decode behind 254"]
    assert header == f"| in, tokens a second | threads | {' | '.join(cases)} |"
    assert len(rule.split("|")) == len(header.split("|"))
    engines = [
        "redpebble",
        "onnxruntime, the same file",
        f"onnxruntime, {source}",
        "onnxruntime, int4 by its quantizer",
    ]
    assert [row.split(" | ")[0] for row in rows] == [f"| {engine}" for engine in engines]
    assert rows[1].count("(1.00x)") == len(cases)
    assert f"onnxruntime {onnxruntime.__version__}" in machine
    found = json.loads(report.read_text())["rows"]
    assert [one["engine"] for one in found] == engines
    assert all(one[case] > 0 for one in found for case in cases)


def test_bench_of_a_folder_refuses_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_folder(tmp_path / "in")
    assert command("bench", source, "--against", "int7") == 2
    assert "against: expected a folder, int8, int4 or genai, got 'int7'" in capsys.readouterr().err
