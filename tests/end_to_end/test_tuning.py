"""Tuning: what was measured decides, is remembered, and is shown; forced targets get code that they can run."""

import json
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

import redpebble
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.reports.layer_report import LayerReport
from redpebble.dialect.reports.module_report import layer_reports
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.pipeline import build as build_module
from redpebble.runtime.jit import host_target
from redpebble.tuning.machines import calibrate
from redpebble.tuning.measure_kernels import Tuning
from redpebble.tuning.probe_layers import PROBES
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.end_to_end.agreement import assert_close
from tests.support.command_line import exit_code
from tests.support.lowering_modules import each_target

SPEC = "ffnn(depth=1, width=384, density=0.1)"


def tuned(model: onnx_ir.Model, folder: Path, seconds: float = 0.01) -> tuple[LayerReport, ...]:
    return layer_reports(build_module(model, Options(tuning=Tuning.on(host_target(), folder, seconds))))


def measurable(layer: LayerReport) -> set[str]:
    """The widths of a layer's tiles at which kernels are measured: vectors are full there."""
    return {*layer.predicted_us} & {str(width) for width in WIDTHS}


MORE = ("", '{"format": 2, "content": 7}')


def file_of(folder: Path, kind: str) -> Path:
    (file,) = folder.glob(f"{kind}-*.json")
    return file


@pytest.fixture(scope="module")
def model() -> onnx_ir.Model:
    return zoo.build(SPEC)


@pytest.fixture(scope="module")
def folder(model: onnx_ir.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this machine was calibrated, and the model tuned."""
    folder = tmp_path_factory.mktemp("tuned")
    calibrate(folder, PROBES[:2])
    tuned(model, folder)
    return folder


def copied(folder: Path, target: Path) -> Path:
    for kind in ("machine", "tuning"):
        file = file_of(folder, kind)
        (target / file.name).write_text(file.read_text())
    return target


@pytest.mark.slow
def test_times_by_the_clock_are_in_the_report_beside_predicted_ones(model: onnx_ir.Model, folder: Path) -> None:
    for layer in tuned(model, folder):
        assert set(layer.measured_us) == measurable(layer) >= {"1", "8", "16", "32", "64"}
        assert min(*layer.measured_us.values(), *layer.predicted_us.values()) > 0


@pytest.mark.slow
def test_what_was_measured_is_read_and_not_measured_again(model: onnx_ir.Model, folder: Path, tmp_path: Path) -> None:
    content = json.loads(file_of(copied(folder, tmp_path), "tuning").read_text())
    # times that no machine has, the more the later in the file
    content["content"] = [f"{text.rsplit(' ', 1)[0]} {1e-5 * (n + 1)}" for n, text in enumerate(content["content"])]
    file_of(tmp_path, "tuning").write_text(json.dumps(content))
    for layer in tuned(model, tmp_path):
        assert 0 < max(layer.measured_us.values()) <= 1e-5 * len(content["content"])


@pytest.mark.slow
def test_the_fastest_by_the_clock_is_chosen(model: onnx_ir.Model, folder: Path, tmp_path: Path) -> None:
    content = json.loads(file_of(copied(folder, tmp_path), "tuning").read_text())
    places = [text.rsplit(" ", 1)[0] for text in content["content"]]
    slowest = {place.split()[0]: place for place in places}
    content["content"] = [f"{place} {0.001 if place in slowest.values() else 1.0}" for place in places]
    file_of(tmp_path, "tuning").write_text(json.dumps(content))
    families = {place.split()[1].split(":")[0] for place in slowest.values()}
    for layer in tuned(model, tmp_path):
        assert set(layer.measured_us.values()) == {0.001}
        assert {words.split()[0] for words in layer.kernel.split(", ")} <= families


@pytest.mark.slow
def test_several_numbers_of_blocks_are_measured_and_the_fastest_is_chosen(
    model: onnx_ir.Model, folder: Path, tmp_path: Path
) -> None:
    content = json.loads(file_of(copied(folder, tmp_path), "tuning").read_text())
    kernels = [text.split()[1] for text in content["content"]]
    numbers = {kernel.removeprefix("count_blocks:") for kernel in kernels if kernel.startswith("count_blocks:")}
    assert len(numbers) > 1
    for best in numbers:
        content["content"] = [
            f"{text.rsplit(' ', 1)[0]} {0.001 if kernel == f'count_blocks:{best}' else 1.0}"
            for text, kernel in zip(content["content"], kernels, strict=True)
        ]
        file_of(tmp_path, "tuning").write_text(json.dumps(content))
        module = build_module(model, Options(tuning=Tuning.on(host_target(), tmp_path, 0.0)))
        chosen = [op.kernel.blocks for op in module.walk() if isinstance(op, LinearOp) and op.kernel]
        assert {blocks["count_blocks"] for blocks in chosen} == {int(best)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    ["[", '{"format": 2, "content": ["nonsense", 3]}', *(pytest.param(one, marks=pytest.mark.slow) for one in MORE)],
)
def test_damaged_times_are_measured_again(model: onnx_ir.Model, folder: Path, content: str, tmp_path: Path) -> None:
    file_of(copied(folder, tmp_path), "tuning").write_text(content)
    assert all(set(layer.measured_us) == measurable(layer) for layer in tuned(model, tmp_path))
    assert json.loads(file_of(tmp_path, "tuning").read_text())["content"]


def test_without_tuning_nothing_is_measured_and_what_was_measured_does_not_count(
    model: onnx_ir.Model, folder: Path
) -> None:
    tuning = Tuning.predicted(host_target(), folder)
    assert all(not layer.measured_us for layer in layer_reports(build_module(model, Options(tuning=tuning))))


def test_layers_that_were_never_measured_are_predicted_where_nothing_may_be_measured(folder: Path) -> None:
    other = zoo.build("ffnn(depth=2, width=400, density=0.1)")
    tuning = Tuning.recalled(host_target(), folder)
    assert all(not layer.measured_us for layer in layer_reports(build_module(other, Options(tuning=tuning))))


@pytest.mark.slow
def test_a_tuned_network_agrees_with_onnxruntime(model: onnx_ir.Model, folder: Path) -> None:
    network = redpebble.compile(model, tune=True, cache=folder)
    assert all(layer.measured_us for layer in network.report)
    for batch in (0, 1, 7, 17, 130):
        feeds = inputs_for(model, batch, np.random.default_rng(0))
        assert_close(network.run(None, feeds), Oracle(model).run(feeds), f"batch {batch}")


@pytest.mark.slow
def test_tuned_and_predicted_code_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build(SPEC), path)
    copied(folder, tmp_path)
    for tune in (True, False, True, False):
        network = redpebble.compile(path, tune=tune, cache=tmp_path)
        assert all(bool(layer.measured_us) == tune for layer in network.report)
    assert len([*tmp_path.glob("*.pebble")]) == 2


@pytest.mark.slow
def test_a_model_whose_layers_were_measured_now_is_not_compiled_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("ffnn(depth=1, width=384, density=0.1)"), path)
    (tmp_path / file_of(folder, "machine").name).write_text(file_of(folder, "machine").read_text())
    for _ in range(2):
        redpebble.compile(path, tune=True, cache=tmp_path)
    assert len([*tmp_path.glob("*.pebble")]) == 1


@pytest.mark.slow
@each_target
def test_a_forced_target_has_kernels_of_its_own(model: onnx_ir.Model, target: CpuTarget, tmp_path: Path) -> None:
    network = redpebble.compile(model, target=target, cache=tmp_path)
    for layer in network.report:
        assert ("permute_lookup" in layer.kernel) == target.has_avx512
    feeds = inputs_for(model, 65, np.random.default_rng(0))
    assert_close(network.run(None, feeds), Oracle(model).run(feeds))


def test_what_cannot_run_here_cannot_be_tuned_here(tmp_path: Path) -> None:
    target = CpuTarget.from_features("generic", "+no-such-feature")
    message = r"^cannot tune for a target that needs no-such-feature, which this machine lacks$"
    with pytest.raises(ValueError, match=message):
        Tuning.on(target, tmp_path)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_that_cannot_pass_are_refused(seconds: float, folder: Path) -> None:
    with pytest.raises(ValueError, match=rf"^expected 0 seconds or more to tune, got {seconds}$"):
        Tuning.on(host_target(), folder, seconds)


@pytest.mark.slow
def test_the_commands_show_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path, report = tmp_path / "model.onnx", tmp_path / "report.json"
    zoo.save(zoo.build(SPEC), path)

    def run(*words: object) -> None:
        assert exit_code(monkeypatch, *words) == 0

    run("tune", path, "--seconds", 0.01)
    printed = capsys.readouterr().out
    assert "GB/s" in printed
    assert "measured us" in printed
    run("explain", path, "--seconds", 0.01, "--report", report)
    assert "measured us" in capsys.readouterr().out
    assert all(layer["predicted_us"] and layer["measured_us"] for layer in json.loads(report.read_text())["layers"])
