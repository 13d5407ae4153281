from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.frontend.reading.model_source import read_model
from redpebble.models import zoo
from redpebble.tools.training_commands import mapped_arrays
from redpebble.training.optimizers import OptimizerName
from redpebble.training.options import FinetuneOptions
from redpebble.training.samples import Samples, batches_in_order, shuffled_batches
from tests.support.command_line import exit_code

Floats = NDArray[np.float32]

SPEC = "ffnn(depth=2,width=24,density=0.3)"


def model(seed: int = 0) -> onnx_ir.Model:
    return read_model(zoo.build(SPEC, seed=seed))


def task(count: int = 160) -> tuple[Mapping[str, Floats], Floats]:
    """Inputs, and what another network of the same form makes of them."""
    x = np.random.default_rng(0).standard_normal((count, 24), dtype=np.float32)
    (wanted,) = redpebble.compile(zoo.build(SPEC, seed=3)).run(None, {"x": x})
    return {"x": x}, wanted


def arrays_of(result: onnx_ir.Model) -> dict[str, Floats]:
    return {name: value.const_value.numpy() for name, value in result.graph.initializers.items() if value.const_value}


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        ("adam", 1e-2),
        pytest.param("sgd", 1e-2, marks=pytest.mark.slow),
        pytest.param("lion", 1e-2, marks=pytest.mark.slow),
    ],
)
def test_training_loses_less_and_zeros_stay_zeros(optimizer: OptimizerName, rate: float) -> None:
    feeds, wanted = task()
    source = model()
    result = redpebble.finetune(
        source, feeds, labels=wanted, optimizer=optimizer, rate=rate, epochs=6, batch=32, warm_up=2, threads=2
    )
    report = result.report
    assert report.best > 0
    assert report.kept.validation < 0.8 * report.before.validation
    before, after = arrays_of(source), arrays_of(result.model)
    for name, array in before.items():
        assert np.array_equal(array == 0, after[name] == 0) or array.ndim == 1
    outputs = redpebble.compile(result.model).run(None, feeds)[0]
    assert np.square(outputs - wanted).mean() == pytest.approx(report.kept.validation, rel=1e-3)


def test_the_same_seed_gives_the_same_values() -> None:
    feeds, wanted = task()
    first, second, other = (
        arrays_of(redpebble.finetune(model(), feeds, labels=wanted, epochs=1, batch=32, seed=seed).model)
        for seed in (0, 0, 1)
    )
    assert all(np.array_equal(array, second[name]) for name, array in first.items())
    assert not all(np.array_equal(array, other[name]) for name, array in first.items())


def test_a_teacher_may_be_a_model_or_a_function() -> None:
    feeds, wanted = task()
    teacher = zoo.build(SPEC, seed=3)
    of_model = redpebble.finetune(model(), feeds, teacher=teacher, epochs=1, batch=32).report
    given = redpebble.finetune(model(), feeds, labels=wanted, epochs=1, batch=32).report
    of_function = redpebble.finetune(model(), feeds, teacher=lambda one: 0 * one["x"], epochs=1, batch=32).report
    assert of_model.kept.validation == pytest.approx(given.kept.validation, rel=1e-4)
    assert of_function.kept.validation != pytest.approx(given.kept.validation, rel=1e-4)


def test_what_is_not_better_is_not_kept_and_patience_ends_it() -> None:
    feeds, wanted = task()
    source = model()
    result = redpebble.finetune(
        source, feeds, labels=wanted, optimizer="lion", rate=10.0, schedule="constant", epochs=9, patience=2, batch=32
    )
    assert (result.report.best, len(result.report.epochs)) == (0, 2)
    assert result.report.kept == result.report.before
    for name, array in arrays_of(source).items():
        assert np.array_equal(array, arrays_of(result.model)[name])


def test_an_interrupt_keeps_the_best_values() -> None:
    feeds, wanted = task()
    calls = 0

    def teacher(one: Mapping[str, Floats]) -> Floats:
        nonlocal calls
        calls += 1
        if calls > 40:
            raise KeyboardInterrupt
        return wanted[np.argmax((feeds["x"][:, None, 0] == one["x"][None, :, 0]), axis=0)]

    report = redpebble.finetune(model(), feeds, teacher=teacher, epochs=50, batch=32, rate=1e-2).report
    assert report.interrupted
    assert 0 < report.best <= len(report.epochs) < 50


def test_samples_that_do_not_fit_are_refused() -> None:
    feeds, wanted = task(8)
    for other, labels, message in (
        ({"z": feeds["x"]}, wanted, "expected x in the data, got z"),
        ({"x": feeds["x"][:, :3]}, wanted, r"expected numbers \(samples, 24\), got .* of shape \(8, 3\)"),
        ({"x": feeds["x"][:0]}, wanted[:0], "expected the same number of samples for each input, 1 or more, got 0"),
        (feeds, wanted[:5], "5 labels for 8 samples"),
        (feeds, wanted[:, :4], r"expected numbers \(8, 24\)"),
        (feeds, np.full(8, 24), "expected classes 0 to 23"),
        (feeds, None, "either labels or a teacher"),
    ):
        with pytest.raises(ValueError, match=message):
            redpebble.finetune(model(), other, labels=labels)
    with pytest.raises(ValueError, match="loss: expected a finite number, got nan at step 0"):
        redpebble.finetune(model(), {"x": np.full((8, 24), np.nan, np.float32)}, labels=wanted)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--optimizer", "adamw"), "'adamw' is not one of 'sgd', 'adam', 'lion'"),
        (("--epochs", 0), "epochs: expected 1 or more, got 0"),
        (("--lr", 0), "rate: expected more than 0, got 0.0"),
        (("--schedule", "linear"), "'linear' is not one of 'constant', 'cosine'"),
        (("--patience", -1), "patience: expected 0 or more, got -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: tuple[object, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    zoo.save(zoo.build(SPEC), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 24), np.float32), y=np.zeros((4, 24), np.float32))
    files = (tmp_path / "m.onnx", tmp_path / "o.onnx", "--data", tmp_path / "d.npz", "--labels", "y")
    assert exit_code(monkeypatch, "finetune", *files, *words) == 2
    assert message in capsys.readouterr().err


def test_the_rate_rises_and_falls() -> None:
    options = FinetuneOptions(rate=1.0, warm_up=4)
    rates = [options.rate_at(step, 20) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] < 0.02


def test_batches_hold_every_sample_once() -> None:
    found = np.concatenate([*shuffled_batches(12, 4, np.random.default_rng(0))])
    assert sorted(found.tolist()) == list(range(12))
    assert [batch.tolist() for batch in batches_in_order(1, 6, 3)] == [[1, 2, 3], [4, 5, 5]]


def test_folders_are_mapped_and_files_read(tmp_path: Path) -> None:
    feeds, wanted = task(8)
    (tmp_path / "maps").mkdir()
    np.save(tmp_path / "maps" / "x.npy", feeds["x"])
    np.save(tmp_path / "maps" / "y.npy", wanted)
    arrays = mapped_arrays(tmp_path / "maps")
    assert isinstance(arrays["x"], np.memmap)
    Samples({"x": arrays["x"]}, arrays["y"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected an .npz or a folder of .npy, got no arrays"):
        mapped_arrays(tmp_path / "empty")


def test_the_command_line_trains_writes_a_page_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds, wanted = task()
    zoo.save(zoo.build(SPEC), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=feeds["x"], y=wanted)
    words = ("finetune", tmp_path / "m.onnx", tmp_path / "o.onnx", "--data", tmp_path / "d.npz")
    assert exit_code(monkeypatch, *words) == 2
    assert "expected one of --labels and --teacher" in capsys.readouterr().err
    assert exit_code(monkeypatch, *words, "--labels", "z") == 2
    assert "has no array 'z' of labels, it holds x, y" in capsys.readouterr().err
    assert not (tmp_path / "o.onnx").exists()
    page = tmp_path / "page.html"
    assert not exit_code(monkeypatch, *words, "--labels", "y", "--epochs", 2, "--batch", 32, "--report", page)
    assert "<svg" in page.read_text()
    assert (tmp_path / "o.onnx").exists()
